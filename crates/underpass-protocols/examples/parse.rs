//! What one question costs: `cargo run --release -p underpass-protocols --example parse`.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark for people")]

use std::hint::black_box;
use std::time::Instant;

use underpass_protocols::{Inspected, NormalName, ServerName, inspect, proxy_protocol};

const ROUNDS: u32 = 200;
const QUESTIONS: u32 = 1000;

fn main() {
    let hellos: [(&str, &[u8]); 4] = [
        ("TLS 1.2", include_bytes!("../tests/hellos/openssl-tls12.bin")),
        ("TLS 1.3", include_bytes!("../tests/hellos/openssl.bin")),
        ("post-quantum, ECH", include_bytes!("../tests/hellos/go-ech.bin")),
        ("two records", include_bytes!("../tests/hellos/go-20k.bin")),
    ];
    let mut scratch = Vec::new();
    for (what, bytes) in hellos {
        measure(what, bytes, || {
            let Inspected::Tls(hello) = inspect(black_box(bytes), &mut scratch) else { panic!("not a hello") };
            black_box(hello.server_name().map(ServerName::normal));
        });
    }
    measure("HTTP", b"GET / HTTP/1.1\r\n", || {
        black_box(inspect(black_box(b"GET / HTTP/1.1\r\n"), &mut Vec::new()));
    });
    measure("a name", b"API.Example.com.", || {
        black_box(NormalName::new(black_box("API.Example.com.")));
    });
    let line = b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n";
    measure("PROXY protocol 1", line, || {
        black_box(proxy_protocol::parse(black_box(line)));
    });
    let proxy_protocol::Parsed::Header(header) = proxy_protocol::parse(line) else { panic!("not a header") };
    for checksum in [proxy_protocol::Checksum::Omit, proxy_protocol::Checksum::Crc32c] {
        let written = proxy_protocol::write_v2(&header.addresses, &[], checksum).unwrap();
        measure(&format!("PROXY protocol 2, sum: {checksum:?}"), &written, || {
            black_box(proxy_protocol::parse(black_box(&written)));
        });
    }
}

/// The best of several rounds: what else the machine does is not the question.
fn measure(what: &str, bytes: &[u8], mut question: impl FnMut()) {
    let mut round = || {
        let start = Instant::now();
        (0..QUESTIONS).for_each(|_| question());
        start.elapsed()
    };
    let best = (0..ROUNDS).map(|_| round()).min().unwrap_or_default();
    println!("{what:32} {:6} bytes {:8.1} ns", bytes.len(), best.as_nanos() as f64 / f64::from(QUESTIONS));
}
