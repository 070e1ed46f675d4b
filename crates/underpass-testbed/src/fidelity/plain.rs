//! What is not TLS: refused with sense on a port for TLS, carried as it is on a port for everything.

use std::time::{Duration, Instant};

use super::Case;
use super::conn::{End, Outcome, PATIENCE, noise};
use super::lane::{Lane, Setup, Which};
use crate::proxies::HELLO_DEADLINE;

/// Silence for 300 ms, then the backend is dialled; the rest is for a busy machine.
const BANNER_WITHIN: Duration = Duration::from_millis(1_500);
/// Beyond the deadline, for a busy machine.
const GRACE: Duration = Duration::from_secs(5);
/// A short answer.
const SHORT: usize = 1024;

pub(super) const CASES: &[Case] = &[
    Case::new("plain HTTP on a TLS port", "a short, correct 400, and no backend hears of it", Setup::Named, http),
    Case::new("plain HTTP in two segments", "the same when the method is cut", Setup::Named, http_in_pieces),
    Case::new("garbage on a TLS port", "refused, and no backend hears of it", Setup::Named, |lane| {
        lane.expect_refused(&noise(300, 12))
    }),
    Case::new(
        "one wrong byte on a TLS port",
        "refused, at the latest when the time for a hello is over",
        Setup::Named,
        |lane| lane.expect_refused_within(b"\xf0", HELLO_DEADLINE + GRACE),
    ),
    Case::new("PROXY header on a port without", "refused: nobody asked for it", Setup::Named, uninvited_header),
    Case::new("plain TCP", "a port for everything carries what is not TLS", Setup::Plain, plain_tcp),
    Case::new("plain TCP: server speaks first", "its banner comes to a silent client", Setup::Plain, server_first),
    Case::new("plain TCP: TLS", "carries TLS as well", Setup::Plain, tls),
    Case::new(
        "plain TCP: FIN with the first bytes",
        "both arrive, and the answer comes back",
        Setup::Plain,
        fin_at_once,
    ),
];

fn http(lane: &Lane<'_>) -> Outcome {
    let mut client = lane.connect()?;
    client.send(b"GET / HTTP/1.1\r\nHost: own.example.test\r\n\r\n")?;
    expect_bad_request(lane, client.rest(PATIENCE))
}

fn http_in_pieces(lane: &Lane<'_>) -> Outcome {
    let mut client = lane.connect()?;
    client.dribble(b"OPTIONS * HTTP/1.1\r\nHost: own.example.test\r\n\r\n")?;
    expect_bad_request(lane, client.rest(PATIENCE))
}

fn expect_bad_request(lane: &Lane<'_>, (bytes, end): (Vec<u8>, End)) -> Outcome {
    let text = String::from_utf8_lossy(&bytes);
    if bytes.is_empty() {
        return Err(format!("no answer but {end:?}"));
    }
    if !text.starts_with("HTTP/1.1 400 ") || end != End::Fin || bytes.len() > SHORT {
        let first: String = text.chars().take(20).collect();
        return Err(format!("{} bytes that begin with {first:?}, then {end:?}", bytes.len()));
    }
    let (head, body) = text.split_once("\r\n\r\n").ok_or("an answer without an end of its head")?;
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    if length.is_some_and(|length: usize| length != body.len()) {
        return Err(format!("content-length {length:?} for {} bytes", body.len()));
    }
    lane.expect_no_backend()
}

fn uninvited_header(lane: &Lane<'_>) -> Outcome {
    let header = b"PROXY TCP4 192.0.2.1 192.0.2.2 1111 443\r\n".to_vec();
    lane.expect_refused(&[header, lane.hello().bytes()].concat())
}

fn plain_tcp(lane: &Lane<'_>) -> Outcome {
    let mut client = lane.connect()?;
    client.send(b"EHLO client.example.test\r\n")?;
    let mut backend = lane.accept_with(Which::Own, b"EHLO client.example.test\r\n")?;
    backend.send(b"250 own.example.test\r\n")?;
    client.expect(b"250 own.example.test\r\n")
}

fn tls(lane: &Lane<'_>) -> Outcome {
    lane.still_works()
}

fn server_first(lane: &Lane<'_>) -> Outcome {
    let mut client = lane.connect()?;
    let begun = Instant::now();
    let mut backend = lane.accept(Which::Own)?;
    backend.send(b"220 own.example.test ready\r\n")?;
    client.expect(b"220 own.example.test ready\r\n")?;
    let took = begun.elapsed();
    if took > BANNER_WITHIN {
        return Err(format!("the banner came after {took:?}"));
    }
    client.send(b"QUIT\r\n")?;
    backend.expect(b"QUIT\r\n")
}

fn fin_at_once(lane: &Lane<'_>) -> Outcome {
    let mut client = lane.connect()?;
    client.send(b"whois example.test\r\n")?;
    client.finish()?;
    let mut backend = lane.accept_with(Which::Own, b"whois example.test\r\n")?;
    backend.expect_fin()?;
    backend.send(b"nobody\r\n")?;
    backend.finish()?;
    client.expect(b"nobody\r\n")?;
    client.expect_fin()
}
