//! What one client, or all of them together, may take from the server before they are refused.
//!
//! Every bound ends in an answer or a closed connection, never in a wait of the server's: a refusal is cheap, a queue is not.

use std::time::Duration;

/// The bounds of one listener. The defaults fit a laptop and the client libraries of Kubernetes as they come.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Connections open at once; one more is closed without a word. HTTP/2 clients share one for all their requests.
    pub(crate) connections: usize,
    /// Connections whose TLS handshake has not ended: the only state a stranger can pile up.
    pub(crate) handshakes: usize,
    /// From accept to the end of the TLS handshake.
    pub(crate) handshake: Duration,
    /// From the first byte of a request, or from the handshake for the first one, to the end of its header.
    pub(crate) header: Duration,
    /// Bytes of a request's header, at least 8 KiB; more is answered with 431.
    pub(crate) header_bytes: u32,
    /// From the end of the header to the end of the body; later is answered with 408.
    pub(crate) body: Duration,
    /// Bytes of a request's body; more is answered with 413. The size that kube-apiserver allows.
    pub(crate) body_bytes: usize,
    /// Requests other than watches between admission and the last byte of the answer; one more is answered with 429.
    pub(crate) in_flight: usize,
    /// Watches open at once; one more is answered with 429.
    pub(crate) watches: usize,
    /// Requests that one HTTP/2 connection may have open.
    pub(crate) streams: u32,
    /// Silence after which a connection without an open request is closed.
    pub(crate) idle: Duration,
    /// Between two HTTP/2 pings; a peer that does not answer one within the same time is gone.
    pub(crate) ping: Duration,
    /// How long a peer may accept no byte of what waits for it before its response, and only that, is dropped.
    pub(crate) stall: Duration,
    /// What requests get to finish when the server stops.
    pub(crate) drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            handshakes: 512,
            handshake: Duration::from_secs(10),
            header: Duration::from_secs(10),
            header_bytes: 64 << 10,
            body: Duration::from_secs(30),
            body_bytes: 3 << 20,
            in_flight: 400,
            watches: 10_000,
            streams: 250,
            idle: Duration::from_secs(180),
            ping: Duration::from_secs(30),
            stall: Duration::from_secs(30),
            drain: Duration::from_secs(10),
        }
    }
}
