//! The process that cleans up when this one is killed: `underpass monitor`, beside the controllers for as long as they work.
//!
//! It holds the other end of a pipe. A word through it says that the work has ended in order, and that what stands may stand; a pipe
//! that ends without it says that nobody is left. Should it end while there is work, another is started: whoever ends it may end this
//! process next.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use tracing::{info, warn};

use crate::backoff::Backoff;
use crate::pairs::{Process, start_of};

/// What is said at an orderly end.
pub const WORD: &str = "done";

/// One that lived as long as this did not fail for a reason that lasts: the next one comes as soon as after the first failure.
const LONG_LIFE: Duration = Duration::from_secs(60);

const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How to start it: the program, and what it needs to find the engine and the folder again.
#[derive(Debug, Clone)]
pub struct WatchdogCommand {
    pub arguments: Vec<String>,
}

/// One that runs, or the wish for one.
pub(crate) struct Watchdog<'a> {
    program: &'a Path,
    command: &'a WatchdogCommand,
    backoff: Backoff,
    running: Option<Running>,
}

struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    began: Instant,
}

impl<'a> Watchdog<'a> {
    /// Without one the work goes on: what a crash leaves is then found at the next start.
    pub(crate) fn start(program: &'a Path, command: &'a WatchdogCommand, backoff: Backoff) -> Self {
        let mut watchdog = Self { program, command, backoff, running: None };
        watchdog.try_start();
        watchdog
    }

    /// Sees to it that there is one, for as long as this is waited for.
    pub(crate) async fn keep(mut self) {
        let mut troubles = 0;
        loop {
            let lived = match self.running.as_mut() {
                Some(running) => running.ended().await,
                None => Duration::ZERO,
            };
            self.running = None;
            troubles = if lived < LONG_LIFE { troubles + 1 } else { 1 };
            tokio::time::sleep(self.backoff.wait(troubles)).await;
            if self.try_start() {
                info!("another watchdog was started");
            }
        }
    }

    fn try_start(&mut self) -> bool {
        match Running::start(self.program, self.command) {
            Ok(running) => self.running = Some(running),
            Err(error) => {
                warn!(%error, "no watchdog: what is left when this process is killed stays until the next start");
            }
        }
        self.running.is_some()
    }
}

impl Running {
    fn start(program: &Path, command: &WatchdogCommand) -> io::Result<Self> {
        use std::os::unix::process::CommandExt;
        let pid = std::process::id();
        let start = start_of(pid).ok_or_else(|| io::Error::other("/proc does not show this process"))?;
        let mut monitor = Command::new(program);
        monitor.arg0("underpass").arg("monitor").args(["--pid", &pid.to_string(), "--start", &start.to_string()]);
        monitor.args(&command.arguments);
        // A group of its own: the Ctrl-C that ends the controllers is not for it.
        monitor.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        let mut child = monitor.spawn()?;
        let stdin = child.stdin.take();
        Ok(Self { child, stdin, began: Instant::now() })
    }

    /// Until it has ended, which it should not; how long it lived.
    async fn ended(&mut self) -> Duration {
        let pid = self.child.id();
        let status = loop {
            match self.child.try_wait() {
                Ok(None) => self.seems_ended().await,
                Ok(Some(status)) => break status.to_string(),
                Err(error) => break error.to_string(),
            }
        };
        warn!(
            pid,
            status, "the watchdog has ended: until there is another, nobody cleans up when this process is killed"
        );
        self.began.elapsed()
    }

    /// Returns when it is worth another look. Nobody but us can reap it: until then its number is its own.
    async fn seems_ended(&self) {
        let pid = self.child.id();
        match start_of(pid).map(|start| Process::find(pid, start)) {
            Some(Ok(Some(process))) => process.ended().await,
            // It ends just now, or there is no descriptor to be had.
            _ => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut stdin) = self.stdin.take() {
            // One that has ended by itself needs no word.
            let _ = stdin.write_all(WORD.as_bytes());
        }
        // It ends within milliseconds of the word.
        let _ = self.child.wait();
    }
}
