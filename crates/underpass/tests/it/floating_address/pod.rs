//! Pods on one network, each with a data plane that says who it is.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;
use underpass_testbed::{Launch, NetNamespace, Process, Signal, Switch};

use crate::BINARY;

pub(super) const LEASE: &str = "proxy-address";
/// Where a data plane serves.
const PORT: u16 = 6443;
const READY_PORT: u16 = 9901;
/// What a pod needs, and no more.
const CAPABILITIES: &str = "--bounding-set=-all,+net_admin,+net_raw";

/// One that competes for the address, unless it was ended.
pub(super) struct Pod {
    pub(super) name: String,
    /// Where the address is to be.
    pub(super) interface: &'static str,
    process: Option<(Process, TempDir)>,
    ready: Arc<AtomicBool>,
    /// Before the namespace, which would otherwise stay as long as its sockets.
    _answering: Vec<Answering>,
    pub(super) namespace: Arc<NetNamespace>,
}

impl Pod {
    /// On the network, without having begun to compete.
    pub(super) fn new(switch: &Switch, name: &str, own: &str) -> Self {
        let namespace = Arc::new(switch.machine(name, own));
        let ready = Arc::new(AtomicBool::new(true));
        let listen = |ip: IpAddr, port| namespace.within(|| TcpListener::bind((ip, port)).unwrap());
        let (is_ready, said) = (Arc::clone(&ready), name.to_owned());
        let probe = move || {
            let status = if is_ready.load(Ordering::Relaxed) { "200 OK" } else { "503 Service Unavailable" };
            format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        };
        let answering = vec![
            Answering::start(listen(Ipv4Addr::LOCALHOST.into(), READY_PORT), probe),
            Answering::start(listen(Ipv6Addr::UNSPECIFIED.into(), PORT), move || said.clone()),
        ];
        Self { name: name.to_owned(), interface: "net1", process: None, ready, _answering: answering, namespace }
    }

    pub(super) fn compete(&mut self, address: &str, kubeconfig: &Path) {
        self.process = Some(self.command(address, kubeconfig).spawn());
    }

    pub(super) fn compete_with_gateway(&mut self, address: &str, gateway: &str, kubeconfig: &Path) {
        self.process = Some(self.command(address, kubeconfig).args(["--gateway", gateway]).spawn());
    }

    fn command(&self, address: &str, kubeconfig: &Path) -> Launch {
        let ready = format!("http://127.0.0.1:{READY_PORT}/ready");
        Launch::command("ip", "netns")
            .args(["exec", self.namespace.name(), "setpriv", CAPABILITIES, "--", BINARY, "floating-address"])
            .args(["--address", address, "--interface", self.interface, "--namespace", "default", "--lease", LEASE])
            .args(["--ready", &ready, "--kubeconfig"])
            .arg(kubeconfig)
            .env("POD_NAME", &self.name)
    }

    pub(super) fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }

    pub(super) fn process(&mut self) -> &mut Process {
        &mut self.process.as_mut().unwrap().0
    }

    pub(super) fn signal(&mut self, signal: Signal) {
        self.process().signal(signal);
    }

    /// Waits until it has ended, and tells with which code.
    pub(super) fn ended(&mut self) -> Option<i32> {
        self.process.take().unwrap().0.wait().code
    }
}

/// Whether an address is on an interface of the namespace that this thread is in: nothing can be bound to others.
pub(super) fn is_here(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// Which data plane answers at the address, as seen from a client.
pub(super) fn who_answers(client: &NetNamespace, address: IpAddr) -> Option<String> {
    const SHORT: Duration = Duration::from_millis(100);
    client.within(|| {
        let mut stream = TcpStream::connect_timeout(&SocketAddr::new(address, PORT), SHORT).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        let mut name = String::new();
        stream.read_to_string(&mut name).ok()?;
        Some(name).filter(|name| !name.is_empty())
    })
}

/// A thread that answers every connection in the same way.
struct Answering {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Answering {
    fn start(listener: TcpListener, answer: impl Fn() -> String + Send + 'static) -> Self {
        listener.set_nonblocking(true).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let Ok((mut client, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                };
                let _ = client.write_all(answer().as_bytes()).and_then(|()| client.shutdown(Shutdown::Write));
                // Until the other end has enough: what is closed with something unread is reset.
                let _ = client.set_read_timeout(Some(Duration::from_millis(200)));
                let _ = client.read_to_end(&mut Vec::new());
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
