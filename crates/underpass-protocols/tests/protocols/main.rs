//! The parsers against examples, properties, real clients, another parser and the fuzzers' corpora.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod client_hello;
mod corpus;
mod hellos;
mod http;
mod invariants;
mod proxy_protocol;
mod real_clients;
mod replay;
mod rustls_agrees;
mod stream_header;
