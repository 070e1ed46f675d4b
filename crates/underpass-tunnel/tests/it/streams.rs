use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use underpass_tunnel::{Prepare, ServerSeen, client};

use crate::rig::{
    Pair, client_settings, connect, echo_server, ends_by_reset, exchange, is_reset, listener, naming_server, nobody,
    receive, tunnel, wait_until, within,
};

#[tokio::test(flavor = "multi_thread")]
async fn each_direction_ends_by_itself() {
    let pair = Pair::start().await;
    let (server, address) = listener().await;
    let mut client = pair.connect(1, address).await;
    let (mut accepted, _) = within(server.accept()).await.unwrap();

    client.write_all(b"all I say").await.unwrap();
    client.shutdown().await.unwrap();
    let mut said = String::new();
    within(accepted.read_to_string(&mut said)).await.unwrap();
    assert_eq!(said, "all I say");
    accepted.write_all(b"and my answer").await.unwrap();
    assert_eq!(receive(&mut client, 13).await, "and my answer");
    accepted.shutdown().await.unwrap();
    assert!(!ends_by_reset(&mut client).await);

    let mut client = connect(pair.prepare(1, address).await.port).await;
    let (mut accepted, _) = within(server.accept()).await.unwrap();
    accepted.shutdown().await.unwrap();
    assert!(!ends_by_reset(&mut client).await);
    client.write_all(b"afterwards").await.unwrap();
    assert_eq!(receive(&mut accepted, 10).await, "afterwards");
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_may_speak_first() {
    let pair = Pair::start().await;
    let mut client = pair.connect(1, naming_server("welcome").await).await;
    assert_eq!(receive(&mut client, 7).await, "welcome");
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn running_streams_survive_the_deletion_of_their_tunnel() {
    let pair = Pair::start().await;
    let mut client = pair.connect(1, echo_server().await).await;
    exchange(&mut client, "before").await;
    pair.caller.delete(1).await.unwrap();
    for _ in 0..10 {
        exchange(&mut client, "after").await;
    }
    client.shutdown().await.unwrap();
    assert!(!ends_by_reset(&mut client).await);
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_is_a_reset_for_the_client() {
    let pair = Pair::start().await;
    let nobody = nobody().await;
    let port = pair.prepare(1, nobody).await.port;
    assert!(is_reset(port).await);
    wait_until(async || pair.list().await.tunnels[0].dial_failures == 1, "the failure counts").await;
    let ServerSeen::Unreachable(why) = pair.server_seen().await else { panic!("it refused") };
    assert!(why.starts_with(&format!("{nobody}: ")) && why.contains("refused"), "{why}");
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_has_no_more_streams_than_it_may() {
    let pair = Pair::start().await;
    let order = Prepare { max_streams: Some(3), ..tunnel(1, echo_server().await) };
    let port = pair.caller.prepare(order).await.unwrap().port;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = connect(port).await;
        exchange(&mut stream, "in").await;
        streams.push(stream);
    }
    let mut fourth = connect(port).await;
    let _ = fourth.write_all(b"in?").await;
    let mut answer = Vec::new();
    let _ = within(fourth.read_to_end(&mut answer)).await;
    assert!(answer.is_empty());
    streams.pop();
    wait_until(
        async || {
            let mut stream = connect(port).await;
            stream.write_all(b"x").await.is_ok() && matches!(within(stream.read(&mut [0; 1])).await, Ok(1))
        },
        "there is room again",
    )
    .await;
    pair.stop().await;
}

/// Of 32 connections 24 are streams, of which a tunnel has 12.
async fn a_neighbour_takes_all_that_it_gets(pair: Pair) {
    let echo = echo_server().await;
    let (first, second, third) =
        (pair.prepare(1, echo).await, pair.prepare(2, echo).await, pair.prepare(3, echo).await);
    let mut taken = Vec::new();
    for _ in 0..60 {
        taken.push(connect(first.port).await);
    }
    wait_until(async || pair.list().await.client.unwrap().refused.full == 48, "the others are refused").await;
    assert_eq!(pair.active(1).await, 12, "half of all");
    exchange(&mut connect(second.port).await, "there is room for others").await;
    for _ in 0..60 {
        taken.push(connect(second.port).await);
    }
    wait_until(async || pair.active(2).await == 12, "the rest is taken, too").await;
    wait_until(async || pair.list().await.client.unwrap().refused.full == 96, "the others are refused").await;
    // Nobody has anything to say, so nobody would hear of the end otherwise.
    let mut late = connect(third.port).await;
    assert!(!matches!(within(late.read(&mut [0; 1])).await, Ok(1..)), "the whole is full");
    pair.caller.probe().await.expect("the pair can still be examined");
    pair.prepare(4, echo).await;
    drop(taken);
    wait_until(async || pair.active(1).await + pair.active(2).await == 0, "they are gone").await;
    exchange(&mut connect(third.port).await, "there is room again").await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_takes_all_connections_stops_neither_the_others_nor_the_pair() {
    let settings = client::Settings { connections: 32, ..client_settings() };
    a_neighbour_takes_all_that_it_gets(Pair::start_with(settings, u32::MAX).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_half_that_can_carry_less_decides() {
    a_neighbour_takes_all_that_it_gets(Pair::start_with(client_settings(), 32).await).await;
}

/// A sum that knows the order of the bytes.
fn sum(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(seed, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

async fn send_much(mut writer: impl tokio::io::AsyncWrite + Unpin, megabytes: usize, salt: usize) -> u64 {
    let mut total = 0;
    let mut block = vec![0_u8; 1 << 20];
    for number in 0..megabytes {
        for (place, byte) in block.iter_mut().enumerate() {
            *byte = (place.wrapping_mul(31) ^ (place >> 8) ^ number ^ salt) as u8;
        }
        total = sum(total, &block);
        within(writer.write_all(&block)).await.unwrap();
    }
    within(writer.shutdown()).await.unwrap();
    total
}

async fn receive_much(mut reader: impl tokio::io::AsyncRead + Unpin) -> (usize, u64) {
    let (mut count, mut total) = (0, 0);
    let mut block = vec![0; 1 << 18];
    loop {
        match within(reader.read(&mut block)).await.unwrap() {
            0 => return (count, total),
            read => {
                count += read;
                total = sum(total, &block[..read]);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn much_goes_through_unchanged_both_ways_at_once() {
    const MEGABYTES: usize = 64;
    let pair = Pair::start().await;
    let (server, address) = listener().await;
    let client = pair.connect(1, address).await;
    let (accepted, _) = within(server.accept()).await.unwrap();
    let (client_reads, client_writes) = client.into_split();
    let (server_reads, server_writes) = accepted.into_split();
    let tasks = (
        tokio::spawn(send_much(client_writes, MEGABYTES, 3)),
        tokio::spawn(receive_much(server_reads)),
        tokio::spawn(send_much(server_writes, MEGABYTES, 77)),
        tokio::spawn(receive_much(client_reads)),
    );
    let (up, at_server, down, at_client) = tokio::join!(tasks.0, tasks.1, tasks.2, tasks.3);
    assert_eq!(at_server.unwrap(), (MEGABYTES << 20, up.unwrap()));
    assert_eq!(at_client.unwrap(), (MEGABYTES << 20, down.unwrap()));
    pair.stop().await;
}

/// Listens, and never accepts: its queue is full, so that nobody's connection is even begun.
async fn deaf_server() -> (std::net::TcpListener, std::net::SocketAddr, Vec<TcpStream>) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut filling = Vec::new();
    while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address)).await {
        filling.push(stream);
    }
    (listener.into_std().unwrap(), address, filling)
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_and_deaf_servers_delay_nobody_else() {
    let pair = Pair::start().await;
    let echo = echo_server().await;
    let (_listening, deaf, _filling) = deaf_server().await;
    let dead = nobody().await;
    let dead_port = pair.prepare(100, dead).await.port;
    let deaf_port = pair.prepare(101, deaf).await.port;
    let mut ports = Vec::new();
    for number in 0..18 {
        ports.push(pair.prepare(number, echo).await.port);
    }
    // These have no server, and stay in the way as long as the test lasts.
    let mut hopeless = Vec::new();
    for _ in 0..50 {
        hopeless.push(connect(deaf_port).await);
        assert!(is_reset(dead_port).await);
    }
    let streams = (0..450).map(|number: usize| {
        let port = ports[number % ports.len()];
        tokio::spawn(async move {
            let mut stream = connect(port).await;
            exchange(&mut stream, &format!("stream {number}")).await;
            stream
        })
    });
    let streams: Vec<_> = streams.collect();
    let mut open = Vec::new();
    for stream in streams {
        open.push(within(stream).await.unwrap());
    }
    // All are open at the same time, and none of those without a server has ended before them.
    for stream in &mut open {
        exchange(stream, "still").await;
    }
    assert!(pair.active(101).await >= 50, "those of the deaf server wait");
    pair.stop().await;
}
