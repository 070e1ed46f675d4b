//! Who was turned away, counted by reason. A stranger who tries ten thousand times makes ten thousand counts and a few log lines.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::warn;

use crate::handshake::HandshakeError;
use crate::messages::RefusalCounts;

const LOG_EVERY: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Why {
    WrongKey,
    Late,
    Foreign,
    Left,
    Crowded,
    Tls,
    Full,
}

#[derive(Default)]
pub(crate) struct Refusals(Mutex<State>);

#[derive(Default)]
struct State {
    counts: RefusalCounts,
    logged: Option<Instant>,
}

impl Refusals {
    pub(crate) fn note(&self, why: Why, source: IpAddr) {
        let mut state = self.0.lock();
        *state.counts.of(why) += 1;
        if state.logged.is_some_and(|logged| logged.elapsed() < LOG_EVERY) {
            return;
        }
        state.logged = Some(Instant::now());
        let counts = &state.counts;
        warn!(%source, so_far = ?counts, "a connection was refused: {}", why.in_words());
    }

    pub(crate) fn counts(&self) -> RefusalCounts {
        self.0.lock().counts.clone()
    }
}

impl Why {
    fn in_words(self) -> &'static str {
        match self {
            Self::WrongKey => "it does not know the key of this pair",
            Self::Late => "it took too long for the handshake",
            Self::Foreign => "it speaks something else",
            Self::Left => "it left in the middle of the handshake",
            Self::Crowded => "too many were in the middle of the handshake, and this one had waited longest",
            Self::Full => "as many streams or flows are open as the tunnel, or the whole pair, may have",
            Self::Tls => "it does not speak TLS, or has no certificate of this pair",
        }
    }
}

impl RefusalCounts {
    fn of(&mut self, why: Why) -> &mut u64 {
        match why {
            Why::WrongKey => &mut self.wrong_key,
            Why::Late => &mut self.late,
            Why::Foreign => &mut self.foreign,
            Why::Left => &mut self.left,
            Why::Crowded => &mut self.crowded,
            Why::Tls => &mut self.tls,
            Why::Full => &mut self.full,
        }
    }
}

impl From<&HandshakeError> for Why {
    fn from(error: &HandshakeError) -> Self {
        match error {
            HandshakeError::Left(_) => Self::Left,
            HandshakeError::Late => Self::Late,
            HandshakeError::Foreign => Self::Foreign,
            HandshakeError::WrongKey => Self::WrongKey,
        }
    }
}
