//! Datagrams: whoever sends one to a listener gets a flow, a socket of its own towards one endpoint, until both have been silent for a
//! while. Same route and same record as a stream.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::{self, Errno};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, ipproto, recv, send, socket_with,
};
use underpass_tables::{Decision, Facts, Opening};

use crate::connect::is_ours;
use crate::context::Context;
use crate::datagram;
use crate::live::LiveListener;
use crate::record::{Carried, End, Record};
use crate::slab::{Key, Slab};
use crate::token::Token;
use crate::wheel::Wheel;

/// The largest datagram that there is.
const DATAGRAM_BYTES: usize = 64 * 1024;
/// Datagrams taken in a row before others get their turn.
const TURN: usize = 64;
/// After so much silence a flow is over, unless its route says otherwise: what NATs give it too.
const IDLE_MS: u64 = 60_000;
/// How many flows a worker has at most; each costs a descriptor.
const MOST: usize = 16 * 1024;

/// The flows of one worker.
pub(crate) struct Flows {
    flows: Slab<Flow>,
    by_client: HashMap<Ends, Key>,
    wheel: Wheel,
    /// Made with the first listener for datagrams: most relays have none.
    buffer: Box<[u8]>,
    room: Vec<u8>,
}

/// Between whom a flow is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Ends {
    /// The number of the listener's socket.
    door: usize,
    client: SocketAddr,
    /// The address of ours that it asked, where there may be several.
    asked: Option<IpAddr>,
}

struct Flow {
    ends: Ends,
    upstream: OwnedFd,
    record: Record,
    carried: Carried,
    moved_ms: u64,
}

impl Flows {
    pub(crate) fn new() -> Self {
        Self {
            flows: Slab::new(),
            by_client: HashMap::new(),
            wheel: Wheel::new(),
            buffer: Box::default(),
            room: datagram::room(),
        }
    }

