//! The corpora of the fuzzers that read what is sent over connections.

use crate::invariants;
use crate::replay::replay;

#[test]
fn client_hello() {
    replay("client_hello", invariants::client_hello);
}

#[test]
fn http() {
    replay("http", invariants::http);
}

#[test]
fn proxy_protocol() {
    replay("proxy_protocol", invariants::proxy_protocol);
}

#[test]
fn stream_header() {
    replay("stream_header", invariants::stream_header);
}
