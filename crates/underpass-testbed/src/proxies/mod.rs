//! Proxies side by side: our own and those that people would use instead, each told the same routing in its own words.
//!
//! Every proxy runs with two workers, without an access log, in a folder of its own and on a loopback address of its own, so that the
//! ports of the routing are free. Settings are what a careful operator would choose from the proxy's documentation; buffer sizes are
//! left as they come.

mod choice;
mod envoy;
mod fed_envoy;
mod haproxy;
mod nginx;
mod routing;
mod sniproxy;
mod underpass;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::http;
use crate::process::Process;
use crate::report::{Contender, said_version};
use crate::usage::{self, Usage};
use crate::wait::{PATIENCE, wait_until};

pub use choice::Choice;
pub use routing::{Kind, Port, ProxyHeader, Route, Routing};

/// How many workers each of them has.
pub const WORKERS: u32 = 2;

/// How long a client may take for its hello, where that can be said.
pub const HELLO_DEADLINE: Duration = Duration::from_secs(10);

/// A proxy that can be told a [`Routing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Proxy {
    Underpass,
    Envoy,
    /// Envoy, told by underpass: the program is underpass, and UNDERPASS_TEST_ENVOY says where Envoy is.
    #[value(skip)]
    FedEnvoy,
    Haproxy,
    Nginx,
    Sniproxy,
}

/// What not every proxy can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    PlainTcp,
    SeveralEndpoints,
    AcceptProxyHeader,
    SendProxyV1,
    SendProxyV2,
    CountRefusals,
}

/// A proxy that runs. It ends with this value.
pub struct Running {
    proxy: Proxy,
    program: PathBuf,
    /// Before the folder, so that they end before it goes.
    processes: Vec<Process>,
    place: Place,
}

/// Where a proxy lives: its files, and the addresses that nobody else uses.
pub(crate) struct Place {
    folder: TempDir,
    listen: Ipv4Addr,
    /// For a proxy that shows its state by HTTP.
    admin: SocketAddr,
}

impl Proxy {
    pub const ALL: [Self; 5] = [Self::Underpass, Self::Envoy, Self::Haproxy, Self::Nginx, Self::Sniproxy];

    /// Why it cannot do something; `None` when it can.
    pub fn lacks(self, feature: Feature) -> Option<&'static str> {
        match (self, feature) {
            (Self::Sniproxy, Feature::PlainTcp) => Some("carries TLS and HTTP only"),
            (Self::Sniproxy, Feature::SeveralEndpoints) => Some("has one address per name"),
            (Self::Sniproxy, Feature::AcceptProxyHeader) => Some("reads no PROXY header"),
            (Self::Sniproxy | Self::Nginx, Feature::SendProxyV2) => Some("writes PROXY v1 only"),
            (Self::Sniproxy | Self::Nginx, Feature::CountRefusals) => Some("has no counters for streams"),
            _ => None,
        }
    }

    /// Its program, when it is not elsewhere: as Debian installs it.
    pub fn usual_program(self) -> Option<PathBuf> {
        let places = match self {
            Self::Underpass | Self::Envoy | Self::FedEnvoy => return None,
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
            Self::Sniproxy => "sniproxy",
        };
        let candidates = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];
        candidates.iter().map(|folder| Path::new(folder).join(places)).find(|path| path.exists())
    }

    /// What it says about itself, as short as possible.
    pub fn version(self, program: &Path) -> String {
        let argument = match self {
            Self::Underpass | Self::Envoy | Self::FedEnvoy => "--version",
            Self::Haproxy | Self::Nginx => "-v",
            Self::Sniproxy => "-V",
        };
        said_version(program, argument)
    }

    /// Writes its files; when the last of them was in place.
    fn write(self, place: &Place, routing: &Routing) -> Instant {
        match self {
            Self::Underpass => underpass::write(place, routing),
            Self::Envoy => envoy::write(place, routing),
            Self::FedEnvoy => fed_envoy::write(place, routing),
            Self::Haproxy => haproxy::write(place, routing),
            Self::Nginx => nginx::write(place, routing),
            Self::Sniproxy => sniproxy::write(place, routing),
        }
    }

    fn commands(self, program: &Path, place: &Place) -> Vec<Command> {
        match self {
            Self::Underpass => vec![underpass::command(program, place)],
            Self::Envoy => vec![envoy::command(program, place)],
            Self::FedEnvoy => fed_envoy::commands(program, place),
            Self::Haproxy => vec![haproxy::command(program, place)],
            Self::Nginx => vec![nginx::command(program, place)],
            Self::Sniproxy => sniproxy::commands(program, place),
        }
    }

    /// The signal that makes it read its files again; `None` when it watches them.
    fn reload_signal(self) -> Option<Signal> {
        match self {
            Self::Underpass | Self::Envoy | Self::FedEnvoy => None,
            Self::Haproxy => Some(Signal::USR2),
            Self::Nginx | Self::Sniproxy => Some(Signal::HUP),
        }
    }
}

impl Contender for Proxy {
    const OURS: Self = Self::Underpass;

    fn name(self) -> &'static str {
        match self {
            Self::Underpass => "underpass",
            Self::Envoy => "Envoy",
            Self::FedEnvoy => "Envoy, told by underpass",
            Self::Haproxy => "HAProxy",
            Self::Nginx => "nginx",
            Self::Sniproxy => "sniproxy",
        }
    }
}

