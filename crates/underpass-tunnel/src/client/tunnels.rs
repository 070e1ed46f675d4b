//! The tunnels that the client half listens for. They outlive control connections and server halves: a port that clients know does not
//! change because somebody else was started again.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::sync::Mutex;
use tracing::info;
use underpass_relay::{Relay, RelayError};
use underpass_tables::{Expects, Limits, Listener, RelayTable, Route, RouteId, Rules, Transport};

use super::flows::{Flows, Ground};
use crate::addresses;
use crate::capacity::{self, Places};
use crate::messages::{Listen, MOST_TUNNELS, PROBE, Prepared, Protocol};

/// How long a client waits for a data connection before it is sent away.
const PATIENCE: Duration = Duration::from_secs(10);
/// Streams of a tunnel that is gone end by themselves.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
pub(super) const PROBE_LISTENER: &str = "probe";

#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    #[error("there are {MOST_TUNNELS} tunnels already; delete one first")]
    TooMany,
    #[error("port {port} is taken by tunnel {by}; choose another, or leave it out for any")]
    TakenByTunnel { port: u16, by: u32 },
    #[error("{0}")]
    Refused(String),
    #[error("UDP port {port} cannot be listened on: {source}")]
    Datagrams { port: u16, source: io::Error },
    #[error("the relay cannot be told: {0}")]
    Relay(#[from] RelayError),
}

pub(super) struct Tunnels {
    relay: Arc<Relay>,
    /// Where all tunnels listen.
    ip: IpAddr,
    /// Of datagrams.
    ground: Ground,
    places: Arc<Places>,
    /// Streams and flows that this half can carry.
    connections: u32,
    state: Mutex<State>,
}

struct State {
    generation: u64,
    /// Streams that both halves can carry, of all tunnels together.
    streams: u32,
    tunnels: BTreeMap<u32, Tunnel>,
    /// Where the pair examines itself.
    probe: SocketAddr,
}

struct Tunnel {
    protocol: Protocol,
    port: u16,
    max_streams: Option<u32>,
    /// Of a tunnel for datagrams.
    flows: Option<Flows>,
}

impl Tunnels {
    pub(super) async fn start(
        relay: Arc<Relay>,
        ip: IpAddr,
        ground: Ground,
        connections: u32,
    ) -> Result<Self, ListenError> {
        let probe = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let streams = capacity::streams(connections);
        let state = Mutex::new(State { generation: 0, streams, tunnels: BTreeMap::new(), probe });
        let places = Arc::new(Places::new(capacity::flows(connections)));
        let tunnels = Self { relay, ip, ground, places, connections, state };
        let mut state = tunnels.state.lock().await;
        tunnels.apply(&mut state).await?;
        drop(state);
        Ok(tunnels)
    }

    /// Listens for a tunnel. What is there already and fits stays as it is.
    pub(super) async fn listen(&self, asked: &Listen) -> Result<Prepared, ListenError> {
        let mut state = self.state.lock().await;
        let there = state.tunnels.get(&asked.number);
        if there.is_some_and(|tunnel| tunnel.fits(asked)) {
            return Ok(prepared(&state.tunnels[&asked.number]));
        }
        if there.is_none() && state.tunnels.len() >= MOST_TUNNELS {
            return Err(ListenError::TooMany);
        }
        // What replaces a tunnel gets its port, if it does not want another.
        let before = there.filter(|tunnel| tunnel.protocol == asked.protocol).map(|tunnel| tunnel.port);
        let port = asked.port.or(before);
        self.remove(&mut state, asked.number).await?;
        match self.open(&mut state, asked, port).await {
            Err(_) if port.is_some() && asked.or_any => self.open(&mut state, asked, None).await?,
            opened => opened?,
        }
        let prepared = prepared(&state.tunnels[&asked.number]);
        info!(tunnel = asked.number, port = prepared.port, protocol = ?asked.protocol, "listening");
        Ok(prepared)
    }

    /// The other half has limits of its own. Those who are there stay.
    pub(super) async fn limit(&self, connections: u32) -> Result<(), ListenError> {
        let connections = connections.min(self.connections);
        self.places.set_most(capacity::flows(connections));
        let mut state = self.state.lock().await;
        state.streams = capacity::streams(connections);
        self.apply(&mut state).await
    }

    /// Frees the port. Streams go on; flows of datagrams end, since they answer from that port.
    pub(super) async fn delete(&self, number: u32) -> Result<(), ListenError> {
        let mut state = self.state.lock().await;
        self.remove(&mut state, number).await
    }

    pub(super) async fn numbers(&self) -> Vec<u32> {
        self.state.lock().await.tunnels.keys().copied().collect()
    }

    pub(super) async fn probe(&self) -> SocketAddr {
        self.state.lock().await.probe
    }

    /// Ends everything.
    pub(super) async fn stop(&self) {
        let mut state = self.state.lock().await;
        for (_, tunnel) in std::mem::take(&mut state.tunnels) {
            if let Some(flows) = tunnel.flows {
                flows.stop().await;
            }
        }
        drop(state);
        let relay = self.relay.clone();
        // It waits for threads.
        let _ = tokio::task::spawn_blocking(move || relay.drain(Duration::ZERO)).await;
    }

