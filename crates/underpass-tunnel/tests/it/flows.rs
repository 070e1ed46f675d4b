use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::timeout;
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

async fn client_from(ip: Ipv4Addr, port: u16) -> UdpSocket {
    let socket = UdpSocket::bind((ip, 0)).await.unwrap();
    socket.connect((HERE, port)).await.unwrap();
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
async fn there_are_no_more_flows_than_there_may_be_and_the_most_silent_makes_way() {
    let pair = Pair::start().await;
    let order = Prepare { max_streams: Some(2), ..udp(1, echo_server().await) };
    let port = pair.caller.prepare(order).await.unwrap().port;
    let (one, two, three) = (client_of(port).await, client_of(port).await, client_of(port).await);
    exchange(&one, b"one").await;
    exchange(&two, b"two").await;
    exchange(&one, b"one").await;
    exchange(&three, b"three").await;
    wait_until(async || pair.active(1).await == 2, "one has made way").await;
    exchange(&one, b"one").await;
    assert_eq!(pair.list().await.tunnels[0].total, 3, "it was not this one");
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_neighbour_with_many_flows_makes_way_for_others() {
    const MOST: u32 = 8;
    let pair = Pair::start().await;
    let order = Prepare { max_streams: Some(MOST), ..udp(1, echo_server().await) };
    let port = pair.caller.prepare(order).await.unwrap().port;
    let quiet = client_of(port).await;
    exchange(&quiet, b"once, long ago").await;
    let mut many = Vec::new();
    for _ in 0..4 * MOST {
        let socket = client_from(Ipv4Addr::new(127, 0, 0, 66), port).await;
        exchange(&socket, b"one more").await;
        many.push(socket);
    }
    let late = client_from(Ipv4Addr::new(127, 0, 0, 67), port).await;
    exchange(&late, b"it is served").await;
    let total = pair.list().await.tunnels[0].total;
    exchange(&quiet, b"and this one is still here").await;
    assert_eq!(pair.list().await.tunnels[0].total, total, "its flow had not to go");
    wait_until(async || pair.active(1).await == MOST, "there are as many as there may be").await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flows_of_one_tunnel_leave_room_for_another() {
    // Of 64 connections 16 are flows, of which a tunnel has 8.
    let pair = Pair::start_with(client::Settings { connections: 64, ..client_settings() }, u32::MAX).await;
    let server = echo_server().await;
    let greedy = pair.caller.prepare(udp(1, server)).await.unwrap().port;
    let modest = pair.caller.prepare(udp(2, server)).await.unwrap().port;
    let mut many = Vec::new();
    for _ in 0..20 {
        let socket = client_of(greedy).await;
        exchange(&socket, b"one more").await;
        many.push(socket);
    }
    exchange(&client_of(modest).await, b"there is room").await;
    wait_until(async || pair.active(1).await == 8, "no more than its share").await;
    pair.stop().await;
}

/// Says its name to everybody who sends something.
async fn naming_server(name: &'static str) -> SocketAddr {
    let socket = UdpSocket::bind((HERE, 0)).await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (_, source) = socket.recv_from(&mut [0; 64]).await.unwrap();
            socket.send_to(name.as_bytes(), source).await.unwrap();
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_has_the_flows_that_are_under_way_and_nothing_is_said_of_the_old_one() {
    let pair = Pair::start().await;
    let port = pair.caller.prepare(udp(1, naming_server("left").await)).await.unwrap().port;
    let socket = client_of(port).await;
    let mut name = [0; 64];
    socket.send(b"who?").await.unwrap();
    let length = within(socket.recv(&mut name)).await.unwrap();
    assert_eq!(&name[..length], b"left");
    assert_eq!(pair.server_seen().await, ServerSeen::Reachable);

    assert_eq!(pair.caller.prepare(udp(1, naming_server("right").await)).await.unwrap().port, port);
    assert_eq!(pair.server_seen().await, ServerSeen::Unknown, "nobody has asked the new one");
    // What is under way when a flow ends is lost, as datagrams are.
    wait_until(
        async || {
            socket.send(b"who?").await.unwrap();
            let mut name = [0; 64];
            let answered = timeout(Duration::from_millis(200), socket.recv(&mut name)).await;
            answered.is_ok_and(|length| &name[..length.unwrap()] == b"right")
        },
        "the new one answers",
    )
    .await;
    assert_eq!(pair.server_seen().await, ServerSeen::Reachable);
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
