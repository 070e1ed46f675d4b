//! The two halves of a tunnel, as far as the relay is concerned: one takes connections from a stock, the other is handed them.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use underpass_protocols::stream_header::{self, StreamHeader};
use underpass_relay::{End, Relay, Settings, Stock};
use underpass_tables::{Expects, RelayTable, Route, RouteId};

use crate::rig::{
    PATIENCE, Rig, accept, echo_server, is_reset, listener, nobody, plain_table, read_exactly, read_to_end, route,
    table, wait_until,
};

const TUNNEL: u32 = 7;

/// The half that containers connect to.
fn client_half(stock: &Arc<Stock>, connect_timeout: Duration) -> Rig {
    let mut table = plain_table("127.0.0.1:1".parse().unwrap());
    table.listeners[0].expects = Expects::Nothing;
    table.routes = vec![Arc::new(Route {
        stock: Some(TUNNEL),
        connect_timeout,
        ..route("tunnel", &["127.0.0.1:1".parse().unwrap()])
    })];
    Rig::start_with(Settings { workers: 2, stock: Some(stock.clone()), ..Settings::default() }, table)
}

/// The half that dials servers.
fn server_half(server: SocketAddr, taken_up: Arc<dyn Fn() + Send + Sync>) -> Relay {
    let settings = Settings { workers: 2, taken_up: Some(taken_up), ..Settings::default() };
    let relay = Relay::start(settings).unwrap();
    assert_eq!(relay.apply(server_table(server)).unwrap(), []);
    relay
}

fn server_table(server: SocketAddr) -> RelayTable {
    let mut table = table(vec![route("server", &[server])]);
    let listener = &mut table.listeners[0];
    listener.expects = Expects::StreamHeader;
    listener.rules.tunnels.insert(TUNNEL, RouteId(0));
    table
}

/// Both ends of a connection, ready to be handed over.
fn data_connection(data: &TcpListener) -> (TcpStream, TcpStream) {
    let dialled = TcpStream::connect(data.local_addr().unwrap()).unwrap();
    let accepted = accept(data);
    for end in [&dialled, &accepted] {
        end.set_nonblocking(true).unwrap();
        end.set_nodelay(true).unwrap();
    }
    (dialled, accepted)
}

/// Puts one connection between the halves.
fn connect_halves(data: &TcpListener, server: &Relay, stock: &Stock) {
    let (dialled, accepted) = data_connection(data);
    let peer = dialled.peer_addr().unwrap();
    assert!(server.adopt("test-listener", dialled.into(), peer));
    stock.put(accepted.into());
}

#[test]
fn streams_cross_both_halves_and_each_takes_one_connection() {
    let taken = Arc::new(AtomicUsize::new(0));
    let count = taken.clone();
    let stock = Stock::new(|_| {});
    let client = client_half(&stock, PATIENCE);
    let server = server_half(
        echo_server(),
        Arc::new(move || {
            count.fetch_add(1, SeqCst);
        }),
    );
    let (data, _) = listener();
    for _ in 0..3 {
        connect_halves(&data, &server, &stock);
    }
    for round in 1..=3 {
        let mut stream = client.connect();
        stream.write_all(b"there and back").unwrap();
        assert_eq!(read_exactly(&mut stream, 14), b"there and back");
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_to_end(&mut stream), b"");
        wait_until(|| taken.load(SeqCst) == round, "the connection is said to be in use");
    }
    assert_eq!(stock.idle(), 0);
    client.wait_for(End::Closed, 3);
    server.drain(Duration::ZERO);
}

#[test]
fn the_other_half_is_told_who_connected_and_which_tunnel_is_meant() {
    let stock = Stock::new(|_| {});
    let client = client_half(&stock, PATIENCE);
    let (data, _) = listener();
    let (mut far, near) = data_connection(&data);
    stock.put(near.into());
    // Nobody waits for its first byte: the server may be the one who speaks first.
    let mut stream = client.connect();
    far.set_nonblocking(false).unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    let header = read_exactly(&mut far, stream_header::LENGTH);
    let header = StreamHeader::decode(header.first_chunk().unwrap()).unwrap();
    assert_eq!(header, StreamHeader { tunnel: TUNNEL, stream: 1, source: stream.local_addr().unwrap() });
    far.write_all(b"welcome").unwrap();
    assert_eq!(read_exactly(&mut stream, 7), b"welcome");
}

