//! The end of another process, waited for without asking again and again.

use std::future::pending;
use std::os::fd::OwnedFd;

use anyhow::Context;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::unix::AsyncFd;

/// A process that may end; or none, and that never ends.
pub(crate) struct Watched(Option<Life>);

enum Life {
    Over,
    Running(AsyncFd<OwnedFd>),
}

impl Watched {
    pub(crate) fn nobody() -> Self {
        Self(None)
    }

    /// The process of this number that began then. One that is gone has ended, whoever has its number now.
    pub(crate) fn process(pid: u32, start: u64) -> anyhow::Result<Self> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let number = number.with_context(|| format!("{pid} is no process id"))?;
        let life = match pidfd_open(number, PidfdFlags::NONBLOCK) {
            // Asked after the descriptor was opened: it stands for whoever has the number now.
            Ok(descriptor) if start_of(pid) == Some(start) => {
                #[expect(
                    deprecated,
                    reason = "its successor is unsafe; what that asks of its caller, an OwnedFd promises"
                )]
                let descriptor = AsyncFd::new(descriptor)?;
                Life::Running(descriptor)
            }
            Ok(_) | Err(Errno::SRCH) => Life::Over,
            Err(errno) => return Err(errno).with_context(|| format!("cannot watch process {pid}")),
        };
        Ok(Self(Some(life)))
    }

    pub(crate) async fn ended(&self) {
        match &self.0 {
            None => pending().await,
            Some(Life::Over) => {}
            // An error here means that nobody watches any more; then it is better to end than to stay for ever.
            Some(Life::Running(descriptor)) => drop(descriptor.readable().await),
        }
    }
}

/// In ticks since boot.
fn start_of(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in parentheses, and may contain anything.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn the_end_of_a_process_is_told_and_another_one_of_its_number_is_not_taken_for_it() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let start = start_of(child.id()).unwrap();
        let watched = Watched::process(child.id(), start).unwrap();
        assert!(timeout(Duration::from_millis(20), watched.ended()).await.is_err());
        assert!(timeout(Duration::from_millis(20), Watched::nobody().ended()).await.is_err());
        Watched::process(child.id(), start + 1).unwrap().ended().await;
        child.kill().unwrap();
        watched.ended().await;
        child.wait().unwrap();
        Watched::process(child.id(), start).unwrap().ended().await;
    }
}
