//! Whether the server of a tunnel is there, found out with as little noise as possible: the kernel lists what listens on this machine,
//! streams tell how their dialling ended, and only where neither says anything a connection is made and closed again at once. It is
//! made again from time to time while it fails, when there is nobody whom it could disturb.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::timeout;
use underpass_relay::LiveRoute;

use super::listening::Listening;
use crate::messages::ServerSeen;

const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// Between two connections that fail, however often somebody asks.
const PAUSE: Duration = Duration::from_secs(4);

#[derive(Default)]
pub(super) struct Reach(Mutex<State>);

#[derive(Default)]
struct State {
    belief: Belief,
    /// By streams, when they were last counted.
    dials: u64,
    checking: bool,
    failed_at: Option<Instant>,
}

#[derive(Default)]
enum Belief {
    #[default]
    Unknown,
    /// The kernel lists it. That is asked again every time.
    Listens,
    /// It accepted a connection.
    Answered,
    /// One that fails although it listens is overloaded or hangs: only a connection shows that it is better.
    Failed { why: String, although_it_listens: bool },
}

impl Reach {
    /// What is known by now; what is not is about to be found out.
    pub(super) fn look(self: &Arc<Self>, route: &LiveRoute, listening: &Listening) -> ServerSeen {
        let listens = route.endpoints.iter().any(|endpoint| listening.has(endpoint.address));
        let mut state = self.0.lock();
        state.hear(route, listens);
        if state.wants_check() {
            state.checking = true;
            let addresses = route.endpoints.iter().map(|endpoint| endpoint.address).collect();
            tokio::spawn(Arc::clone(self).check(addresses));
        }
        state.seen()
    }

    async fn check(self: Arc<Self>, addresses: Vec<SocketAddr>) {
        let outcome = connect_to_any(&addresses).await;
        let mut state = self.0.lock();
        state.checking = false;
        state.failed_at = outcome.is_err().then(Instant::now);
        // A stream that was quicker knows as much.
        let although_it_listens = match state.belief {
            Belief::Unknown => false,
            Belief::Failed { although_it_listens, .. } => although_it_listens,
            Belief::Listens | Belief::Answered => return,
        };
        state.belief = match outcome {
            Ok(()) => Belief::Answered,
            Err(why) => Belief::Failed { why, although_it_listens },
        };
    }
}

impl State {
    fn hear(&mut self, route: &LiveRoute, listens: bool) {
        let dials = |endpoint: &underpass_relay::Endpoint| {
            endpoint.total.load(Relaxed) + endpoint.connect_failures.load(Relaxed)
        };
        let dials = route.endpoints.iter().map(|endpoint| dials(endpoint)).sum();
        if dials != self.dials {
            self.dials = dials;
            self.belief = told_by_streams(route, listens);
            return;
        }
        match self.belief {
            Belief::Failed { although_it_listens: true, .. } => {}
            _ if listens => self.belief = Belief::Listens,
            Belief::Listens => self.belief = Belief::Unknown,
            Belief::Unknown | Belief::Answered | Belief::Failed { .. } => {}
        }
    }

    fn wants_check(&self) -> bool {
        let due = match self.belief {
            Belief::Unknown => true,
            Belief::Failed { .. } => self.failed_at.is_none_or(|at| at.elapsed() >= PAUSE),
            Belief::Listens | Belief::Answered => false,
        };
        due && !self.checking
    }

    fn seen(&self) -> ServerSeen {
        match &self.belief {
            Belief::Unknown => ServerSeen::Unknown,
            Belief::Listens | Belief::Answered => ServerSeen::Reachable,
            Belief::Failed { why, .. } => ServerSeen::Unreachable(why.clone()),
        }
    }
}

fn told_by_streams(route: &LiveRoute, although_it_listens: bool) -> Belief {
    let errors = || route.endpoints.iter().filter_map(|endpoint| Some((endpoint.address, endpoint.last_error()?)));
    let answered =
        |endpoint: &underpass_relay::Endpoint| endpoint.total.load(Relaxed) > 0 && endpoint.last_error().is_none();
    match errors().next() {
        _ if route.endpoints.iter().any(|endpoint| answered(endpoint)) => Belief::Answered,
        Some((address, error)) => Belief::Failed { why: in_words(address, &error), although_it_listens },
        None => Belief::Unknown,
    }
}

async fn connect_to_any(addresses: &[SocketAddr]) -> Result<(), String> {
    let mut whys = Vec::new();
    for address in addresses {
        match timeout(CONNECT_DEADLINE, TcpStream::connect(address)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => whys.push(in_words(*address, &error)),
            Err(_) => whys.push(in_words(*address, &io::ErrorKind::TimedOut.into())),
        }
    }
    Err(whys.into_iter().next().unwrap_or_else(|| "it has no address".to_owned()))
}

/// The same words for the same trouble, whoever met it.
pub(super) fn in_words(address: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("{address}: connection refused, nothing listens there"),
        io::ErrorKind::TimedOut => format!("{address}: no answer"),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => format!("{address}: no route to it"),
        _ => format!("{address}: {}", without_number(error)),
    }
}

/// Who reads the words has no use for the system's number of the error.
fn without_number(error: &io::Error) -> String {
    let words = error.to_string();
    words.split_once(" (os error ").map_or(words.clone(), |(words, _)| words.to_lowercase())
}
