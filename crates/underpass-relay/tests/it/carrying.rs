//! Bytes, ends and failures, passed on as they came.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use underpass_relay::End;

use crate::rig::{
    Rig, accept, echo_server, hello, is_reset, listener, plain_table, read_exactly, read_to_end, reset, route, table,
    wait_until,
};

#[test]
fn a_named_connection_reaches_its_backend_and_comes_back() {
    let rig = Rig::start(table(vec![route("a", &[echo_server()])]));
    let mut client = rig.ask("a.example.com");
    let sent = hello("a.example.com");
    assert_eq!(read_exactly(&mut client, sent.len()), sent);
    client.write_all(b"more").unwrap();
    assert_eq!(read_exactly(&mut client, 4), b"more");
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_to_end(&mut client), b"");
    rig.wait_for(End::Closed, 1);
}

#[test]
fn a_half_close_lets_late_data_through_in_both_directions() {
    let (server, address) = listener();
    let rig = Rig::start(plain_table(address));
    let mut client = rig.connect();
    client.write_all(b"question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut upstream = accept(&server);
    assert_eq!(read_to_end(&mut upstream), b"question");
    upstream.write_all(b"late answer").unwrap();
    drop(upstream);
    assert_eq!(read_to_end(&mut client), b"late answer");

    let mut client = rig.connect();
    client.write_all(b"x").unwrap();
    let mut upstream = accept(&server);
    upstream.write_all(b"all there is").unwrap();
    upstream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_to_end(&mut client), b"all there is");
    client.write_all(b"late question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_to_end(&mut upstream), b"xlate question");
    drop(upstream);
    rig.wait_for(End::Closed, 2);
}

#[test]
fn an_end_that_comes_with_the_hello_loses_nothing() {
    let rig = Rig::start(table(vec![route("a", &[echo_server()])]));
    for _ in 0..200 {
        let mut client = rig.ask("a.example.com");
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_to_end(&mut client), hello("a.example.com"));
    }
    rig.wait_for(End::Closed, 200);
}

#[test]
fn a_reset_is_passed_on_as_a_reset_in_both_directions() {
    let (server, address) = listener();
    let rig = Rig::start(plain_table(address));
    let mut client = rig.connect();
    client.write_all(b"x").unwrap();
    let mut upstream = accept(&server);
    read_exactly(&mut upstream, 1);
    reset(client);
    assert!(is_reset(&mut upstream));
    rig.wait_for(End::ClientReset, 1);

    let mut client = rig.connect();
    client.write_all(b"x").unwrap();
    let mut upstream = accept(&server);
    read_exactly(&mut upstream, 1);
    reset(upstream);
    assert!(is_reset(&mut client));
    rig.wait_for(End::UpstreamReset, 1);
}

#[test]
fn a_reset_after_a_half_close_is_a_reset_too() {
    let (server, address) = listener();
    let rig = Rig::start(plain_table(address));
    let mut client = rig.connect();
    client.write_all(b"x").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut upstream = accept(&server);
    assert_eq!(read_to_end(&mut upstream), b"x");
    reset(upstream);
    assert!(is_reset(&mut client));
    rig.wait_for(End::UpstreamReset, 1);
}

#[test]
fn what_was_sent_before_a_reset_still_arrives() {
    let (server, address) = listener();
    let rig = Rig::start(plain_table(address));
    let mut client = rig.connect();
    client.write_all(b"unread question").unwrap();
    let mut upstream = accept(&server);
    upstream.write_all(b"answer").unwrap();
    // Closing with the question unread makes the kernel send a reset right after the answer.
    wait_until(|| upstream.peek(&mut [0; 64]).unwrap() == 15, "the question has arrived");
    drop(upstream);
    assert_eq!(read_exactly(&mut client, 6), b"answer");
}

/// 64 MiB each way at once, checked byte by byte.
#[test]
fn bulk_arrives_whole_in_both_directions_at_once() {
    const BYTES: usize = 64 << 20;
    let rig = Rig::start(plain_table(echo_server()));
    let client = rig.connect();
    let mut writer = client.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        for block in 0..BYTES / BLOCK {
            writer.write_all(&pattern(block)).unwrap();
        }
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut client = client;
    for block in 0..BYTES / BLOCK {
        assert!(read_exactly(&mut client, BLOCK) == pattern(block), "block {block} differs");
    }
    assert_eq!(read_to_end(&mut client), b"");
    sender.join().unwrap();
    rig.wait_for(End::Closed, 1);
}

const BLOCK: usize = 64 * 1024;

fn pattern(block: usize) -> Vec<u8> {
    (0..BLOCK).map(|index| (index.wrapping_mul(31) ^ block.wrapping_mul(7)) as u8).collect()
}

#[test]
fn a_reader_that_waits_holds_the_writer_back_and_loses_nothing() {
    let (server, address) = listener();
    let rig = Rig::start(plain_table(address));
    let mut client = rig.connect();
    // Nothing taken for so long means that all buffers on the way are full.
    client.set_write_timeout(Some(Duration::from_millis(250))).unwrap();
    let mut sent = 0;
    let block = vec![9; BLOCK];
    while let Ok(written) = client.write(&block) {
        sent += written;
        assert!(sent < 256 << 20, "nothing holds the writer back");
    }
    let mut upstream = accept(&server);
    client.shutdown(Shutdown::Write).unwrap();
    let received = read_to_end(&mut upstream);
    assert_eq!(received.len(), sent);
}

#[test]
fn small_messages_follow_bulk_and_bulk_follows_small_messages() {
    let rig = Rig::start(plain_table(echo_server()));
    let mut client = rig.connect();
    for round in 0..20 {
        client.write_all(b"ping").unwrap();
        assert_eq!(read_exactly(&mut client, 4), b"ping");
        let bulk = pattern(round);
        client.write_all(&bulk).unwrap();
        assert!(read_exactly(&mut client, bulk.len()) == bulk);
    }
}

#[test]
fn an_idle_connection_ends_when_its_route_says_so_and_a_busy_one_does_not() {
    let mut idle = route("a", &[echo_server()]);
    idle.idle_timeout = Some(Duration::from_millis(400));
    let rig = Rig::start(table(vec![idle]));
    let mut busy = rig.ask("a.example.com");
    let mut silent = rig.ask("a.example.com");
    read_exactly(&mut busy, hello("a.example.com").len());
    let mut buffer = Vec::new();
    let waiting = std::thread::spawn(move || silent.read_to_end(&mut buffer).map(|_| ()));
    while !waiting.is_finished() {
        busy.write_all(b"x").unwrap();
        read_exactly(&mut busy, 1);
    }
    waiting.join().unwrap().unwrap();
    rig.wait_for(End::IdleTimeout, 1);
}
