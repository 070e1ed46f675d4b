//! Datagrams, in flows.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use underpass_relay::End;
use underpass_tables::{RelayTable, Route, RouteId, Transport};

use crate::rig::{PATIENCE, Rig, loopback, nobody, route, table, wait_until};

fn datagram_table(endpoints: &[SocketAddr]) -> RelayTable {
    let mut only = route("a", endpoints);
    only.idle_timeout = Some(Duration::from_millis(300));
    let mut table = table(vec![only]);
    table.listeners[0].transport = Transport::Datagram;
    table.listeners[0].rules.plain = Some(RouteId(0));
    table
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind(loopback()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn echo_server() -> SocketAddr {
    let server = UdpSocket::bind(loopback()).unwrap();
    let address = server.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65536];
        while let Ok((length, from)) = server.recv_from(&mut buffer) {
            server.send_to(&buffer[..length], from).unwrap();
        }
    });
    address
}

#[test]
fn each_client_has_its_own_flow_and_gets_its_own_answers() {
    let rig = Rig::start(datagram_table(&[echo_server()]));
    let clients: Vec<UdpSocket> = (0..20).map(|_| socket()).collect();
    for (index, client) in clients.iter().enumerate() {
        client.connect(rig.address).unwrap();
        client.send(format!("hello {index}").as_bytes()).unwrap();
    }
    for (index, client) in clients.iter().enumerate() {
        let mut buffer = [0; 64];
        let length = client.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], format!("hello {index}").as_bytes());
    }
    assert_eq!(rig.relay.live().routes[0].stats.total.load(Relaxed), 20);
    rig.wait_for(End::IdleTimeout, 20);
    assert_eq!(rig.relay.connections(), 0);
}

/// The kernel would answer a client on 127.0.0.1 from there.
#[test]
fn who_asks_one_of_several_addresses_is_answered_by_that_one() {
    for (all, addresses) in [("0.0.0.0:0", ["127.0.0.2", "127.0.0.3"]), ("[::]:0", ["127.0.0.2", "::1"])] {
        let mut table = datagram_table(&[echo_server()]);
        table.listeners[0].address = all.parse().unwrap();
        let rig = Rig::start(table);
        for asked in addresses {
            let asked: IpAddr = asked.parse().unwrap();
            let client = UdpSocket::bind((if asked.is_ipv4() { "127.0.0.1" } else { "::1" }, 0)).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.connect((asked, rig.address.port())).unwrap();
            client.send(b"who?").unwrap();
            assert_eq!(client.recv(&mut [0; 64]).unwrap(), 4, "{all} asked at {asked}");
        }
    }
}

#[test]
fn a_datagram_keeps_its_bounds_even_when_it_is_large() {
    let rig = Rig::start(datagram_table(&[echo_server()]));
    let client = socket();
    client.connect(rig.address).unwrap();
    let mut buffer = vec![0; 65536];
    for length in [0, 1, 1500, 60_000] {
        client.send(&vec![7; length]).unwrap();
        assert_eq!(client.recv(&mut buffer).unwrap(), length);
    }
}

#[test]
fn when_nobody_listens_the_next_datagram_tries_elsewhere() {
    let rig = Rig::start(datagram_table(&[nobody(), echo_server()]));
    let client = socket();
    client.connect(rig.address).unwrap();
    client.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let answered = || {
        let _ = client.send(b"anybody?");
        client.recv(&mut [0; 64]).is_ok()
    };
    wait_until(answered, "somebody answers");
}

/// A relay, and both ends of a flow through it.
fn one_flow(routes: impl Fn(SocketAddr) -> Vec<Route>) -> (Rig, UdpSocket, UdpSocket) {
    let server = socket();
    let rig = Rig::start(lasting(routes(server.local_addr().unwrap())));
    let client = socket();
    client.connect(rig.address).unwrap();
    assert!(hears(&client, &server));
    (rig, client, server)
}

/// All datagrams are for the first route, and no flow ends by itself.
fn lasting(routes: Vec<Route>) -> RelayTable {
    let mut table = table(routes);
    table.listeners[0].transport = Transport::Datagram;
    table.listeners[0].rules.plain = Some(RouteId(0));
    table
}

fn apply_next(rig: &Rig, mut next: RelayTable) {
    next.generation = rig.relay.live().table.generation + 1;
    next.listeners[0].address = rig.address;
    assert_eq!(rig.relay.apply(next).unwrap(), []);
}

/// Whether what the client sends arrives at this server.
fn hears(client: &UdpSocket, server: &UdpSocket) -> bool {
    client.send(b"you?").unwrap();
    server.recv(&mut [0; 64]).is_ok()
}

#[test]
fn a_flow_ends_with_its_endpoint_and_the_next_datagram_finds_another() {
    let (rig, client, _gone) = one_flow(|server| vec![route("a", &[server])]);
    let other = socket();
    apply_next(&rig, lasting(vec![route("a", &[other.local_addr().unwrap()])]));
    assert!(hears(&client, &other));
    rig.wait_for(End::Drained, 1);
}

#[test]
fn a_flow_ends_when_its_port_is_given_to_another_route() {
    let other = socket();
    let own = |server| vec![route("a", &[server]), route("b", &[other.local_addr().unwrap()])];
    let (rig, client, server) = one_flow(own);
    let mut next = lasting(own(server.local_addr().unwrap()));
    next.listeners[0].rules.plain = Some(RouteId(1));
    apply_next(&rig, next);
    assert!(hears(&client, &other));
    rig.wait_for(End::Drained, 1);
}

#[test]
fn a_flow_ends_when_its_client_is_not_admitted_any_more() {
    let (rig, client, server) = one_flow(|server| vec![route("a", &[server])]);
    let elsewhere = vec!["192.0.2.0/24".parse().unwrap()];
    let address = server.local_addr().unwrap();
    apply_next(&rig, lasting(vec![Route { sources: elsewhere, ..route("a", &[address]) }]));
    client.send(b"you?").unwrap();
    rig.wait_for(End::SourceNotAllowed, 1);
}

#[test]
fn a_flow_stays_with_an_endpoint_that_only_gets_nothing_new() {
    let (rig, client, server) = one_flow(|server| vec![route("a", &[server])]);
    let mut next = route("a", &[socket().local_addr().unwrap(), server.local_addr().unwrap()]);
    next.endpoints[1].draining = true;
    apply_next(&rig, lasting(vec![next]));
    assert!(hears(&client, &server));
    assert_eq!(rig.relay.live().routes[0].stats.total.load(Relaxed), 1, "it is the same flow");
}
