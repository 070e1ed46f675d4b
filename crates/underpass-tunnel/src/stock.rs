//! The server half's stock of data connections: so many stand ready at the client half, each that is used is replaced at once, and
//! more are made when clients wait.
//!
//! A client that waits is served by the next connection, whatever it was made for, and each that is used makes another: as long as
//! at least one is to stand ready, nobody waits for ever, even when a wish gets lost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::candidates::Candidates;
use crate::chain;
use crate::handshake::{HandshakeError, Kind, Prover};
use crate::messages::DataSeen;

/// Enough for what comes and goes, before anybody asks for more.
pub(crate) const LEAST_STREAMS: usize = 4;
/// Idle connections cost both ends a descriptor each.
const MOST: usize = 64;
const MOST_DIALLING: usize = 64;
const PARTS: usize = 4;
/// How long a grown stock stays so when nobody waits any more.
const SHRINK_AFTER: Duration = Duration::from_secs(10);
/// For the connection alone; the handshake has its own.
const CONNECT_DEADLINE: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error("{0} cannot be connected to")]
    Connect(SocketAddr, #[source] std::io::Error),
    #[error("{address} did not answer within {} s", CONNECT_DEADLINE.as_secs())]
    Late { address: SocketAddr },
    #[error("{0} is not the other half of this pair")]
    Handshake(SocketAddr, #[source] HandshakeError),
    #[error("no address is known")]
    Nowhere,
}

pub(crate) struct Keeper {
    kind: Kind,
    prover: Prover,
    candidates: Candidates,
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    /// What the stock never falls below.
    least: usize,
    /// How many are to stand ready.
    target: usize,
    idle: usize,
    dialling: usize,
    /// Clients that waited when we last heard, and have not been served since.
    waiting: usize,
    /// In a row.
    failures: u32,
    paused_until: Option<Instant>,
    trouble: Option<String>,
}

impl Keeper {
    pub(crate) fn new(kind: Kind, prover: Prover, addresses: Vec<SocketAddr>, least: usize) -> Arc<Self> {
        let state = State {
            least,
            target: least,
            idle: 0,
            dialling: 0,
            waiting: 0,
            failures: 0,
            paused_until: None,
            trouble: None,
        };
        let candidates = Candidates::new(addresses);
        Arc::new(Self { kind, prover, candidates, state: Mutex::new(state), changed: Notify::new() })
    }

    /// Keeps the stock until told to stop. `give` gets each connection when it stands ready.
    pub(crate) async fn run(
        self: Arc<Self>,
        give: impl Fn(TcpStream, SocketAddr) + Clone + Send + Sync + 'static,
        stop: CancellationToken,
    ) {
        loop {
            let pause = self.state.lock().pause(Instant::now());
            let due = if pause.is_zero() { self.state.lock().begin() } else { 0 };
            for _ in 0..due {
                let (keeper, give, stop) = (self.clone(), give.clone(), stop.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        () = keeper.add(give) => {}
                        () = stop.cancelled() => {}
                    }
                });
            }
            tokio::select! {
                () = self.changed.notified() => {}
                () = sleep(pause), if !pause.is_zero() => {}
                () = sleep(SHRINK_AFTER), if pause.is_zero() => self.state.lock().shrink(),
                () = stop.cancelled() => return,
            }
        }
    }

    /// So many clients wait.
    pub(crate) fn want(&self, count: usize) {
        let mut state = self.state.lock();
        state.waiting = count;
        state.target = (state.target * 2).clamp(state.least.max(1), MOST);
        drop(state);
        self.changed.notify_one();
    }

    /// One that stood ready is used, or gone.
    pub(crate) fn taken(&self) {
        let mut state = self.state.lock();
        state.idle = state.idle.saturating_sub(1);
        self.wake_if_worth_it(state);
    }

    pub(crate) fn set_least(&self, least: usize) {
        let mut state = self.state.lock();
        state.least = least;
        state.target = state.target.max(least);
        drop(state);
        self.changed.notify_one();
    }

    pub(crate) fn seen(&self) -> DataSeen {
        let state = self.state.lock();
        let carries = match self.kind {
            Kind::Streams => "streams",
            Kind::Datagrams => "datagrams",
        };
        let State { idle, dialling, .. } = *state;
        DataSeen { carries: carries.to_owned(), idle, dialling, trouble: state.trouble.clone() }
    }

    async fn add(&self, give: impl Fn(TcpStream, SocketAddr)) {
        match self.dial().await {
            Ok((stream, address)) => {
                let mut state = self.state.lock();
                state.succeeded();
                self.wake_if_worth_it(state);
                give(stream, address);
            }
            Err(error) => {
                let reason = chain(&error);
                debug!(kind = ?self.kind, reason, "no data connection");
                self.state.lock().failed(reason, Instant::now());
                self.changed.notify_one();
            }
        }
    }

    /// Not under the lock: those who carry traffic take it too.
    fn wake_if_worth_it(&self, state: MutexGuard<'_, State>) {
        let is_worth_it = state.is_worth_it();
        drop(state);
        if is_worth_it {
            self.changed.notify_one();
        }
    }

    async fn dial(&self) -> Result<(TcpStream, SocketAddr), DialError> {
        let mut error = DialError::Nowhere;
        for (place, address) in self.candidates.in_order(Instant::now()) {
            match self.dial_one(address).await {
                Ok(stream) => {
                    self.candidates.answered(place);
                    return Ok((stream, address));
                }
                Err(failed) => error = failed,
            }
        }
        Err(error)
    }

    async fn dial_one(&self, address: SocketAddr) -> Result<TcpStream, DialError> {
        let connected = timeout(CONNECT_DEADLINE, TcpStream::connect(address)).await;
        let connected = connected.map_err(|_| DialError::Late { address })?;
        let mut stream = connected.map_err(|source| DialError::Connect(address, source))?;
        // The relay decides what is sent together.
        let _ = stream.set_nodelay(true);
        // A data connection may stand ready for days.
        let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
        let shaken = self.prover.dialled(&mut stream, self.kind).await;
        shaken.map_err(|source| DialError::Handshake(address, source))?;
        Ok(stream)
    }
}

