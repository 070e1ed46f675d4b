//! A table at work: its routes with their counters and the health of their endpoints. What has the same name in the next table keeps
//! them.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use rustix::io::Errno;
use underpass_tables::{Balance, Endpoint as Wanted, Listener, RelayTable, Route, Transport};

use crate::stats::{ListenerStats, RouteStats};

/// An endpoint that was not near is taken for far for so many connections: on a busy machine, near ones are late now and then.
const FAR_FOR: u32 = 100;
/// After so many failures in a row an endpoint is left out for a while.
const EJECT_AFTER: u32 = 5;
/// For how long, times how often it was left out already.
const EJECT_MS: u64 = 30_000;
const EJECT_AT_MOST_MS: u64 = 300_000;

/// A table, with what its routes and listeners remember. Workers hold one each and swap it between two events.
pub struct Live {
    pub table: RelayTable,
    /// As in the table.
    pub routes: Vec<Arc<LiveRoute>>,
    /// As in the table.
    pub listeners: Vec<Arc<LiveListener>>,
    /// Of earlier tables, with connections that have not ended yet: a route that comes back has them again.
    leaving: Vec<Arc<LiveRoute>>,
    /// The same in every table of a relay.
    pub(crate) turned: Option<Told>,
}

/// Somebody who is told that something happened.
pub(crate) type Told = Arc<dyn Fn() + Send + Sync>;

pub struct LiveListener {
    pub name: String,
    pub address: SocketAddr,
    pub transport: Transport,
    pub stats: ListenerStats,
    /// Where it stands in the newest table; a hint for those who still hold an older one.
    place: AtomicUsize,
}

pub struct LiveRoute {
    pub route: Arc<Route>,
    pub stats: Arc<RouteStats>,
    /// As in the route.
    pub endpoints: Vec<Arc<Endpoint>>,
    /// Which of them get new connections.
    pub(crate) open: Vec<u16>,
    turn: AtomicU32,
    /// A newer table does not have it, or means another target by it: its connections end after the drain time. Shared by all
    /// generations that go on as each other, so that connections of the oldest hear of it too.
    pub(crate) removed: Arc<AtomicBool>,
    /// Told when an endpoint that answered does not any more, or the other way round.
    turned: Option<Told>,
}

/// One place to dial, with what is known of it. States are what was seen, not what was hoped.
pub struct Endpoint {
    pub address: SocketAddr,
    pub active: AtomicU32,
    pub total: AtomicU64,
    pub connect_failures: AtomicU64,
    /// What active checks say; true as long as none said otherwise.
    pub passes_checks: AtomicBool,
    /// Whether a check has been made at all.
    pub checked: AtomicBool,
    /// For how many more connections it is not expected to have answered before we can ask.
    far: AtomicU32,
    failures_in_row: AtomicU32,
    /// The number of the error with which the last of them failed; 0: none has since it was last connected to.
    last_error: AtomicI32,
    ejections: AtomicU32,
    ejected_until_ms: AtomicU64,
}

impl Live {
    /// Of a relay that was not told anything yet.
    pub(crate) fn empty(turned: Option<Told>) -> Self {
        Self { turned, ..Self::new(RelayTable::default(), None) }
    }

    /// Puts a table to work; `before` lends what still applies. Routes that end are marked.
    pub fn new(table: RelayTable, before: Option<&Live>) -> Self {
        let old = Predecessors::of(before);
        let turned = before.and_then(|live| live.turned.clone());
        let live = |route| LiveRoute::new(route, old.of_route(route), turned.clone());
        let routes: Vec<_> = table.routes.iter().map(live).collect();
        let leaving = old.leave(&routes);
        let listeners = table.listeners.iter().map(|listener| {
            let same =
                |old: &&Arc<LiveListener>| old.transport == listener.transport && old.address == listener.address;
            before.and_then(|live| live.listeners.iter().find(same)).cloned().unwrap_or_else(|| {
                Arc::new(LiveListener {
                    name: listener.name.clone(),
                    address: listener.address,
                    transport: listener.transport,
                    stats: ListenerStats::default(),
                    place: AtomicUsize::new(0),
                })
            })
        });
        let listeners: Vec<Arc<LiveListener>> = listeners.collect();
        for (place, listener) in listeners.iter().enumerate() {
            listener.place.store(place, Relaxed);
        }
        Self { listeners, routes, table, leaving, turned }
    }
}