impl Running {
    /// Starts it with a routing, and waits until it listens on all ports.
    #[track_caller]
    pub fn start(proxy: Proxy, program: &Path, routing: &Routing) -> Self {
        Self::start_as(proxy, program, routing, |_| {})
    }

    /// The same in process groups of their own: a Ctrl-C in the terminal is for the caller, who ends it in order.
    #[track_caller]
    pub fn start_apart(proxy: Proxy, program: &Path, routing: &Routing) -> Self {
        Self::start_as(proxy, program, routing, |command| {
            command.process_group(0);
        })
    }

    #[track_caller]
    fn start_as(proxy: Proxy, program: &Path, routing: &Routing, change: fn(&mut Command)) -> Self {
        let place = Place::new();
        proxy.write(&place, routing);
        let mut commands = proxy.commands(program, &place);
        commands.iter_mut().for_each(change);
        let processes = commands.iter_mut().map(Process::start).collect();
        let mut running = Self { proxy, program: program.to_owned(), processes, place };
        running.wait_until_ready(routing);
        running
    }

    pub fn proxy(&self) -> Proxy {
        self.proxy
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Where it listens.
    pub fn address(&self, port: u16) -> SocketAddr {
        SocketAddr::V4(SocketAddrV4::new(self.place.listen, port))
    }

    /// Gives it another routing in the way that it offers for that, and does not wait. Says when the proxy could know: when its files
    /// were in place, or when it was told to read them.
    pub fn change(&self, routing: &Routing) -> Instant {
        self.wait_until_changeable();
        let written = self.proxy.write(&self.place, routing);
        self.remind().unwrap_or(written)
    }

    /// Tells it to read its files again, if it wants to be told; when that was.
    pub fn remind(&self) -> Option<Instant> {
        let signal = self.proxy.reload_signal()?;
        let told = Instant::now();
        self.processes.iter().for_each(|process| process.signal(signal));
        Some(told)
    }

    /// What all its processes have used until now, and what they hold.
    pub fn usage(&self) -> Usage {
        usage::of(self.processes.iter().map(Process::pid))
    }

    /// How many connections it says that it has refused; `None` when it does not count them.
    pub fn refusals(&self) -> Option<u64> {
        match self.proxy {
            Proxy::Underpass => Some(underpass::refusals(&self.place)),
            Proxy::Envoy | Proxy::FedEnvoy => Some(envoy::refusals(&self.place)),
            Proxy::Haproxy => Some(haproxy::refusals(&self.place)),
            Proxy::Nginx | Proxy::Sniproxy => None,
        }
    }

    /// What its processes have complained about.
    pub fn complaints(&self) -> String {
        self.processes.iter().map(Process::stderr).collect()
    }

    /// HAProxy's master misses what it is told while it starts itself anew, twice for each change; its new worker serves before that
    /// is over.
    fn wait_until_changeable(&self) {
        if self.proxy == Proxy::Haproxy {
            let listens = || self.processes.iter().all(|process| haproxy::heeds_changes(process.pid()));
            wait_until("HAProxy's master to heed its signals", PATIENCE, || listens().then_some(()));
        }
    }

    #[track_caller]
    fn wait_until_ready(&mut self, routing: &Routing) {
        let what = format!("{} to listen", self.proxy.name());
        wait_until(&what, PATIENCE, || {
            let ended = self.processes.iter_mut().any(|process| !process.is_running());
            assert!(!ended, "{} ended:\n{}", self.proxy.name(), self.complaints());
            let said = match self.proxy {
                Proxy::Underpass | Proxy::Envoy | Proxy::FedEnvoy => http::page(self.place.admin, "/ready").is_some(),
                Proxy::Haproxy | Proxy::Nginx | Proxy::Sniproxy => true,
            };
            let listens = |port: &Port| TcpStream::connect(self.address(port.number)).is_ok();
            // On a plain port the backend would get to see it.
            let mut ports = routing.ports.iter().filter(|port| port.kind == Kind::Tls);
            (said && ports.all(listens)).then_some(())
        });
    }
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let admin = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        Self { folder, listen: unused_address(), admin: admin.expect("a port is free") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces a file at once, so that nobody reads half of it. Says when it was there.
    fn put(&self, name: &str, text: &str) -> Instant {
        let (new, path) = (self.path(&format!("{name}.new")), self.path(name));
        let done = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path));
        done.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        Instant::now()
    }
}

/// An address in 127.0.0.0/8 that no other test of this machine is likely to use: the process id is in it.
pub(crate) fn unused_address() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = std::process::id().wrapping_mul(61).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
    let [_, a, b, c] = number.to_be_bytes();
    // Neither 127.0.x.y, where people have their own things, nor a last byte that looks like a network or a broadcast address.
    Ipv4Addr::new(127, a % 254 + 1, b, c % 254 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_loopback_and_differ() {
        let (one, other) = (unused_address(), unused_address());
        assert!(one.is_loopback() && other.is_loopback() && one != other);
    }

    #[test]
    fn a_change_of_a_file_leaves_nothing_else() {
        let place = Place::new();
        place.put("a", "one");
        place.put("a", "two");
        assert_eq!(std::fs::read_to_string(place.path("a")).unwrap(), "two");
        assert_eq!(std::fs::read_dir(place.folder.path()).unwrap().count(), 1);
    }
}