impl State {
    /// How many to dial now; they count as being dialled.
    fn begin(&mut self) -> usize {
        let due = self.due();
        self.dialling += due;
        due
    }

    fn due(&self) -> usize {
        let wanted = self.waiting + self.target.saturating_sub(self.idle);
        wanted.min(MOST_DIALLING).saturating_sub(self.dialling)
    }

    /// A large stock is filled up by a part of it at a time: both halves then wake up once for several connections. Whoever waits does
    /// not wait for that.
    fn is_worth_it(&self) -> bool {
        let due = self.due();
        due > 0 && (self.waiting > 0 || due >= self.target / PARTS)
    }

    fn succeeded(&mut self) {
        self.dialling -= 1;
        self.idle += 1;
        self.waiting = self.waiting.saturating_sub(1);
        self.failures = 0;
        self.paused_until = None;
        self.trouble = None;
    }

    fn failed(&mut self, reason: String, now: Instant) {
        self.dialling -= 1;
        self.trouble = Some(reason);
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE);
        // Those that began together fail together, and count once.
        if self.paused_until.is_none_or(|until| until <= now) {
            self.failures += 1;
            self.paused_until = Some(now + pause);
        }
    }

    fn pause(&self, now: Instant) -> Duration {
        self.paused_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    fn shrink(&mut self) {
        self.waiting = 0;
        self.target = (self.target / 2).max(self.least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(target: usize) -> State {
        let paused_until = None;
        State { least: target, target, idle: 0, dialling: 0, waiting: 0, failures: 0, paused_until, trouble: None }
    }

    #[test]
    fn what_is_under_way_is_not_begun_again() {
        let mut state = state(4);
        assert_eq!(state.begin(), 4);
        assert_eq!(state.begin(), 0);
        state.succeeded();
        assert_eq!(state.begin(), 0);
        state.idle -= 1;
        assert_eq!(state.begin(), 1, "what was used is replaced");
        state.waiting = 10;
        assert_eq!(state.begin(), 10, "who waits is dialled for on top");
        state.waiting = 1000;
        assert_eq!(state.begin(), MOST_DIALLING - 14);
    }

    #[test]
    fn a_large_stock_is_filled_up_by_parts_and_nobody_waits_for_that() {
        let mut state = State { idle: 64, ..state(64) };
        assert!(!state.is_worth_it());
        state.idle = 49;
        assert!(!state.is_worth_it());
        state.waiting = 1;
        assert!(state.is_worth_it());
        state.waiting = 0;
        state.idle = 48;
        assert!(state.is_worth_it());
        assert_eq!(state.begin(), 16);
        assert!(!state.is_worth_it(), "they are under way");
        let small = State { idle: 3, ..self::state(4) };
        assert!(small.is_worth_it(), "of a small stock each is replaced at once");
    }

    #[test]
    fn pauses_grow_with_failures_and_end_with_a_success() {
        let (mut state, now) = (state(1), Instant::now());
        let mut pauses = Vec::new();
        let mut at = now;
        for _ in 0..10 {
            state.begin();
            state.failed("refused".into(), at);
            pauses.push(state.pause(at).as_millis());
            at += state.pause(at);
            assert_eq!(state.pause(at), Duration::ZERO);
        }
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1280, 2000, 2000, 2000]);
        state.begin();
        state.succeeded();
        assert_eq!((state.failures, state.pause(at), state.trouble), (0, Duration::ZERO, None));
    }
}