impl Live {
    /// What this table says about a listener that may come from an earlier one; None when it is gone.
    pub(crate) fn listener(&self, live: &Arc<LiveListener>) -> Option<&Listener> {
        let is_it = |own: &Arc<LiveListener>| Arc::ptr_eq(own, live);
        let hint = live.place.load(Relaxed);
        let hinted = self.listeners.get(hint).filter(|own| is_it(own)).map(|_| hint);
        let index = hinted.or_else(|| self.listeners.iter().position(is_it))?;
        Some(&self.table.listeners[index])
    }
}

/// What the routes of a new table may go on from.
#[derive(Default)]
struct Predecessors<'a> {
    in_force: HashMap<&'a str, &'a Arc<LiveRoute>>,
    leaving: HashMap<(&'a str, &'a str), &'a Arc<LiveRoute>>,
}

impl<'a> Predecessors<'a> {
    fn of(before: Option<&'a Live>) -> Self {
        let Some(before) = before else { return Self::default() };
        Self {
            in_force: before.routes.iter().map(|live| (live.route.name.as_str(), live)).collect(),
            leaving: before.leaving.iter().map(|live| (live.route.identity(), live)).collect(),
        }
    }

    fn of_route(&self, route: &Route) -> Option<&'a Arc<LiveRoute>> {
        let in_force = self.in_force.get(route.name.as_str());
        let leaving = self.leaving.get(&route.identity()).filter(|live| live.route.goes_on_as(route));
        in_force.filter(|live| live.route.goes_on_as(route)).or(leaving).or(in_force).copied()
    }

    /// Marks what the new routes do not go on from, and unmarks what they do; what still has connections is given back.
    fn leave(&self, routes: &[Arc<LiveRoute>]) -> Vec<Arc<LiveRoute>> {
        let new: HashMap<&str, &Arc<LiveRoute>> = routes.iter().map(|live| (live.route.name.as_str(), live)).collect();
        let mut leaving = Vec::new();
        for live in self.in_force.values().chain(self.leaving.values()) {
            let stays = new.get(live.route.name.as_str()).is_some_and(|newer| live.route.goes_on_as(&newer.route));
            live.removed.store(!stays, Relaxed);
            if !stays && live.stats.active.load(Relaxed) > 0 {
                leaving.push(Arc::clone(live));
            }
        }
        leaving
    }
}

impl LiveRoute {
    fn new(route: &Arc<Route>, before: Option<&Arc<Self>>, turned: Option<Told>) -> Arc<Self> {
        if let Some(before) = before.filter(|before| before.route == *route) {
            return before.clone();
        }
        let old: HashMap<SocketAddr, &Arc<Endpoint>> =
            before.iter().flat_map(|before| &before.endpoints).map(|endpoint| (endpoint.address, endpoint)).collect();
        let endpoint = |wanted: &Wanted| {
            let new = || Arc::new(Endpoint::new(wanted.address));
            old.get(&wanted.address).map_or_else(new, |endpoint| (*endpoint).clone())
        };
        Arc::new(Self {
            endpoints: route.endpoints.iter().map(endpoint).collect(),
            open: (0..u16::MAX).zip(&route.endpoints).filter(|(_, it)| !it.draining).map(|(index, _)| index).collect(),
            stats: before.map_or_else(Arc::default, |before| before.stats.clone()),
            route: route.clone(),
            turn: AtomicU32::new(0),
            removed: before
                .filter(|before| before.route.goes_on_as(route))
                .map_or_else(Arc::default, |before| before.removed.clone()),
            turned,
        })
    }

    /// The endpoint to try next among those that `tried` does not have: usable ones first, in turn or by load. When none is usable, all
    /// are tried: a wrong verdict must not make an outage of its own.
    pub fn pick(&self, now_ms: u64, tried: &[u16]) -> Option<u16> {
        if let [only] = self.open[..] {
            return if tried.is_empty() { Some(only) } else { None };
        }
        let (before, from) = self.open.split_at(self.turn.fetch_add(1, Relaxed) as usize % self.open.len().max(1));
        let in_turn = from.iter().chain(before).copied();
        let untried = in_turn.filter(|index| !tried.contains(index));
        let usable = untried.clone().filter(|index| self.endpoints[usize::from(*index)].usable(now_ms));
        self.by_balance(usable).or_else(|| self.by_balance(untried))
    }

