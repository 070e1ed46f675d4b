//! A server's processes, as /proc shows them. They end with their value.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

/// What Linux counts processor time in, whatever the kernel itself uses.
const TICKS_PER_SECOND: f64 = 100.0;

pub(crate) struct Spawned(Child);

impl Spawned {
    /// Starts a program; what it says goes to a file beside its data.
    pub(crate) fn start(command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let log = File::create(log)?;
        let command = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(Self(command.spawn().with_context(|| format!("cannot start {command:?}"))?))
    }

    /// Processor time that it has used, its own and the kernel's for it.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        // The name in the second field may hold blanks; after its closing bracket utime and stime are the 12th and 13th.
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let ticks = |index: usize| {
            fields.get(index).and_then(|text| text.parse::<f64>().ok()).context("/proc/PID/stat is too short")
        };
        Ok(Duration::from_secs_f64((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND))
    }

    pub(crate) fn rss_kib(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("/proc/PID/status has no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }

    pub(crate) fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.0.try_wait()?.is_some())
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        // It may be gone already; then there is nobody to tell and nothing to wait for.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}
