//! The process that cleans up when this one is killed: `underpass monitor`, beside the controllers for as long as they work.
//!
//! It holds the other end of a pipe. A word through it says that the work has ended in order, and that what stands may stand; a pipe
//! that ends without it says that nobody is left.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use tracing::warn;

use crate::pairs::start_of;

/// What is said at an orderly end.
pub const WORD: &str = "done";

/// How to start it: the program, and what it needs to find the engine and the folder again.
#[derive(Debug, Clone)]
pub struct WatchdogCommand {
    pub arguments: Vec<String>,
}

pub(crate) struct Watchdog {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Watchdog {
    /// Without one the work goes on: what a crash leaves is then found at the next start.
    pub(crate) fn start(program: &Path, command: &WatchdogCommand) -> Option<Self> {
        match Self::try_start(program, command) {
            Ok(watchdog) => Some(watchdog),
            Err(error) => {
                warn!(%error, "no watchdog: what is left when this process is killed stays until the next start");
                None
            }
        }
    }

    fn try_start(program: &Path, command: &WatchdogCommand) -> io::Result<Self> {
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
        Ok(Self { child, stdin })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some(mut stdin) = self.stdin.take() {
            // One that has ended by itself needs no word.
            let _ = stdin.write_all(WORD.as_bytes());
        }
        // It ends within milliseconds of the word.
        let _ = self.child.wait();
    }
}
