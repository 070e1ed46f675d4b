//! Tunnels side by side: our own and those that people would use instead, each told the same four tunnels in its own words.
//!
//! The half that belongs to the network runs in a container, the other half on the host, and the servers are threads of this program on
//! 127.0.0.1. Settings are what the tunnel's documentation offers for plain TCP on one machine: no encryption where it can be left
//! out, no log line per connection where it can be switched off, and buffer sizes as they come.

mod bore;
mod chisel;
mod frp;
mod rathole;
mod underpass;

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use tempfile::TempDir;
use underpass_testbed::load::{Backend, client};
use underpass_testbed::report::{Contender, said_version};
use underpass_testbed::usage::{self, Usage};
use underpass_testbed::{PATIENCE, Process, look_until};

use crate::site::{Guest, QUIET, Site};

pub(crate) use underpass::Ours;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Tunnel {
    Underpass,
    Rathole,
    Bore,
    Frp,
    /// With a connection for each stream, in place of one for all.
    FrpApart,
    Chisel,
}

/// Where the programs are.
#[derive(Debug, clap::Args)]
pub(crate) struct Programs {
    /// Our own program; left out: only the others are asked
    #[arg(long)]
    underpass: Option<PathBuf>,
    /// The folder that scripts/tunnel-peers prints; left out: the others are not asked
    #[arg(long)]
    peers: Option<PathBuf>,
    /// Ask only these
    #[arg(long, value_delimiter = ',')]
    only: Vec<Tunnel>,
}

/// What leads to the four services of the backend: host and port for each, or what is asked for there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Services<T> {
    pub(crate) greet: T,
    pub(crate) hold: T,
    pub(crate) echo: T,
    pub(crate) bulk: T,
}

/// A tunnel that runs. It ends with this value.
pub(crate) struct Running<'a> {
    /// Where clients reach the services, on the container network.
    pub(crate) services: Services<SocketAddr>,
    /// Of both halves.
    pids: Vec<u32>,
    /// Before everything else, so that they do not complain about the other half.
    host: Vec<Process>,
    _guest: Option<Guest<'a>>,
    _ours: Option<Ours<'a>>,
    _folder: TempDir,
}

/// What starts a tunnel.
pub(crate) struct Bed<'a> {
    pub(crate) site: &'a Site,
    pub(crate) program: &'a Path,
    pub(crate) servers: Services<SocketAddr>,
}

/// Ports on the network; any will do, each tunnel has the address to itself.
const PORTS: Services<u16> = Services { greet: 5001, hold: 5002, echo: 5003, bulk: 5004 };

impl Contender for Tunnel {
    const OURS: Self = Self::Underpass;

    fn name(self) -> &'static str {
        match self {
            Self::Underpass => "underpass",
            Self::Rathole => "rathole",
            Self::Bore => "bore",
            Self::Frp => "frp",
            Self::FrpApart => "frp no mux",
            Self::Chisel => "chisel",
        }
    }
}

impl Tunnel {
    const ALL: [Self; 6] = [Self::Underpass, Self::Rathole, Self::Bore, Self::Frp, Self::FrpApart, Self::Chisel];

    pub(crate) fn version(self, program: &Path) -> String {
        said_version(program, "--version")
    }

    /// The program of the half that is in the network; that of the host's half, if it is another, stands beside it.
    fn program(self) -> &'static str {
        match self {
            Self::Underpass => "underpass",
            Self::Rathole => "rathole",
            Self::Bore => "bore",
            Self::Frp | Self::FrpApart => "frps",
            Self::Chisel => "chisel",
        }
    }

    /// Starts both halves, and waits until all four ports lead somewhere.
    pub(crate) fn start<'a>(self, bed: &Bed<'a>) -> anyhow::Result<Running<'a>> {
        match self {
            Self::Underpass => underpass::start(bed),
            Self::Rathole => rathole::start(bed),
            Self::Bore => bore::start(bed),
            Self::Frp => frp::start(bed, true),
            Self::FrpApart => frp::start(bed, false),
            Self::Chisel => chisel::start(bed),
        }
    }
}

