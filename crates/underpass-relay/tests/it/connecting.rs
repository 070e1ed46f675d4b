//! From a route to an endpoint.

use std::io::{Read, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use underpass_relay::{End, Settings};
use underpass_tables::Balance;

use crate::rig::{
    PATIENCE, Rig, accept, echo_server, hello, is_reset, listener, loopback, nobody, plain_table, read_exactly, reset,
    route, table, wait_until,
};

#[test]
fn a_dead_endpoint_is_passed_over() {
    let rig = Rig::start(table(vec![route("a", &[nobody(), echo_server()])]));
    for _ in 0..10 {
        let mut client = rig.ask("a.example.com");
        read_exactly(&mut client, hello("a.example.com").len());
    }
    let live = rig.relay.live();
    assert!(live.routes[0].endpoints[0].connect_failures.load(Relaxed) >= 5);
    assert!(live.routes[0].endpoints[0].ejected(rig.relay.now_ms()), "five failures in a row leave it out");
}

#[test]
fn when_nobody_answers_the_client_is_reset_and_it_is_counted() {
    let rig = Rig::start(table(vec![route("a", &[nobody(), nobody()]), route("b", &[])]));
    assert!(is_reset(&mut rig.ask("a.example.com")));
    rig.wait_for(End::ConnectFailed, 1);
    assert!(is_reset(&mut rig.ask("b.example.com")));
    rig.wait_for(End::NoEndpoints, 1);
}

#[test]
fn the_line_of_a_connection_that_reached_nobody_says_who_was_tried_last_and_counts_no_bytes() {
    let (mut log, writer) = std::io::pipe().unwrap();
    let endpoint = nobody();
    let settings = Settings { access_log: Some(Box::new(writer)), ..Settings::default() };
    let rig = Rig::start_with(settings, table(vec![route("a", &[endpoint])]));
    assert!(is_reset(&mut rig.ask("a.example.com")));
    drop(rig);
    let mut line = String::new();
    log.read_to_string(&mut line).unwrap();
    let expected = format!("\"endpoint\":\"{endpoint}\",\"bytes_sent\":0,\"bytes_received\":0,");
    assert!(line.contains(&expected) && line.contains("\"end\":\"connect_failed\""), "{line}");
}

/// An address that never answers: a listener whose queue is full drops what comes.
fn stalled() -> (std::net::TcpListener, Vec<std::net::TcpStream>, std::net::SocketAddr) {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &loopback()).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    let listener = std::net::TcpListener::from(socket);
    let address = listener.local_addr().unwrap();
    let mut fill = Vec::new();
    while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        fill.push(stream);
    }
    (listener, fill, address)
}

#[test]
fn the_next_endpoint_gets_its_chance_before_the_first_has_timed_out() {
    let (_listener, _fill, stalled) = stalled();
    let rig = Rig::start(table(vec![route("a", &[stalled, echo_server()])]));
    let begun = Instant::now();
    for _ in 0..2 {
        let mut client = rig.ask("a.example.com");
        read_exactly(&mut client, hello("a.example.com").len());
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "the time-out of the first endpoint is 5 s");
}

#[test]
fn an_endpoint_that_never_answers_times_out() {
    let (_listener, _fill, stalled) = stalled();
    let mut slow = route("a", &[stalled]);
    slow.connect_timeout = Duration::from_millis(300);
    let rig = Rig::start(table(vec![slow]));
    assert!(is_reset(&mut rig.ask("a.example.com")));
    rig.wait_for(End::ConnectTimeout, 1);
    assert_eq!(rig.relay.live().routes[0].stats.connect_timeouts.load(Relaxed), 1);
}

#[test]
fn the_least_loaded_endpoint_is_chosen() {
    let (first, first_address) = listener();
    let (second, second_address) = listener();
    let mut balanced = route("a", &[first_address, second_address]);
    balanced.balance = Balance::LeastConnections;
    let rig = Rig::start(table(vec![balanced]));
    let live = rig.relay.live();
    let load = || live.routes[0].endpoints.iter().map(|endpoint| endpoint.active.load(Relaxed)).collect::<Vec<_>>();
    let mut streams = Vec::new();
    for count in 1..=4 {
        streams.push(rig.ask("a.example.com"));
        wait_until(|| load().iter().sum::<u32>() == count, "the connection is made");
        assert!(load()[0].abs_diff(load()[1]) <= 1, "{:?}", load());
    }
    for server in [&first, &first, &second, &second] {
        read_exactly(&mut accept(server), 1);
    }
}

#[test]
fn a_route_takes_no_more_than_it_may() {
    let mut narrow = route("a", &[echo_server()]);
    narrow.max_connections = Some(2);
    let rig = Rig::start(table(vec![narrow]));
    let mut held: Vec<_> = (0..2).map(|_| rig.ask("a.example.com")).collect();
    for client in &mut held {
        read_exactly(client, hello("a.example.com").len());
    }
    let mut third = rig.connect();
    third.write_all(&hello("a.example.com")).unwrap();
    rig.wait_for(End::RouteFull, 1);
}

/// Whenever it comes: before the endpoint was dialled, while it is, or after.
#[test]
fn a_client_that_resets_at_once_never_looks_like_one_that_ended() {
    let (server, address) = listener();
    server.set_nonblocking(true).unwrap();
    let rig = Rig::start(plain_table(address));
    for count in 1..=50 {
        let client = rig.connect();
        (&client).write_all(b"x").unwrap();
        reset(client);
        let stats = || rig.relay.live().listeners[0].stats.total.load(Relaxed);
        wait_until(|| stats() == count && rig.relay.connections() == 0, "the connection is over");
        if let Ok((mut upstream, _)) = server.accept() {
            upstream.set_nonblocking(false).unwrap();
            upstream.set_read_timeout(Some(PATIENCE)).unwrap();
            assert!(is_reset(&mut upstream), "an end that was none");
        }
    }
}
