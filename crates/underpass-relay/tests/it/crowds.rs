//! Many connections that are busy at once, whose messages may be sent together.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::thread;

use underpass_relay::{End, Settings};

use crate::rig::{Rig, accept, echo_server, listener, plain_table, read_exactly, reset, wait_until};

const CLIENTS: usize = 48;
const MESSAGES: usize = 200;

/// One worker, so that all connections meet in its rounds.
fn settings(io_uring: bool) -> Settings {
    Settings { workers: 1, io_uring, ..Settings::default() }
}

#[test]
fn every_message_comes_back_whole_and_in_order() {
    for io_uring in [true, false] {
        let rig = Rig::start_with(settings(io_uring), plain_table(echo_server()));
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let rig = &rig;
                scope.spawn(move || exchange(rig.connect(), client));
            }
        });
        rig.wait_for(End::Closed, CLIENTS as u64);
    }
}

/// Messages of all sizes, a few of them under way at a time; some clients leave with the last one.
fn exchange(mut stream: TcpStream, client: usize) {
    for message in 0..MESSAGES {
        let size = 1 + (client * 131 + message * 257) % 3000;
        let sent: Vec<u8> = (0..size).map(|index| (index + client + message) as u8).collect();
        for piece in sent.chunks(700) {
            stream.write_all(piece).unwrap();
        }
        if message + 1 == MESSAGES && client.is_multiple_of(2) {
            stream.shutdown(Shutdown::Write).unwrap();
        }
        assert_eq!(read_exactly(&mut stream, size), sent, "client {client}, message {message}");
    }
}

#[test]
fn one_that_does_not_read_and_one_that_breaks_do_not_disturb_the_others() {
    for io_uring in [true, false] {
        let (server, address) = listener();
        let rig = Rig::start_with(settings(io_uring), plain_table(address));
        let mut pairs: Vec<_> = (0..16)
            .map(|_| {
                let mut client = rig.connect();
                client.write_all(b"x").unwrap();
                let mut upstream = accept(&server);
                read_exactly(&mut upstream, 1);
                (client, upstream)
            })
            .collect();
        let (_reads_nothing, mut sends_on) = pairs.remove(0);
        sends_on.set_nonblocking(true).unwrap();
        for round in 0..300_u32 {
            // Small messages until nothing more is taken, beside those of the others.
            let _ = sends_on.write(&[7; 1500]);
            for (client, upstream) in &mut pairs {
                client.write_all(&round.to_be_bytes()).unwrap();
                upstream.write_all(&round.to_be_bytes()).unwrap();
            }
            if round % 25 == 24 {
                let (client, upstream) = pairs.pop().unwrap();
                if round.is_multiple_of(2) { reset(client) } else { reset(upstream) }
            }
            for (client, upstream) in &mut pairs {
                assert_eq!(read_exactly(upstream, 4), round.to_be_bytes());
                assert_eq!(read_exactly(client, 4), round.to_be_bytes());
            }
        }
        let broken = || {
            let stats = &rig.relay.live().listeners[0].stats;
            stats.count(End::ClientReset) + stats.count(End::UpstreamReset)
        };
        wait_until(|| broken() == 12, "those that broke were told of");
    }
}
