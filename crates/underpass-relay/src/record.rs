//! What becomes of one connection, told once: the access log line and the metrics come from here and nowhere else.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;
use underpass_tables::{Refusal, Rule};

use crate::live::{Endpoint, LiveListener, LiveRoute};

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both ends were passed on.
    Closed,
    ClientReset,
    UpstreamReset,
    IdleTimeout,
    /// Its route was removed, or the process ends, and the drain time was over. A flow of datagrams: a table led it elsewhere.
    Drained,
    /// The client left before a decision or before an endpoint answered.
    ClientLeft,
    /// No hello, or no whole one, in time.
    HelloTimeout,
    InvalidHello,
    InvalidProxyHeader,
    /// Answered with a 400.
    PlainHttp,
    UnknownName,
    NoName,
    NotTls,
    SourceNotAllowed,
    /// A limit of all listeners together.
    TooManyConnections,
    TooManyFromSource,
    TooManyHalfOpen,
    /// The route's own limit.
    RouteFull,
    NoEndpoints,
    ConnectFailed,
    ConnectTimeout,
    /// A defect of ours; stderr has the details.
    Defect,
    UnknownTunnel,
    /// This process or machine could make no more connections: no descriptors, memory or ports were left.
    OutOfResources,
}

impl End {
    pub const ALL: [Self; 24] = [
        Self::Closed,
        Self::ClientReset,
        Self::UpstreamReset,
        Self::IdleTimeout,
        Self::Drained,
        Self::ClientLeft,
        Self::HelloTimeout,
        Self::InvalidHello,
        Self::InvalidProxyHeader,
        Self::PlainHttp,
        Self::UnknownName,
        Self::NoName,
        Self::NotTls,
        Self::SourceNotAllowed,
        Self::TooManyConnections,
        Self::TooManyFromSource,
        Self::TooManyHalfOpen,
        Self::RouteFull,
        Self::NoEndpoints,
        Self::ConnectFailed,
        Self::ConnectTimeout,
        Self::Defect,
        Self::UnknownTunnel,
        Self::OutOfResources,
    ];

    /// As metrics and the access log call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::ClientReset => "client_reset",
            Self::UpstreamReset => "upstream_reset",
            Self::IdleTimeout => "idle_timeout",
            Self::Drained => "drained",
            Self::ClientLeft => "client_left",
            Self::HelloTimeout => "hello_timeout",
            Self::InvalidHello => "invalid_hello",
            Self::InvalidProxyHeader => "invalid_proxy_header",
            Self::PlainHttp => "plain_http",
            Self::UnknownName => "unknown_name",
            Self::NoName => "no_name",
            Self::NotTls => "not_tls",
            Self::SourceNotAllowed => "source_not_allowed",
            Self::TooManyConnections => "too_many_connections",
            Self::TooManyFromSource => "too_many_from_source",
            Self::TooManyHalfOpen => "too_many_half_open",
            Self::RouteFull => "route_full",
            Self::NoEndpoints => "no_endpoints",
            Self::ConnectFailed => "connect_failed",
            Self::ConnectTimeout => "connect_timeout",
            Self::Defect => "defect",
            Self::UnknownTunnel => "unknown_tunnel",
            Self::OutOfResources => "out_of_resources",
        }
    }
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::UnknownName => Self::UnknownName,
            Refusal::NoName => Self::NoName,
            Refusal::NotTls => Self::NotTls,
            Refusal::SourceNotAllowed => Self::SourceNotAllowed,
            Refusal::UnknownTunnel => Self::UnknownTunnel,
        }
    }
}

/// One connection, from accept to end.
pub(crate) struct Record {
    listener: Arc<LiveListener>,
    /// Of the socket, or as a PROXY header told; see `plain`.
    pub(crate) source: SocketAddr,
    pub(crate) chosen: Option<Chosen>,
    /// As asked for, for the access log only.
    pub(crate) server_name: Option<Box<str>>,
    started_ms: u64,
}

/// Where a connection goes.
pub(crate) struct Chosen {
    pub(crate) route: Arc<LiveRoute>,
    pub(crate) rule: Rule,
    /// Once connected.
    endpoint: Option<u16>,
    /// The last one that was tried in vain.
    tried: Option<u16>,
}

/// What the directions carried.
#[derive(Clone, Copy, Default)]
pub(crate) struct Carried {
    pub(crate) up: u64,
    pub(crate) down: u64,
}

impl Record {
    pub(crate) fn begin(listener: &Arc<LiveListener>, source: SocketAddr, now_ms: u64) -> Self {
        listener.stats.total.fetch_add(1, Relaxed);
        listener.stats.active.fetch_add(1, Relaxed);
        Self { listener: listener.clone(), source: plain(source), chosen: None, server_name: None, started_ms: now_ms }
    }

