//! SIGINT and SIGTERM, counted: the first asks for an orderly end, the second for an end.

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
            wishes: Wishes::default(),
        })
    }

    /// The next signal that is a wish of its own.
    pub(crate) async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
            }
            if self.wishes.is_new(Instant::now()) {
                return;
            }
        }
    }
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
    fn an_echo_is_not_a_second_wish_and_does_not_put_it_off() {
        let (mut wishes, start) = (Wishes::default(), Instant::now());
        let counted: Vec<u64> = [0, 3, 900, 1000, 1001, 1999, 2000]
            .into_iter()
            .filter(|&after| wishes.is_new(start + Duration::from_millis(after)))
            .collect();
        assert_eq!(counted, [0, 1000, 2000]);
    }
}
