//! SIGINT, SIGTERM and SIGHUP, counted: the first asks for an orderly end, the second for an end.
//!
//! SIGHUP says that the terminal is gone, and with it the person who could press Ctrl-C. Under `nohup` it is ignored, and stays so.

use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// Signals this close to the first are the same wish. `timeout`, `sudo` and shells signal the process and then its whole group, some
/// milliseconds apart on a busy machine; a person who sees the progress and wants it to stop needs longer than a second.
const ONE_WISH: Duration = Duration::from_secs(1);

pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Option<Signal>,
    wishes: Wishes,
}

/// When the last signal came that counted.
#[derive(Debug, Default)]
struct Wishes {
    last: Option<Instant>,
}

impl Signals {
    /// From here on the signals no longer end the process by themselves.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: if is_hangup_ignored() { None } else { Some(listen(SignalKind::hangup())?) },
            wishes: Wishes::default(),
        })
    }

    /// The next signal that is a wish of its own.
    pub(crate) async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
                Some(_) = recv(self.hangup.as_mut()) => {}
            }
            if self.wishes.is_new(Instant::now()) {
                return;
            }
        }
    }
}

async fn recv(signal: Option<&mut Signal>) -> Option<()> {
    signal?.recv().await
}

fn is_hangup_ignored() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores(&status, SignalKind::hangup()))
}

/// Whether the mask in the text of a process's status has the bit of this signal.
fn ignores(status: &str, kind: SignalKind) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask & (1 << (kind.as_raw_value() - 1)) != 0
}

impl Wishes {
    fn is_new(&mut self, now: Instant) -> bool {
        let new = self.last.is_none_or(|last| now.duration_since(last) >= ONE_WISH);
        if new {
            self.last = Some(now);
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_parent_ignored_is_read_from_the_status() {
        assert!(ignores("Name:\tup\nSigIgn:\t0000000000001001\n", SignalKind::hangup()));
        assert!(!ignores("SigIgn:\t0000000000001000\n", SignalKind::hangup()));
        assert!(!ignores("", SignalKind::hangup()));
    }

    #[test]
    fn an_echo_is_not_a_second_wish_and_does_not_put_it_off() {
        let (mut wishes, start) = (Wishes::default(), Instant::now());
        let counted: Vec<u64> = [0, 3, 900, 1000, 1001, 1999, 2000]
            .into_iter()
            .filter(|&after| wishes.is_new(start + Duration::from_millis(after)))
            .collect();
        assert_eq!(counted, [0, 1000, 2000]);
    }
}