impl Programs {
    pub(crate) fn found(&self) -> anyhow::Result<Vec<(Tunnel, PathBuf)>> {
        let wanted = |tunnel: &Tunnel| self.only.is_empty() || self.only.contains(tunnel);
        let place = |tunnel: Tunnel| match tunnel {
            Tunnel::Underpass => self.underpass.clone(),
            peer => self.peers.as_ref().map(|folder| folder.join(peer.program())),
        };
        let found: Vec<_> =
            Tunnel::ALL.into_iter().filter(wanted).filter_map(|tunnel| Some((tunnel, place(tunnel)?))).collect();
        anyhow::ensure!(!found.is_empty(), "no tunnel is here: name programs with --underpass and --peers");
        Ok(found)
    }
}

impl<T: Copy> Services<T> {
    pub(crate) fn map<U>(self, make: impl Fn(&'static str, T) -> U) -> Services<U> {
        let Self { greet, hold, echo, bulk } = self;
        Services {
            greet: make("greet", greet),
            hold: make("hold", hold),
            echo: make("echo", echo),
            bulk: make("bulk", bulk),
        }
    }

    fn each(self) -> [(&'static str, T); 4] {
        [("greet", self.greet), ("hold", self.hold), ("echo", self.echo), ("bulk", self.bulk)]
    }
}

impl Services<SocketAddr> {
    pub(crate) fn of(backend: &Backend) -> Self {
        Self { greet: backend.greet, hold: backend.hold, echo: backend.echo, bulk: backend.bulk }
    }
}

impl Bed<'_> {
    /// Each service with its port on the network and its server.
    fn tunnels(&self) -> impl Iterator<Item = (&'static str, u16, SocketAddr)> {
        let servers = self.servers.each();
        PORTS.each().into_iter().zip(servers).map(|((name, port), (_, server))| (name, port, server))
    }
}

impl<'a> Running<'a> {
    /// A half in a container and one or more processes on the host.
    fn of_two_halves(guest: Guest<'a>, host: Vec<Process>, folder: TempDir) -> anyhow::Result<Self> {
        let services = services_at(guest.address);
        let pids = host.iter().map(Process::pid).chain([guest.pid]).collect();
        let mut running = Self { services, pids, host, _guest: Some(guest), _ours: None, _folder: folder };
        running.wait_until_it_leads_somewhere()?;
        Ok(running)
    }

    /// What both halves have used until now, and what they hold.
    pub(crate) fn usage(&self) -> Usage {
        usage::of(self.pids.iter().copied())
    }

    fn wait_until_it_leads_somewhere(&mut self) -> anyhow::Result<()> {
        for (name, address) in self.services.each().into_iter().rev() {
            // A port may listen before it leads anywhere. Two of the servers speak only when they are asked more than this.
            let leads_somewhere =
                || if name == "greet" { client::greeted(address, name) } else { TcpStream::connect(address) }.is_ok();
            let reached = look_until(PATIENCE, || {
                let over = self.host.iter_mut().any(|process| !process.is_running());
                (over || leads_somewhere()).then_some(over)
            });
            if reached != Some(false) {
                let said: String = self.host.iter().map(|process| process.stdout() + &process.stderr()).collect();
                bail!("the tunnel to {name} does not come; its half on the host said: {said}");
            }
        }
        Ok(())
    }
}

fn services_at(address: IpAddr) -> Services<SocketAddr> {
    PORTS.map(|_, port| SocketAddr::new(address, port))
}

/// The half on the host. A Ctrl-C in the terminal is not for it: it ends with its value, after the sample.
fn on_host(command: &mut Command) -> Process {
    Process::start(command.env(QUIET.0, QUIET.1).process_group(0))
}

/// A file for the half on the host.
fn put(folder: &TempDir, name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let path = folder.path().join(name);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
