//! Datagrams, in flows.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use underpass_relay::End;
use underpass_tables::{RelayTable, RouteId, Transport};

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