    pub(crate) fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        self.wheel.wait_ms(now_ms)
    }

    /// Datagrams have come in at a listener.
    pub(crate) fn on_clients(
        &mut self,
        door: usize,
        listener: &Arc<LiveListener>,
        socket: &OwnedFd,
        ctx: &mut Context,
    ) {
        let mut buffer = std::mem::take(&mut self.buffer);
        if buffer.is_empty() {
            buffer = vec![0; DATAGRAM_BYTES].into();
        }
        for _ in 0..TURN {
            let received = match datagram::receive(socket, &mut buffer, &mut self.room) {
                Ok(received) => received,
                Err(Errno::INTR) => continue,
                Err(_) => break,
            };
            let ends = received.client.map(|client| Ends { door, client, asked: received.asked });
            if let Some(key) = ends.and_then(|ends| self.of_client(ends, listener, ctx)) {
                self.send_up(key, &buffer[..received.length], ctx);
            }
        }
        self.buffer = buffer;
    }

    /// An endpoint has answered; `socket` is the listener's, so that answers come from where questions went.
    pub(crate) fn on_upstream(&mut self, key: Key, socket: impl Fn(usize) -> Option<Arc<OwnedFd>>, ctx: &mut Context) {
        for _ in 0..TURN {
            let Some(flow) = self.flows.get_mut(key) else { return };
            match recv(&flow.upstream, &mut *self.buffer, RecvFlags::empty()) {
                Ok((length, _)) => {
                    flow.moved_ms = ctx.now_ms;
                    flow.carried.down += length as u64;
                    if let Some(socket) = socket(flow.ends.door) {
                        // A datagram that cannot be sent is lost, as datagrams may be.
                        let _ = datagram::answer(&socket, &self.buffer[..length], flow.ends.client, flow.ends.asked);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // Nobody listens there any more: the client's next datagram starts anew, elsewhere.
                Err(_) => return self.end(key, End::UpstreamReset, ctx),
            }
        }
    }

    pub(crate) fn expire(&mut self, ctx: &mut Context) {
        let mut expired = Vec::new();
        self.wheel.expire(ctx.now_ms, &mut expired);
        for key in expired.into_iter().filter_map(|index| self.flows.key_at(index)).collect::<Vec<_>>() {
            let Some(flow) = self.flows.get_mut(key) else { continue };
            match flow.moved_ms + flow.idle_ms() {
                over if over <= ctx.now_ms => self.end(key, End::IdleTimeout, ctx),
                later => self.wheel.set(key.index, later),
            }
        }
    }

    /// Ends the flows that the new table leads elsewhere, or nowhere: there is no conversation to finish, a client may never fall silent,
    /// and of an endpoint that is gone nothing is heard.
    pub(crate) fn on_table(&mut self, ctx: &mut Context) {
        for key in self.flows.keys() {
            if self.flows.get_mut(key).is_some_and(|flow| !flow.goes_on(ctx)) {
                self.end(key, End::Drained, ctx);
            }
        }
    }

    pub(crate) fn end_all(&mut self, ctx: &mut Context) {
        for key in self.flows.keys() {
            self.end(key, End::Drained, ctx);
        }
    }

    fn of_client(&mut self, ends: Ends, listener: &Arc<LiveListener>, ctx: &mut Context) -> Option<Key> {
        if let Some(key) = self.by_client.get(&ends) {
            return Some(*key);
        }
        let record = Record::begin(listener, ends.client, ctx.now_ms);
        ctx.shared.connections.fetch_add(1, Relaxed);
        match self.start(ends, record, ctx) {
            Ok(key) => Some(key),
            Err((record, end)) => {
                ctx.shared.connections.fetch_sub(1, Relaxed);
                record.finish(end, Carried::default(), ctx.now_ms, ctx.log.as_mut());
                None
            }
        }
    }

    fn start(&mut self, ends: Ends, mut record: Record, ctx: &Context) -> Result<Key, (Record, End)> {
        if self.flows.len() >= MOST || !Context::below(&ctx.shared.connections, ctx.limits().connections) {
            return Err((record, End::TooManyConnections));
        }
        if !ctx.within_rate(ends.client.ip()) {
            return Err((record, End::TooManyFromSource));
        }
        let (route, rule) = match decide(record.listener(), ends.client, ctx) {
            Some(Decision::Connect { route, rule }) => (ctx.live.routes[route.0].clone(), rule),
            Some(Decision::Refuse(refusal)) => return Err((record, refusal.into())),
            None => return Err((record, End::Drained)),
        };
        if route.route.max_connections.is_some_and(|most| route.stats.active.load(Relaxed) >= most) {
            return Err((record, End::RouteFull));
        }
        record.decided(route.clone(), rule, ctx.now_ms);
        let Some(endpoint) = route.pick(ctx.now_ms, &[]) else { return Err((record, End::NoEndpoints)) };
        let address = route.endpoints[usize::from(endpoint)].address;
        let key = self.flows.next_key();
        let watched = open(address).and_then(|fd| ctx.watch_datagrams(&fd, Token::Flow(key)).map(|()| fd));
        let upstream = match watched {
            Ok(upstream) => upstream,
            Err(errno) if is_ours(errno) => return Err((record, End::OutOfResources)),
            Err(_) => return Err((record, End::ConnectFailed)),
        };
        record.connected(endpoint, ctx.now_ms, ctx.now_ms);
        let flow = Flow { ends, upstream, record, carried: Carried::default(), moved_ms: ctx.now_ms };
        self.wheel.set(key.index, ctx.now_ms + flow.idle_ms());
        self.by_client.insert(ends, key);
        Ok(self.flows.insert(flow))
    }

    fn send_up(&mut self, key: Key, datagram: &[u8], ctx: &mut Context) {
        let Some(flow) = self.flows.get_mut(key) else { return };
        flow.moved_ms = ctx.now_ms;
        match send(&flow.upstream, datagram, SendFlags::NOSIGNAL) {
            Ok(sent) => flow.carried.up += sent as u64,
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::MSGSIZE) => {}
            Err(_) => self.end(key, End::UpstreamReset, ctx),
        }
    }

    fn end(&mut self, key: Key, end: End, ctx: &mut Context) {
        let Some(flow) = self.flows.remove(key) else { return };
        self.wheel.clear(key.index);
        self.by_client.remove(&flow.ends);
        if end == End::UpstreamReset {
            // Of datagrams nothing else is ever heard.
            flow.record.endpoint_failed(Errno::CONNREFUSED, ctx.now_ms);
        }
        flow.record.finish(end, flow.carried, ctx.now_ms, ctx.log.as_mut());
        ctx.shared.connections.fetch_sub(1, Relaxed);
    }
}