    async fn remove(&self, state: &mut State, number: u32) -> Result<(), ListenError> {
        let Some(tunnel) = state.tunnels.remove(&number) else { return Ok(()) };
        info!(tunnel = number, port = tunnel.port, "no longer listening");
        match tunnel.flows {
            Some(flows) => flows.stop().await,
            None => self.apply(state).await?,
        }
        Ok(())
    }

    async fn open(&self, state: &mut State, asked: &Listen, port: Option<u16>) -> Result<(), ListenError> {
        let Listen { number, protocol, max_streams, .. } = *asked;
        let same = |tunnel: &Tunnel| tunnel.protocol == protocol && Some(tunnel.port) == port;
        if let Some((by, tunnel)) = state.tunnels.iter().find(|(_, tunnel)| same(tunnel)) {
            return Err(ListenError::TakenByTunnel { port: tunnel.port, by: *by });
        }
        let port = port.unwrap_or(0);
        let tunnel = match protocol {
            Protocol::Tcp => Tunnel { protocol, port, max_streams, flows: None },
            Protocol::Udp => self.open_datagrams(number, port, max_streams).await?,
        };
        state.tunnels.insert(number, tunnel);
        if protocol == Protocol::Tcp
            && let Err(error) = self.apply(state).await
        {
            state.tunnels.remove(&number);
            return Err(error);
        }
        Ok(())
    }

    async fn open_datagrams(&self, number: u32, port: u16, max_streams: Option<u32>) -> Result<Tunnel, ListenError> {
        let failed = |source| ListenError::Datagrams { port, source };
        let socket = UdpSocket::bind((self.ip, port)).await.map_err(failed)?;
        let port = socket.local_addr().map_err(failed)?.port();
        let flows = Flows::start(number, socket, max_streams, self.places.clone(), self.ground.clone());
        Ok(Tunnel { protocol: Protocol::Udp, port, max_streams, flows: Some(flows) })
    }

    /// Tells the relay, and learns the ports that it was left to choose. An error is about the one listener that was new.
    async fn apply(&self, state: &mut State) -> Result<(), ListenError> {
        state.generation += 1;
        let (relay, table) = (self.relay.clone(), state.table(self.ip));
        let applied = tokio::task::spawn_blocking(move || {
            let rejects = relay.apply(table)?;
            let live = relay.live();
            let ports = live.listeners.iter().map(|listener| (listener.name.clone(), listener.address));
            Ok::<_, RelayError>((rejects, ports.collect::<BTreeMap<_, _>>()))
        });
        let (rejects, addresses) = match applied.await {
            Ok(applied) => applied?,
            Err(error) => return Err(ListenError::Refused(error.to_string())),
        };
        if let Some(address) = addresses.get(PROBE_LISTENER) {
            state.probe = *address;
        }
        for (number, tunnel) in &mut state.tunnels {
            if let Some(address) = addresses.get(&name(*number)) {
                tunnel.port = address.port();
            }
        }
        rejects.into_iter().next().map_or(Ok(()), |reject| Err(ListenError::Refused(reject.reason)))
    }
}

impl State {
    fn table(&self, ip: IpAddr) -> RelayTable {
        let limits = Limits { connections: Some(self.streams), ..Limits::default() };
        let mut table = RelayTable { generation: self.generation, limits, drain: NEVER, ..RelayTable::default() };
        add(&mut table, PROBE_LISTENER.to_owned(), self.probe, PROBE, None);
        for (number, tunnel) in self.tunnels.iter().filter(|(_, tunnel)| tunnel.flows.is_none()) {
            let most = tunnel.max_streams.unwrap_or(capacity::of_a_tunnel(self.streams));
            add(&mut table, name(*number), SocketAddr::new(ip, tunnel.port), *number, Some(most));
        }
        table
    }
}

impl Tunnel {
    fn fits(&self, asked: &Listen) -> bool {
        let port = asked.port.is_none_or(|port| port == self.port);
        // Another port will do as well, and clients know this one already.
        (port || asked.or_any) && (self.protocol, self.max_streams) == (asked.protocol, asked.max_streams)
    }
}

fn prepared(tunnel: &Tunnel) -> Prepared {
    Prepared { addresses: addresses::reachable(), port: tunnel.port }
}

fn add(table: &mut RelayTable, name: String, address: SocketAddr, number: u32, max_streams: Option<u32>) {
    let route = RouteId(table.routes.len());
    let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    table.routes.push(Arc::new(Route {
        stock: Some(number),
        max_connections: max_streams,
        connect_timeout: PATIENCE,
        ..Route::new(name.clone(), "the other half", vec![nowhere])
    }));
    let mut rules = Rules::default();
    rules.plain = Some(route);
    let (transport, expects) = (Transport::Stream, Expects::Nothing);
    table.listeners.push(Listener { name, address, transport, proxy_header: false, expects, rules });
}

/// Sorted like the numbers, as tables are.
fn name(number: u32) -> String {
    format!("tunnel-{number:010}")
}
