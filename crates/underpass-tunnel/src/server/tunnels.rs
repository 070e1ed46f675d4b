//! The tunnels that the server half was asked for, and what the relay is told of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::timeout;
use tracing::{info, warn};
use underpass_relay::{LiveRoute, Relay};
use underpass_tables::{Expects, Listener, RelayTable, Route, RouteId, Rules, Transport};

use super::Lookup;
use super::flows::Flows;
use super::link::{ClientLink, DEADLINE};
use super::listening::Listening;
use super::orders::Orders;
use super::reach::Reach;
use crate::chain;
use crate::control::{AskError, Link};
use crate::messages::{
    ClientRequest, Listen, MOST_TUNNELS, Number, PAGE, PROBE, Prepare, Prepared, Protocol, ServerSeen, TunnelSeen,
};

pub(super) const LISTENER: &str = "data";

/// A server that does not answer at all costs its own streams no more than that.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const LOOKUP_DEADLINE: Duration = Duration::from_secs(5);
/// Streams of a tunnel that is gone end by themselves.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

pub(super) struct Tunnels {
    relay: Arc<Relay>,
    flows: Arc<Flows>,
    /// Where probes end.
    echo: SocketAddr,
    lookup: Lookup,
    orders: Orders,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    generation: u64,
    tunnels: BTreeMap<u32, Tunnel>,
    /// Deleted while the client half could not be told.
    leftovers: BTreeSet<u32>,
}

#[derive(Clone)]
struct Tunnel {
    asked: Prepare,
    endpoints: Vec<SocketAddr>,
    prepared: Prepared,
    trouble: Option<String>,
    reach: Arc<Reach>,
}

impl Tunnels {
    pub(super) async fn start(
        relay: Arc<Relay>,
        flows: Arc<Flows>,
        echo: SocketAddr,
        lookup: Lookup,
    ) -> Result<Self, String> {
        let tunnels = Self { relay, flows, echo, lookup, orders: Orders::default(), state: Mutex::default() };
        tunnels.apply(&mut *tunnels.state.lock().await).await?;
        Ok(tunnels)
    }

    /// First the way to the server, then the port for clients: no client comes too early.
    pub(super) async fn prepare(&self, asked: Prepare, client: &ClientLink) -> Result<Prepared, String> {
        asked.check()?;
        let order = self.orders.prepare(&asked);
        let endpoints = resolve(self.lookup, &asked.server_address, asked.server_port).await?;
        let link = client.get().await?;
        let mut state = self.state.lock().await;
        if !order.is_latest(&asked) {
            return Err(order.overtaken());
        }
        let before = state.tunnels.get(&asked.number).cloned();
        if let Some(tunnel) = &before
            && tunnel.asked == asked
            && tunnel.endpoints == endpoints
            && tunnel.trouble.is_none()
        {
            return Ok(tunnel.prepared.clone());
        }
        if before.is_none() && state.tunnels.len() >= MOST_TUNNELS {
            return Err(format!("there are {MOST_TUNNELS} tunnels already; delete one first"));
        }
        let number = asked.number;
        let port = before.filter(|before| before.asked.protocol == asked.protocol).map_or(0, |b| b.prepared.port);
        let prepared = Prepared { addresses: Vec::new(), port };
        state.leftovers.remove(&number);
        state.tunnels.insert(number, Tunnel { asked, endpoints, prepared, trouble: None, reach: Arc::default() });
        self.apply(&mut state).await?;
        match state.listen(number, &link).await {
            Ok(prepared) => {
                info!(tunnel = number, port = prepared.port, "prepared");
                // Whoever asks next wants to know of its server, too.
                self.page(&state, number, 1);
                Ok(prepared)
            }
            Err(error) => {
                state.tunnels.remove(&number);
                self.apply(&mut state).await?;
                // Then it is told when it is back.
                let _ = state.forget(number, &link).await;
                Err(said(&error))
            }
        }
    }