impl Flow {
    fn idle_ms(&self) -> u64 {
        let idle = self.record.chosen.as_ref().and_then(|chosen| chosen.route.route.idle_timeout);
        idle.map_or(IDLE_MS, |idle| u64::try_from(idle.as_millis()).unwrap_or(IDLE_MS))
    }

    /// Whether the table in force leads its client to its endpoint, be it one that gets nothing new.
    fn goes_on(&self, ctx: &Context) -> bool {
        let Some(Decision::Connect { route, .. }) = decide(self.record.listener(), self.ends.client, ctx) else {
            return false;
        };
        let newer = &ctx.live.routes[route.0].route;
        self.record.chosen.as_ref().is_some_and(|chosen| {
            chosen.route.route.goes_on_as(newer)
                && newer.endpoints.iter().any(|endpoint| chosen.connected_to() == Some(endpoint.address))
        })
    }
}

/// Where the table in force leads a client of a listener; None when it has no such listener.
fn decide(listener: &Arc<LiveListener>, client: SocketAddr, ctx: &Context) -> Option<Decision> {
    let facts = Facts { source: client.ip().to_canonical(), opening: Opening::Datagram };
    Some(ctx.live.table.decide(ctx.live.listener(listener)?, &facts))
}

fn open(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, Some(ipproto::UDP))?;
    connect(fd.as_fd(), &address)?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use std::net::UdpSocket;

    use rustix::event::{Timespec, epoll};
    use underpass_tables::{Expects, Listener, RelayTable, Route, RouteId, Rules, Transport};

    use super::*;
    use crate::context::Shared;
    use crate::live::Live;

    fn socket() -> UdpSocket {
        UdpSocket::bind("127.0.0.1:0").unwrap()
    }

    fn live(endpoint: &UdpSocket) -> Arc<Live> {
        let mut listener = Listener {
            name: "test-listener".into(),
            address: "127.0.0.1:1".parse().unwrap(),
            transport: Transport::Datagram,
            proxy_header: false,
            expects: Expects::Hello,
            rules: Rules::default(),
        };
        listener.rules.plain = Some(RouteId(0));
        let route = Arc::new(Route::new("a", "default/a:53", vec![endpoint.local_addr().unwrap()]));
        Arc::new(Live::new(
            RelayTable { listeners: vec![listener], routes: vec![route], ..RelayTable::default() },
            None,
        ))
    }

    fn next_event(ctx: &Context) -> Option<Token> {
        let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
        let mut events = Vec::with_capacity(1);
        epoll::wait(&ctx.epoll, rustix::buffer::spare_capacity(&mut events), Some(&patience)).unwrap();
        events.first().map(|event| Token::from_data(event.data))
    }

    #[test]
    fn more_answers_than_a_turn_takes_arrive_with_nothing_else_coming() {
        let (client, door, endpoint) = (socket(), socket(), socket());
        let live = live(&endpoint);
        let mut ctx = Context::new(0, Arc::new(Shared::new(None)), live.clone(), None, None).unwrap();
        let mut flows = Flows::new();
        client.send_to(b"all of it?", door.local_addr().unwrap()).unwrap();
        door.set_nonblocking(true).unwrap();
        let door = Arc::new(OwnedFd::from(door));
        ctx.watch_datagrams(&door, Token::Fixed(0)).unwrap();
        assert_eq!(next_event(&ctx), Some(Token::Fixed(0)));
        flows.on_clients(0, &live.listeners[0], &door, &mut ctx);
        let (_, flow) = endpoint.recv_from(&mut [0; 64]).unwrap();
        for _ in 0..3 * TURN {
            endpoint.send_to(b"x", flow).unwrap();
        }

        let [key] = flows.flows.keys()[..] else { panic!("one client, one flow") };
        let mut answered = 0;
        while answered < 3 * TURN as u64 {
            assert_eq!(
                next_event(&ctx),
                Some(Token::Flow(key)),
                "{answered} were read, and the rest stays where it is"
            );
            flows.on_upstream(key, |_| Some(door.clone()), &mut ctx);
            answered = flows.flows.get_mut(key).unwrap().carried.down;
        }
    }
}