    pub(crate) fn endpoint_connected(&self, index: u16) {
        let endpoint = &self.endpoints[usize::from(index)];
        let turns = endpoint.last_error().is_some();
        let was_left_out = endpoint.connected();
        self.tell_if(turns);
        if was_left_out {
            tracing::info!(backend = self.route.name, endpoint = %endpoint.address, "an endpoint that was left out answers again");
        }
    }

    pub(crate) fn endpoint_failed(&self, index: u16, errno: Errno, now_ms: u64) {
        let endpoint = &self.endpoints[usize::from(index)];
        let turns = endpoint.last_error().is_none();
        let out_ms = endpoint.failed(errno, now_ms);
        self.tell_if(turns);
        if let Some(out_ms) = out_ms {
            let (backend, seconds) = (&self.route.name, out_ms / 1000);
            tracing::warn!(backend, endpoint = %endpoint.address, %errno, seconds, "an endpoint that failed again and again is left out");
        }
    }

    fn tell_if(&self, turns: bool) {
        if let Some(turned) = self.turned.as_ref().filter(|_| turns) {
            turned();
        }
    }

    fn by_balance(&self, mut candidates: impl Iterator<Item = u16>) -> Option<u16> {
        match self.route.balance {
            Balance::RoundRobin => candidates.next(),
            Balance::LeastConnections => {
                candidates.min_by_key(|index| self.endpoints[usize::from(*index)].active.load(Relaxed))
            }
        }
    }
}

impl Endpoint {
    fn new(address: SocketAddr) -> Self {
        Self {
            address,
            active: AtomicU32::new(0),
            total: AtomicU64::new(0),
            connect_failures: AtomicU64::new(0),
            passes_checks: AtomicBool::new(true),
            checked: AtomicBool::new(false),
            far: AtomicU32::new(0),
            failures_in_row: AtomicU32::new(0),
            last_error: AtomicI32::new(0),
            ejections: AtomicU32::new(0),
            ejected_until_ms: AtomicU64::new(0),
        }
    }

    pub fn usable(&self, now_ms: u64) -> bool {
        self.passes_checks.load(Relaxed) && !self.ejected(now_ms)
    }

    pub fn ejected(&self, now_ms: u64) -> bool {
        self.ejected_until_ms.load(Relaxed) > now_ms
    }

    /// Whether it may be on this machine, so that a connection is made by the time that it was asked for.
    pub(crate) fn seems_near(&self) -> bool {
        match self.far.load(Relaxed) {
            0 => true,
            far => {
                self.far.store(far - 1, Relaxed);
                false
            }
        }
    }

    pub(crate) fn is_not_near(&self) {
        self.far.store(FAR_FOR, Relaxed);
    }

    /// Whether it had been left out before.
    fn connected(&self) -> bool {
        self.total.fetch_add(1, Relaxed);
        self.active.fetch_add(1, Relaxed);
        if self.failures_in_row.load(Relaxed) == 0 {
            return false;
        }
        self.failures_in_row.store(0, Relaxed);
        self.last_error.store(0, Relaxed);
        self.ejections.swap(0, Relaxed) != 0
    }

    pub(crate) fn released(&self) {
        self.active.fetch_sub(1, Relaxed);
    }

    /// Why it could not be dialled, if that was so the last time.
    pub fn last_error(&self) -> Option<io::Error> {
        Some(self.last_error.load(Relaxed)).filter(|error| *error != 0).map(io::Error::from_raw_os_error)
    }

