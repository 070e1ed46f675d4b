//! A server's processes, as /proc shows them. They end with their value.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

/// What Linux counts processor time in, whatever the kernel itself uses.
const TICKS_PER_SECOND: f64 = 100.0;

pub(crate) struct Spawned {
    child: Child,
    log: PathBuf,
}

impl Spawned {
    /// Starts a program; what it says goes to a file beside its data.
    pub(crate) fn start(command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let output = File::create(log)?;
        let command = command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Processor time that it has used, its own and the kernel's for it.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The name in the second field may hold blanks; after its closing bracket utime and stime are the 12th and 13th.
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let ticks = |index: usize| {
            fields.get(index).and_then(|text| text.parse::<f64>().ok()).context("/proc/PID/stat is too short")
        };
        Ok(Duration::from_secs_f64((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND))
    }

    pub(crate) fn rss_kib(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("/proc/PID/status has no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }

    /// An error with its last words, when it has ended.
    pub(crate) fn still_runs(&mut self) -> anyhow::Result<()> {
        if self.child.try_wait()?.is_none() {
            return Ok(());
        }
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        bail!("a server ended by itself; the end of its log:\n{}", lines[lines.len().saturating_sub(10)..].join("\n"))
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        // It may be gone already; then there is nobody to tell and nothing to wait for.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}
