//! Network namespaces, and a switch between them: machines on one network, on this machine. Needs root.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::unique::unique;

/// A machine's network, or that of a pod. It goes with this value, and all interfaces in it.
pub struct NetNamespace {
    name: String,
}

/// A switch, in a namespace of its own, in which its interface `uplink` is a machine as well.
pub struct Switch {
    namespace: NetNamespace,
}

impl NetNamespace {
    /// Without any interface but loopback.
    #[track_caller]
    pub fn new(what: &str) -> Self {
        let namespace = Self { name: unique(&format!("underpass-{what}")) };
        ip(&["netns", "add", &namespace.name]);
        namespace.ip("link set lo up");
        namespace
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// `ip` in it, with these words.
    #[track_caller]
    pub fn ip(&self, words: &str) -> String {
        let words: Vec<&str> = ["-n", &self.name].into_iter().chain(words.split_whitespace()).collect();
        ip(&words)
    }

    /// Does something as a thread that is in it. So are the sockets that it opens and the processes that it starts.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                self.enter();
                work()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Moves this thread into it, for as long as the thread lives or until it moves on.
    pub fn enter(&self) {
        let path = format!("/run/netns/{}", self.name);
        let file = File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .unwrap_or_else(|error| panic!("cannot enter {path}: {error}"));
    }
}

impl Drop for NetNamespace {
    fn drop(&mut self) {
        // One that cannot be deleted is told by whoever counts them.
        let _ = Command::new("ip").args(["netns", "delete", &self.name]).status();
    }
}

impl Switch {
    /// One whose own interface has this address.
    #[track_caller]
    pub fn new(address: &str) -> Self {
        let namespace = NetNamespace::new("switch");
        namespace.ip("link add name uplink type bridge");
        namespace.ip("link set uplink up");
        namespace.ip(&format!("address add {address} dev uplink nodad"));
        Self { namespace }
    }

    pub fn namespace(&self) -> &NetNamespace {
        &self.namespace
    }

    /// A machine on it, which has this address on its interface `net1`.
    #[track_caller]
    pub fn machine(&self, what: &str, address: &str) -> NetNamespace {
        let machine = NetNamespace::new(what);
        self.connect(&machine, "net1", address);
        machine
    }

    /// One that is on other networks too has this address on this interface. The port of the switch is told, from which the cable can be
    /// taken: `link set PORT down` in the switch's namespace.
    #[track_caller]
    pub fn connect(&self, machine: &NetNamespace, interface: &str, address: &str) -> String {
        let port = unique("p");
        let port = &port[port.len().saturating_sub(15)..];
        self.namespace.ip(&format!("link add name {port} type veth peer name {interface} netns {}", machine.name));
        self.namespace.ip(&format!("link set {port} master uplink up"));
        machine.ip(&format!("link set {interface} up"));
        machine.ip(&format!("address add {address} dev {interface} nodad"));
        port.to_owned()
    }
}

#[track_caller]
fn ip(words: &[&str]) -> String {
    let output = Command::new("ip").args(words).output().expect("ip can be run");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {complaint}", words.join(" "));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
