//! An API server that takes its time: a door before the real one, through which requests go late.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;
use underpass_testbed::{NetNamespace, Underpass};

/// The first byte of what TLS carries, which is late; what makes the connection is not, so that a new one is no later than an old one.
const APPLICATION_DATA: u8 = 23;

pub(super) struct SlowServer {
    kubeconfig: NamedTempFile,
    /// In milliseconds.
    delay: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SlowServer {
    /// At another port of the same address, and for now as fast as the real one.
    #[track_caller]
    pub(super) fn before(server: &Underpass, namespace: &NetNamespace) -> Self {
        let api = server.ready().api.strip_prefix("https://").unwrap().to_owned();
        let real: SocketAddr = api.parse().unwrap();
        let (delay, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (delays, stopped) = (Arc::clone(&delay), Arc::clone(&stop));
        let (door, thread) = namespace.within(|| {
            let listener = TcpListener::bind((real.ip(), 0)).unwrap();
            listener.set_nonblocking(true).unwrap();
            (listener.local_addr().unwrap(), spawn(move || accept(&listener, real, &delays, &stopped)))
        });
        let kubeconfig = NamedTempFile::new().unwrap();
        let text = std::fs::read_to_string(server.kubeconfig()).unwrap();
        assert!(text.contains(&api), "{text}");
        std::fs::write(&kubeconfig, text.replace(&api, &door.to_string())).unwrap();
        Self { kubeconfig, delay, stop, thread: Some(thread) }
    }

    pub(super) fn kubeconfig(&self) -> &Path {
        self.kubeconfig.path()
    }

    pub(super) fn takes(&self, delay: Duration) {
        self.delay.store(delay.as_millis().try_into().unwrap(), Ordering::Relaxed);
    }
}

impl Drop for SlowServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn accept(listener: &TcpListener, real: SocketAddr, delay: &Arc<AtomicU64>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let Ok((near, _)) = listener.accept() else {
            sleep(Duration::from_millis(5));
            continue;
        };
        // Closed again, as if nobody were there.
        let Ok(far) = TcpStream::connect(real) else { continue };
        let (mut from, mut to) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
        let (delay, (late, due)) = (Arc::clone(delay), channel());
        spawn(move || take(near, &delay, &late));
        spawn(move || pass(far, &due));
    }
}

/// What comes is due some time later.
fn take(mut near: TcpStream, delay: &AtomicU64, late: &Sender<(Instant, Vec<u8>)>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = near.read(&mut buffer) {
        let is_request = buffer[0] == APPLICATION_DATA;
        let wait = if is_request { delay.load(Ordering::Relaxed) } else { 0 };
        if late.send((Instant::now() + Duration::from_millis(wait), buffer[..length].to_vec())).is_err() {
            return;
        }
    }
}

fn pass(mut far: TcpStream, due: &Receiver<(Instant, Vec<u8>)>) {
    for (at, bytes) in due {
        sleep(at.saturating_duration_since(Instant::now()));
        if far.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = far.shutdown(Shutdown::Both);
}
