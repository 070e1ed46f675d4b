use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::UdpSocket;
use underpass_tunnel::client::{self, Client};
use underpass_tunnel::server::{self, Server};
use underpass_tunnel::{Caller, PairSecrets, Prepare, Protocol, ServerSeen};

use crate::rig::{HERE, Pair, client_settings, server_settings, tunnel, wait_until, within};

const APART: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 13));

async fn echo_server() -> SocketAddr {
    let socket = UdpSocket::bind((HERE, 0)).await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = vec![0; 65_535];
        loop {
            let (length, source) = socket.recv_from(&mut buffer).await.unwrap();
            socket.send_to(&buffer[..length], source).await.unwrap();
        }
    });
    address
}

async fn client_of(port: u16) -> UdpSocket {
    client_at(HERE, port).await
}

async fn client_at(ip: IpAddr, port: u16) -> UdpSocket {
    let socket = UdpSocket::bind((HERE, 0)).await.unwrap();
    socket.connect((ip, port)).await.unwrap();
    socket
}

async fn exchange(socket: &UdpSocket, datagram: &[u8]) {
    socket.send(datagram).await.unwrap();
    let mut buffer = vec![0; 65_535];
    let length = within(socket.recv(&mut buffer)).await.unwrap();
    assert_eq!(&buffer[..length], datagram);
}

fn udp(number: u32, server: SocketAddr) -> Prepare {
    Prepare { protocol: Protocol::Udp, ..tunnel(number, server) }
}

#[tokio::test(flavor = "multi_thread")]
async fn datagrams_come_back_to_whoever_sent_them() {
    let pair = Pair::start().await;
    let port = pair.caller.prepare(udp(1, echo_server().await)).await.unwrap().port;
    let (one, two) = (client_of(port).await, client_of(port).await);
    for round in 0..20_u8 {
        exchange(&one, &[1, round]).await;
        exchange(&two, &[2, round]).await;
    }
    exchange(&one, &[]).await;
    exchange(&two, &vec![7; 60_000]).await;
    let seen = pair.list().await.tunnels.remove(0);
    assert_eq!((seen.active, seen.total), (2, 2));
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_frees_the_port_and_tcp_may_have_the_same_one() {
    let pair = Pair::start_at(APART).await;
    let server = echo_server().await;
    let port = pair.caller.prepare(udp(1, server)).await.unwrap().port;
    exchange(&client_at(APART, port).await, b"once").await;
    let tcp = Prepare { client_port: Some(port), ..tunnel(2, server) };
    assert_eq!(pair.caller.prepare(tcp).await.unwrap().port, port);
    pair.caller.delete(1).await.unwrap();
    drop(UdpSocket::bind((APART, port)).await.expect("the port is free"));
    let again = Prepare { client_port: Some(port), ..udp(3, server) };
    assert_eq!(pair.caller.prepare(again).await.unwrap().port, port);
    exchange(&client_at(APART, port).await, b"again").await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_flow_ends_and_begins_again_when_needed() {
    let secrets = PairSecrets::generate().unwrap();
    let flow_idle = Duration::from_millis(200);
    let client = Client::start(&secrets.client, client::Settings { flow_idle, ..client_settings() }).await.unwrap();
    let settings = server::Settings { flow_idle, ..server_settings(&client) };
    let server = Server::start(&secrets.server, settings).await.unwrap();
    let caller = Caller::new(server.control_address(), &secrets.caller).unwrap();
    let pair = Pair { secrets, client, server, caller };
    let port = pair.caller.prepare(udp(1, echo_server().await)).await.unwrap().port;
    let socket = client_of(port).await;
    exchange(&socket, b"first").await;
    wait_until(async || pair.active(1).await == 0, "the flow has ended").await;
    exchange(&socket, b"second").await;
    assert_eq!(pair.list().await.tunnels[0].total, 2);
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_no_more_flows_than_there_may_be() {
    let pair = Pair::start().await;
    let order = Prepare { max_streams: Some(2), ..udp(1, echo_server().await) };
    let port = pair.caller.prepare(order).await.unwrap().port;
    let (one, two, three) = (client_of(port).await, client_of(port).await, client_of(port).await);
    exchange(&one, b"one").await;
    exchange(&two, b"two").await;
    three.send(b"three").await.unwrap();
    // What comes back to the others afterwards shows that the third was looked at.
    exchange(&one, b"one").await;
    assert!(three.try_recv(&mut [0; 8]).is_err());
    assert_eq!(pair.list().await.tunnels[0].total, 2);
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_told() {
    let pair = Pair::start().await;
    let gone = UdpSocket::bind((HERE, 0)).await.unwrap().local_addr().unwrap();
    let port = pair.caller.prepare(udp(1, gone)).await.unwrap().port;
    let mut news = pair.caller.news();
    let words = format!("{gone}: a datagram was refused, nothing listens there");
    let socket = client_of(port).await;
    wait_until(
        async || {
            socket.send(b"anybody?").await.unwrap();
            matches!(pair.server_seen().await, ServerSeen::Unreachable(why) if why == words)
        },
        "the refusal is listed",
    )
    .await;
    within(news.changed()).await.unwrap();
    pair.stop().await;
}