#[test]
fn who_finds_the_stock_empty_waits_in_line_and_says_so() {
    let wanted = Arc::new(AtomicUsize::new(0));
    let seen = wanted.clone();
    let stock = Stock::new(move |count| seen.store(count, SeqCst));
    let client = client_half(&stock, PATIENCE);
    let server = server_half(echo_server(), Arc::new(|| {}));
    let mut streams: Vec<_> = (0..3).map(|_| client.connect()).collect();
    for stream in &mut streams {
        stream.write_all(b"first").unwrap();
    }
    wait_until(|| wanted.load(SeqCst) == 3, "three are known to wait");
    // One of them does not wait to the end.
    crate::rig::reset(streams.pop().unwrap());
    client.wait_for(End::ClientLeft, 1);
    let (data, _) = listener();
    // Who came first is known to the workers only.
    for _ in &streams {
        connect_halves(&data, &server, &stock);
    }
    for stream in &mut streams {
        stream.write_all(b" second").unwrap();
        assert_eq!(read_exactly(stream, 12), b"first second");
    }
    connect_halves(&data, &server, &stock);
    assert_eq!(stock.idle(), 1, "nobody waits any more");
    server.drain(Duration::ZERO);
}

#[test]
fn nobody_waits_for_ever() {
    let stock = Stock::new(|_| {});
    let client = client_half(&stock, Duration::from_millis(50));
    let mut stream = client.connect();
    assert!(is_reset(&mut stream));
    client.wait_for(End::ConnectTimeout, 1);
}

#[test]
fn a_connection_whose_other_end_has_gone_is_not_given_away() {
    let stock = Stock::new(|_| {});
    let client = client_half(&stock, PATIENCE);
    let server = server_half(echo_server(), Arc::new(|| {}));
    let (data, _) = listener();
    for _ in 0..3 {
        let (far, near) = data_connection(&data);
        stock.put(near.into());
        drop(far);
    }
    connect_halves(&data, &server, &stock);
    let mut stream = client.connect();
    stream.write_all(b"x").unwrap();
    assert_eq!(read_exactly(&mut stream, 1), b"x");
    server.drain(Duration::ZERO);
}

#[test]
fn a_server_that_is_not_there_is_told_by_a_reset_through_both_halves() {
    let stock = Stock::new(|_| {});
    let client = client_half(&stock, PATIENCE);
    let server = server_half(nobody(), Arc::new(|| {}));
    let (data, _) = listener();
    connect_halves(&data, &server, &stock);
    // Nothing is written: the reset may be there first.
    let mut stream = client.connect();
    assert!(is_reset(&mut stream));
    client.wait_for(End::UpstreamReset, 1);
    server.drain(Duration::ZERO);
}

#[test]
fn what_is_no_header_or_no_tunnel_is_refused_and_counted() {
    let server = server_half(echo_server(), Arc::new(|| {}));
    let (data, _) = listener();
    let unknown = StreamHeader { tunnel: TUNNEL + 1, stream: 1, source: "10.0.0.1:1".parse().unwrap() }.encode();
    for (bytes, end) in [(&[0xff; 32], End::InvalidHello), (&unknown, End::UnknownTunnel)] {
        let (dialled, mut accepted) = data_connection(&data);
        let peer = dialled.peer_addr().unwrap();
        assert!(server.adopt("test-listener", dialled.into(), peer));
        accepted.write_all(bytes).unwrap();
        wait_until(|| server.live().listeners[0].stats.count(end) == 1, "it is counted");
        accepted.set_nonblocking(false).unwrap();
        assert_eq!(is_reset(&mut accepted), end == End::UnknownTunnel, "{end:?}");
    }
    let (dialled, _accepted) = data_connection(&data);
    let peer = dialled.peer_addr().unwrap();
    assert!(!server.adopt("no-such-listener", dialled.into(), peer));
    server.drain(Duration::ZERO);
}

#[test]
fn what_stands_ready_and_who_is_being_dialled_do_not_hold_up_the_end() {
    let (server, unanswered) = listener();
    let _queue: Vec<TcpStream> = fill_queue(&server, unanswered);
    let relay = server_half(unanswered, Arc::new(|| {}));
    let (data, _) = listener();
    let (idle, mut far_idle) = data_connection(&data);
    let (dialling, mut far) = data_connection(&data);
    for socket in [idle, dialling] {
        let peer = socket.peer_addr().unwrap();
        assert!(relay.adopt("test-listener", socket.into(), peer));
    }
    far.write_all(&StreamHeader { tunnel: TUNNEL, stream: 1, source: unanswered }.encode()).unwrap();
    wait_until(|| relay.live().routes[0].stats.active.load(SeqCst) == 1, "the server is dialled");
    relay.drain(Duration::ZERO);
    for end in [&mut far, &mut far_idle] {
        end.set_nonblocking(false).unwrap();
        end.set_read_timeout(Some(PATIENCE)).unwrap();
        // A reset is an end as well.
        let _ = std::io::Read::read(end, &mut [0; 1]).inspect(|read| assert_eq!(*read, 0));
    }
}

/// Nobody accepts, and nobody else gets into the queue.
fn fill_queue(server: &TcpListener, address: SocketAddr) -> Vec<TcpStream> {
    rustix::net::listen(server, 0).unwrap();
    std::iter::from_fn(|| TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok()).collect()
}