    pub(super) async fn delete(&self, number: u32, client: &ClientLink) -> Result<(), String> {
        let order = self.orders.delete(number);
        let mut state = self.state.lock().await;
        if state.tunnels.get(&number).is_some_and(|tunnel| order.is_latest(&tunnel.asked)) {
            return Err(order.overtaken());
        }
        if state.tunnels.remove(&number).is_some() {
            self.apply(&mut state).await?;
            info!(tunnel = number, "deleted");
        }
        state.leftovers.insert(number);
        drop(state);
        let link = client.get().await.map_err(|reason| {
            format!("tunnel {number} leads nowhere any more, but its port is freed only when the client half is back: {reason}")
        })?;
        let mut state = self.state.lock().await;
        if state.leftovers.contains(&number) {
            state.forget(number, &link).await.map_err(|error| said(&error))?;
        }
        Ok(())
    }

    /// A control connection is there: the client half may be another one, or have missed something. An error is why it has to be made again:
    /// one that hangs is not asked for every tunnel, while everybody waits.
    pub(super) async fn connected(&self, link: &Link, connections: u32) -> Result<(), String> {
        let limit = ClientRequest::Limit(Number { number: connections });
        link.ask::<()>(&limit, DEADLINE).await.map_err(|error| said(&error))?;
        let mut state = self.state.lock().await;
        for number in state.leftovers.clone() {
            if let Err(error) = state.forget(number, link).await
                && error.is_silence()
            {
                return Err(said(&error));
            }
        }
        let numbers: Vec<u32> = state.tunnels.keys().copied().collect();
        for number in numbers {
            match state.listen(number, link).await {
                Ok(_) => {}
                Err(error) if error.is_silence() => return Err(said(&error)),
                Err(error) => warn!(tunnel = number, error = said(&error), "clients cannot reach it"),
            }
        }
        Ok(())
    }

    /// A page, and the number with which to go on.
    pub(super) async fn list(&self, from: u32) -> (Vec<TunnelSeen>, Option<u32>) {
        let state = self.state.lock().await;
        let next = state.tunnels.range(from..).nth(PAGE).map(|(number, _)| *number);
        (self.page(&state, from, PAGE), next)
    }

    /// So many tunnels from this number on. What is not known of their servers is begun to be found out.
    fn page(&self, state: &State, from: u32, length: usize) -> Vec<TunnelSeen> {
        let (live, listening) = (self.relay.live(), Listening::now());
        let route = |number| {
            let name = name(number);
            live.routes.iter().find(|live| live.route.name == name)
        };
        let tunnels = state.tunnels.range(from..).take(length);
        tunnels.map(|(number, tunnel)| self.seen(tunnel, route(*number), &listening)).collect()
    }

    fn seen(&self, tunnel: &Tunnel, route: Option<&Arc<LiveRoute>>, listening: &Listening) -> TunnelSeen {
        let mut seen = TunnelSeen {
            asked: tunnel.asked.clone(),
            prepared: tunnel.prepared.clone(),
            active: 0,
            total: 0,
            bytes_sent: 0,
            bytes_received: 0,
            dial_failures: 0,
            server: ServerSeen::Unknown,
            trouble: tunnel.trouble.clone(),
        };
        if let Some(live) = route {
            seen.active = live.stats.active.load(Relaxed);
            seen.total = live.stats.total.load(Relaxed);
            seen.bytes_sent = live.stats.bytes_sent.load(Relaxed);
            seen.bytes_received = live.stats.bytes_received.load(Relaxed);
            seen.dial_failures = live.stats.connect_failures.load(Relaxed);
            seen.server = tunnel.reach.look(live, listening);
        }
        if let Some(flows) = self.flows.seen(tunnel.asked.number) {
            seen.active = flows.active.load(Relaxed);
            seen.total = flows.total.load(Relaxed);
            seen.bytes_sent = flows.bytes_sent.load(Relaxed);
            seen.bytes_received = flows.bytes_received.load(Relaxed);
            seen.dial_failures = flows.failures.load(Relaxed);
            seen.server = flows.server();
        }
        seen
    }

    async fn apply(&self, state: &mut State) -> Result<(), String> {
        state.generation += 1;
        self.lead_datagrams(state);
        let (relay, table) = (self.relay.clone(), state.table(self.echo));
        let applied = tokio::task::spawn_blocking(move || relay.apply(table)).await;
        let applied = applied.map_err(|error| error.to_string())?;
        applied.map(drop).map_err(|error| format!("the relay cannot be told: {}", chain(&error)))
    }