    /// For how long it is left out from now on, if this was one failure too many.
    fn failed(&self, errno: Errno, now_ms: u64) -> Option<u64> {
        self.connect_failures.fetch_add(1, Relaxed);
        self.last_error.store(errno.raw_os_error(), Relaxed);
        let in_row = self.failures_in_row.fetch_add(1, Relaxed) + 1;
        if in_row < EJECT_AFTER || self.ejected(now_ms) {
            return None;
        }
        let times = u64::from(self.ejections.fetch_add(1, Relaxed) + 1);
        let out_ms = (EJECT_MS * times).min(EJECT_AT_MOST_MS);
        self.ejected_until_ms.store(now_ms + out_ms, Relaxed);
        Some(out_ms)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;

    fn route(ports: &[u16], balance: Balance) -> Arc<Route> {
        let endpoints = ports.iter().map(|port| SocketAddr::from(([127, 0, 0, 1], *port))).collect();
        Arc::new(Route { balance, ..Route::new("r", "ns/svc:443", endpoints) })
    }

    fn live(ports: &[u16], balance: Balance, before: Option<&Live>) -> Live {
        Live::new(RelayTable { routes: vec![route(ports, balance)], ..RelayTable::default() }, before)
    }

    #[test]
    fn endpoints_take_turns_and_none_is_tried_twice() {
        let live = live(&[1, 2, 3], Balance::RoundRobin, None);
        let route = &live.routes[0];
        let firsts: Vec<_> = (0..6).map(|_| route.pick(0, &[]).unwrap()).collect();
        assert_eq!(firsts, [0, 1, 2, 0, 1, 2]);
        let mut tried = Vec::new();
        while let Some(index) = route.pick(0, &tried) {
            tried.push(index);
        }
        tried.sort_unstable();
        assert_eq!(tried, [0, 1, 2]);
    }

    #[test]
    fn the_least_loaded_is_picked() {
        let live = live(&[1, 2, 3], Balance::LeastConnections, None);
        let route = &live.routes[0];
        route.endpoints[0].connected();
        route.endpoints[2].connected();
        assert_eq!(route.pick(0, &[]), Some(1));
    }

    #[test]
    fn an_endpoint_that_fails_is_left_out_for_a_while_but_not_when_it_is_the_last() {
        let live = live(&[1, 2], Balance::RoundRobin, None);
        let route = &live.routes[0];
        let out: Vec<_> =
            (0..EJECT_AFTER).filter_map(|_| route.endpoints[0].failed(Errno::CONNREFUSED, 1000)).collect();
        assert_eq!(out, [EJECT_MS]);
        assert!((0..4).all(|_| route.pick(1001, &[]) == Some(1)));
        assert!((0..4).any(|_| route.pick(1001 + EJECT_MS, &[]) == Some(0)));
        assert_eq!(route.pick(1001, &[1]), Some(0));
        assert!(route.endpoints[0].connected(), "it is back");
        assert!(!route.endpoints[0].connected());
    }

    #[test]
    fn a_draining_endpoint_keeps_what_it_has_and_is_not_picked() {
        let first = live(&[1, 2, 3], Balance::RoundRobin, None);
        first.routes[0].endpoints[1].connected();
        let mut route = (*first.routes[0].route).clone();
        route.endpoints[1].draining = true;
        let second = Live::new(RelayTable { routes: vec![Arc::new(route)], ..RelayTable::default() }, Some(&first));
        let route = &second.routes[0];
        assert_eq!((0..4).map(|_| route.pick(0, &[]).unwrap()).collect::<Vec<_>>(), [0, 2, 0, 2]);
        assert_eq!(route.pick(0, &[0, 2]), None);
        assert_eq!(route.endpoints[1].active.load(Relaxed), 1);
        assert!(!first.routes[0].removed.load(Relaxed), "its connections are not ended");
    }

    #[test]
    fn the_next_table_keeps_what_stays_and_marks_what_goes() {
        let first = live(&[1, 2], Balance::RoundRobin, None);
        first.routes[0].endpoints[1].connected();
        let second = live(&[2, 3], Balance::RoundRobin, Some(&first));
        assert!(!first.routes[0].removed.load(Relaxed));
        assert_eq!(second.routes[0].endpoints[0].active.load(Relaxed), 1);
        assert!(Arc::ptr_eq(&first.routes[0].stats, &second.routes[0].stats));
        let _third = Live::new(RelayTable::default(), Some(&second));
        assert!(second.routes[0].removed.load(Relaxed));
        assert!(first.routes[0].removed.load(Relaxed), "connections of the first table are meant too");
    }
}
