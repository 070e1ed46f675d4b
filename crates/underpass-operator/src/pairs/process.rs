//! Processes by what they are, not by a number that comes back: pid and start time together, and signals through a pidfd.

use std::os::fd::OwnedFd;
use std::time::Duration;
use std::{fs, io};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// How long a process may take for an orderly end.
const ORDERLY_END: Duration = Duration::from_secs(5);
/// How long the kernel may take for one that is not.
const FORCED_END: Duration = Duration::from_secs(5);

/// A process that lives, held by a descriptor that no other process can come to stand for.
pub struct Process {
    descriptor: AsyncFd<OwnedFd>,
}

/// When a process began, in ticks since boot; `None` when there is none, or only what its parent has not yet asked for.
pub fn start_of(pid: u32) -> Option<u64> {
    start_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The 22nd field. The second is the program's name in parentheses, which may hold anything, further parentheses included.
fn start_in(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let ended = matches!(fields.next()?, "Z" | "X");
    if ended { None } else { fields.nth(18)?.trim().parse().ok() }
}

/// The processes that carry this variable, with its value: the label of things that have none. Only those of our own user can be seen.
pub(crate) fn marked(variable: &str) -> Vec<(Identity, String)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let mut variables = environment.split(|byte| *byte == 0).filter_map(|one| std::str::from_utf8(one).ok());
        let value = variables.find_map(|one| one.strip_prefix(variable)?.strip_prefix('='))?.to_owned();
        Some((Identity { pid, start: start_of(pid)? }, value))
    })
    .collect()
}

/// Which process, for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) pid: u32,
    pub(crate) start: u64,
}

impl Identity {
    /// Ends it, if it lives.
    pub(crate) async fn stop(self) -> io::Result<()> {
        match Process::find(self.pid, self.start)? {
            Some(process) => process.stop().await,
            None => Ok(()),
        }
    }
}

impl Process {
    /// The process of this pid that began then, if it lives.
    pub fn find(pid: u32, start: u64) -> io::Result<Option<Self>> {
        let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
        let descriptor = match pidfd_open(number, PidfdFlags::NONBLOCK) {
            Ok(descriptor) => descriptor,
            Err(Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Asked after the descriptor was opened: whoever has the number now is who the descriptor stands for.
        if start_of(pid) != Some(start) {
            return Ok(None);
        }
        #[expect(deprecated, reason = "its successor is unsafe; what that asks of its caller, an OwnedFd promises")]
        let descriptor = AsyncFd::with_interest(descriptor, Interest::READABLE)?;
        Ok(Some(Self { descriptor }))
    }

    /// Until it has ended.
    pub async fn ended(&self) {
        // An error means that nobody waits any more; then nothing is known but that somebody should look.
        drop(self.descriptor.readable().await);
    }

    pub fn ask_to_end(&self) -> io::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Asks it to end, then makes it.
    pub async fn stop(&self) -> io::Result<()> {
        self.ask_to_end()?;
        if tokio::time::timeout(ORDERLY_END, self.ended()).await.is_ok() {
            return Ok(());
        }
        self.signal(Signal::KILL)?;
        let forced = tokio::time::timeout(FORCED_END, self.ended()).await;
        forced.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "it does not end, although it was killed"))
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(self.descriptor.get_ref(), signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_program_may_be_called_anything() {
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        let stat = |state: &str| format!("7 (a b) 9) {state} {}\n", fields.join(" "));
        assert_eq!(start_in(&stat("S")), Some(22));
        assert_eq!(start_in(&stat("Z")), None);
        assert_eq!(start_in("7 (x) R 1"), None);
    }

    #[tokio::test]
    async fn another_life_of_the_same_number_is_another_process() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let start = start_of(child.id()).unwrap();
        assert!(Process::find(child.id(), start + 1).unwrap().is_none());
        let process = Process::find(child.id(), start).unwrap().unwrap();
        process.stop().await.unwrap();
        assert_eq!(start_of(child.id()), None, "what nobody has asked for yet does not live");
        child.wait().unwrap();
        assert!(Process::find(child.id(), start).unwrap().is_none());
        process.stop().await.unwrap();
    }

    #[tokio::test]
    async fn a_marked_process_is_found() {
        let value = format!("v-{}", std::process::id());
        let mut child = Command::new("sleep").arg("1000").env("UNDERPASS_TEST_MARK", &value).spawn().unwrap();
        let find = || marked("UNDERPASS_TEST_MARK").into_iter().find(|(_, found)| *found == value);
        // Between its fork and its exec a child still has its parent's environment.
        while find().is_none() {
            tokio::task::yield_now().await;
        }
        let (identity, _) = find().unwrap();
        assert_eq!(identity.pid, child.id());
        identity.stop().await.unwrap();
        child.wait().unwrap();
        assert_eq!(find(), None);
    }

    #[tokio::test]
    async fn one_that_does_not_listen_is_made_to_end() {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; echo; exec sleep 1000"]).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = [0];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        let process = Process::find(child.id(), start_of(child.id()).unwrap()).unwrap().unwrap();
        process.stop().await.unwrap();
        assert!(!child.wait().unwrap().success());
    }
}
