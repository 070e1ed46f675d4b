//! What a load costs the processes that carry it.

use std::net::SocketAddr;

use super::{Backend, client};
use crate::usage::{Usage, at_rest, cpu_of, own_cpu};

/// Connections that carry bulk at the same time.
pub const BULK_CONNECTIONS: usize = 4;

const GIB: f64 = (1u64 << 30) as f64;

/// Processor seconds per GiB.
pub struct Bulk {
    pub carriers: f64,
    /// With client and server: who only moved work into their share of the kernel would be seen here.
    pub everybody: f64,
}

/// Of one idle connection.
pub struct Idle {
    pub resident_kib: f64,
    pub descriptors: f64,
}

/// So many bytes each way, on each connection, both ways at once.
pub fn bulk(usage: impl Fn() -> Usage, at: SocketAddr, name: &str, bytes: u64) -> anyhow::Result<Bulk> {
    let before = own_cpu();
    let (used, ()) = cpu_of(usage, || client::bulk(at, name, BULK_CONNECTIONS, bytes))?;
    let beside = (own_cpu() - before).as_secs_f64();
    let gib = (2 * BULK_CONNECTIONS as u64 * bytes) as f64 / GIB;
    Ok(Bulk { carriers: used / gib, everybody: (used + beside) / gib })
}

/// So many connections to the service that holds them.
pub fn idle(
    usage: impl Fn() -> Usage,
    at: SocketAddr,
    name: &str,
    count: usize,
    backend: &Backend,
) -> anyhow::Result<Idle> {
    let before = at_rest(&usage);
    let connections = client::idle(at, name, count)?;
    let after = at_rest(&usage);
    drop(connections);
    backend.let_go();
    let each = |before: u64, after: u64| after.saturating_sub(before) as f64 / count as f64;
    Ok(Idle {
        resident_kib: each(before.resident_kib, after.resident_kib),
        descriptors: each(before.descriptors, after.descriptors),
    })
}
