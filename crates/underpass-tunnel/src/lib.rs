//! The two halves of a tunnel proxy. The client half listens where clients are (in a container network); the server half runs where
//! servers are (on the host) and dials them. Neither trusts the network between them.
//!
//! The server half also dials the client half, never the other way round: a container cannot reach every host. It keeps a stock of
//! data connections there, each proven by a keyed handshake, so that a stream costs no round trip to set up: the client half takes a
//! connection, writes a header that names the tunnel, and from then on both ends copy. What is told rarely (prepare, delete, list) goes
//! over control connections with TLS, both ends verified.
//!
//! One connection that carries all streams was rejected: a lost or slow one would delay the others, and what is framed cannot be
//! spliced.

mod addresses;
mod caller;
mod candidates;
mod capacity;
pub mod client;
mod control;
mod crowd;
mod datagrams;
mod handshake;
mod lines;
mod messages;
mod refusals;
mod secrets;
pub mod server;
mod stock;
mod tls;

pub use caller::{Caller, CallerError};
pub use messages::{
    ClientSeen, DataSeen, Listed, MOST_TUNNELS, Prepare, Prepared, Probed, Protocol, RefusalCounts, ServerSeen,
    TunnelSeen,
};
pub use secrets::{CallerSecrets, ClientSecrets, PairSecrets, SecretsError, ServerSecrets};
pub use tls::TlsError;

/// Where the client half listens for control connections, in its container.
pub const CONTROL_PORT: u16 = 15_049;
/// Where the client half listens for data connections, in its container.
pub const DATA_PORT: u16 = 15_050;

/// The error and all its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Threads that carry traffic in one half: both halves share a machine with each other, and with the clients and servers of the tunnels.
/// Fewer that have more to do at a time cost less than many that are woken for each message.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2))
}
