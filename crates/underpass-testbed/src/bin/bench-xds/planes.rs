//! Control planes side by side: our own and go-control-plane's snapshot cache, each a process that serves the same resources and is told
//! of a change by a line.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Instant;

use anyhow::Context;
use underpass_testbed::report::Contender;
use underpass_testbed::usage::{self, Usage};

use crate::backends::Change;
use crate::resources::Served;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Plane {
    Underpass,
    GoControlPlane,
}

/// A control plane that serves. It ends with this value.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    child: Child,
    changes: Option<ChildStdin>,
}

impl Contender for Plane {
    const OURS: Self = Self::Underpass;

    fn name(self) -> &'static str {
        match self {
            Self::Underpass => "underpass",
            Self::GoControlPlane => "go-control-plane",
        }
    }
}

impl Plane {
    pub(crate) const ALL: [Self; 2] = [Self::Underpass, Self::GoControlPlane];

    /// Serves these resources; `peer` is the program that scripts/xds-peer prints.
    pub(crate) fn start(self, peer: Option<&Path>, served: &Served) -> anyhow::Result<Running> {
        let mut command = match self {
            Self::Underpass => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("serve").arg(served.backends.to_string());
                command
            }
            Self::GoControlPlane => {
                let mut command = Command::new(peer.context("go-control-plane is not here: name it with --peer")?);
                command.arg(served.folder());
                command
            }
        };
        Running::start(&mut command)
    }
}

impl Running {
    /// The first line that it prints is its address. A Ctrl-C in the terminal is not for it.
    fn start(command: &mut Command) -> anyhow::Result<Self> {
        let line = format!("{command:?}");
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).spawn();
        let mut child = spawned.with_context(|| format!("cannot start {line}"))?;
        let changes = child.stdin.take();
        let mut said = String::new();
        BufReader::new(child.stdout.take().context("stdout is piped")?).read_line(&mut said)?;
        let address = said.trim().parse();
        let mut running = Self { address: ([127, 0, 0, 1], 0).into(), child, changes };
        running.address = address.with_context(|| format!("{line} does not say where it serves: {said}"))?;
        Ok(running)
    }

    /// Tells it; from this moment on it knows.
    pub(crate) fn tell(&mut self, change: Change) -> anyhow::Result<Instant> {
        let changes = self.changes.as_mut().context("it has ended")?;
        let at = Instant::now();
        writeln!(changes, "{}", change.word())?;
        Ok(at)
    }

    /// What it has used and holds, whenever that is asked.
    pub(crate) fn usage_source(&self) -> impl Fn() -> Usage + use<> {
        let pid = self.child.id();
        move || usage::of(std::iter::once(pid))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both end with their input.
        self.changes = None;
        let _ = self.child.wait();
    }
}

/// Where the programs are.
#[derive(Debug, clap::Args)]
pub(crate) struct Programs {
    /// Our own program, for what is measured from a file or an API server; left out: that is not measured
    #[arg(long)]
    pub(crate) underpass: Option<PathBuf>,
    /// The program that scripts/xds-peer prints; left out: only ours is asked
    #[arg(long)]
    pub(crate) peer: Option<PathBuf>,
}

impl Programs {
    pub(crate) fn planes(&self) -> impl Iterator<Item = Plane> {
        Plane::ALL.into_iter().filter(|plane| *plane == Plane::OURS || self.peer.is_some())
    }
}