    fn lead_datagrams(&self, state: &State) {
        let datagrams = |tunnel: &&Tunnel| tunnel.asked.protocol == Protocol::Udp;
        let wanted: BTreeMap<u32, SocketAddr> = state
            .tunnels
            .values()
            .filter(datagrams)
            .filter_map(|tunnel| Some((tunnel.asked.number, *tunnel.endpoints.first()?)))
            .collect();
        self.flows.keep(&wanted);
    }
}

impl State {
    fn table(&self, echo: SocketAddr) -> RelayTable {
        let mut table = RelayTable { generation: self.generation, drain: NEVER, ..RelayTable::default() };
        let mut rules = Rules::default();
        rules.tunnels.insert(PROBE, RouteId(0));
        table.routes.push(Arc::new(Route::new("probe", "the other half", vec![echo])));
        for (number, tunnel) in self.tunnels.iter().filter(|(_, tunnel)| tunnel.asked.protocol == Protocol::Tcp) {
            rules.tunnels.insert(*number, RouteId(table.routes.len()));
            let Prepare { server_address, server_port, .. } = &tunnel.asked;
            table.routes.push(Arc::new(Route {
                connect_timeout: CONNECT_TIMEOUT,
                ..Route::new(name(*number), format!("{server_address}:{server_port}"), tunnel.endpoints.clone())
            }));
        }
        table.listeners.push(Listener {
            name: LISTENER.to_owned(),
            address: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            transport: Transport::Stream,
            proxy_header: false,
            expects: Expects::StreamHeader,
            rules,
        });
        table
    }

    /// Has the client half listen for a tunnel, where it did before if that is possible.
    async fn listen(&mut self, number: u32, link: &Link) -> Result<Prepared, AskError> {
        let gone = || AskError::Refused(format!("there is no tunnel {number}"));
        let tunnel = self.tunnels.get_mut(&number).ok_or_else(gone)?;
        let Prepare { protocol, client_port, or_any, max_streams, .. } = tunnel.asked;
        let before = Some(tunnel.prepared.port).filter(|port| *port != 0);
        let or_any = or_any || client_port.is_none();
        // Clients know the one that it has.
        let port = if or_any { before.or(client_port) } else { client_port };
        let listen = Listen { number, protocol, port, or_any, max_streams };
        let answer = link.ask::<Prepared>(&ClientRequest::Listen(listen), DEADLINE).await;
        match answer {
            Ok(prepared) => {
                tunnel.prepared = prepared.clone();
                tunnel.trouble = None;
                Ok(prepared)
            }
            Err(error) => {
                tunnel.trouble = Some(said(&error));
                Err(error)
            }
        }
    }

    /// Has the client half forget a tunnel, now or when it is back.
    async fn forget(&mut self, number: u32, link: &Link) -> Result<(), AskError> {
        self.leftovers.insert(number);
        link.ask::<()>(&ClientRequest::Delete(Number { number }), DEADLINE).await?;
        self.leftovers.remove(&number);
        Ok(())
    }
}

fn said(error: &AskError) -> String {
    match error {
        AskError::Refused(reason) => reason.clone(),
        error => format!("the client half did not obey: {}", chain(error)),
    }
}

async fn resolve(lookup: Lookup, host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let found = timeout(LOOKUP_DEADLINE, lookup(host.to_owned(), port)).await;
    let found =
        found.map_err(|_| format!("serverAddress: {host} was not resolved in {} s", LOOKUP_DEADLINE.as_secs()))?;
    let mut found = found.map_err(|error| format!("serverAddress: {host} cannot be resolved: {error}"))?;
    // What is listed twice would be dialled twice.
    found.sort();
    found.dedup();
    if found.is_empty() {
        return Err(format!("serverAddress: {host} has no address"));
    }
    Ok(found)
}

/// Sorted like the numbers, as tables are.
fn name(number: u32) -> String {
    format!("tunnel-{number:010}")
}