    pub(crate) fn listener(&self) -> &Arc<LiveListener> {
        &self.listener
    }

    /// A connection that was handed over begins when it is used.
    pub(crate) fn begins(&mut self, now_ms: u64) {
        self.started_ms = now_ms;
    }

    pub(crate) fn started_ms(&self) -> u64 {
        self.started_ms
    }

    pub(crate) fn decided(&mut self, route: Arc<LiveRoute>, rule: Rule, now_ms: u64) {
        self.listener.stats.opening.observe(now_ms - self.started_ms);
        route.stats.active.fetch_add(1, Relaxed);
        route.stats.total.fetch_add(1, Relaxed);
        self.chosen = Some(Chosen { route, rule, endpoint: None, tried: None });
    }

    pub(crate) fn connected(&mut self, endpoint: u16, since_ms: u64, now_ms: u64) {
        if let Some(chosen) = &mut self.chosen {
            chosen.endpoint = Some(endpoint);
            chosen.route.stats.connecting.observe(now_ms - since_ms);
            chosen.route.endpoint_connected(endpoint);
        }
    }

    /// Nobody could be connected to; this one was the last to be asked.
    pub(crate) fn tried(&mut self, endpoint: Option<u16>) {
        if let Some(chosen) = &mut self.chosen {
            chosen.tried = endpoint;
        }
    }

    /// The endpoint that was connected to has failed after all.
    pub(crate) fn endpoint_failed(&self, errno: Errno, now_ms: u64) {
        if let Some(Chosen { route, endpoint: Some(endpoint), .. }) = &self.chosen {
            route.endpoint_failed(*endpoint, errno, now_ms);
        }
    }

    /// Counts the end, and writes its line when there is a log.
    pub(crate) fn finish(self, end: End, carried: Carried, now_ms: u64, log: Option<&mut String>) {
        // What a client has said before there was anybody to say it to was not carried.
        let connected = self.chosen.as_ref().is_some_and(|chosen| chosen.endpoint.is_some());
        let carried = if connected { carried } else { Carried::default() };
        self.listener.stats.ended(end);
        let age = now_ms - self.started_ms;
        if let Some(chosen) = &self.chosen {
            let stats = &chosen.route.stats;
            stats.active.fetch_sub(1, Relaxed);
            stats.bytes_sent.fetch_add(carried.up, Relaxed);
            stats.bytes_received.fetch_add(carried.down, Relaxed);
            stats.lifetime.observe(age);
            if let Some(endpoint) = chosen.endpoint {
                chosen.at(endpoint).released();
            }
        }
        if let Some(log) = log {
            self.write_line(end, carried, age, log);
        }
    }

    fn write_line(&self, end: End, carried: Carried, age: u64, log: &mut String) {
        let chosen = self.chosen.as_ref();
        // Names and routes were checked to be plain: nothing in a line needs escaping. Writing to a String cannot fail.
        let _ = write!(log, "{{\"time\":\"{:.3}\",\"listener\":\"{}\"", jiff::Timestamp::now(), self.listener.name);
        let _ = write!(log, ",\"client\":\"{}\"", self.source);
        if let Some(name) = &self.server_name {
            let _ = write!(log, ",\"server_name\":\"{name}\"");
        }
        if let Some(chosen) = chosen {
            let _ = write!(log, ",\"route\":\"{}\",\"rule\":\"{}\"", chosen.route.route.name, chosen.rule.as_str());
        }
        if let Some((chosen, endpoint)) = chosen.and_then(|chosen| Some((chosen, chosen.endpoint.or(chosen.tried)?))) {
            let _ = write!(log, ",\"endpoint\":\"{}\"", chosen.at(endpoint).address);
        }
        let Carried { up, down } = carried;
        let _ = writeln!(
            log,
            ",\"bytes_sent\":{up},\"bytes_received\":{down},\"duration_ms\":{age},\"end\":\"{}\"}}",
            end.as_str()
        );
    }
}

/// An IPv4 address as such, also when it came through a socket for IPv6 or in a header of that family: who reads it knows one name for it.
pub(crate) fn plain(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => v6.ip().to_ipv4_mapped().map_or(address, |v4| (v4, v6.port()).into()),
        SocketAddr::V4(_) => address,
    }
}

impl Chosen {
    pub(crate) fn connected_to(&self) -> Option<SocketAddr> {
        self.endpoint.map(|endpoint| self.at(endpoint).address)
    }

    fn at(&self, endpoint: u16) -> &Arc<Endpoint> {
        &self.route.endpoints[usize::from(endpoint)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_counted_where_they_belong() {
        for (index, end) in End::ALL.into_iter().enumerate() {
            assert_eq!(end as usize, index, "{end:?}");
        }
    }
}
