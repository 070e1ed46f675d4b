//! The PROXY header that an endpoint is sent first, if its route says so.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::getsockname;
use underpass_protocols::proxy_protocol::{Addresses, Checksum, HeaderBytes, Transport, write_v1, write_v2};
use underpass_tables::ProxyHeader;

use crate::record::{Record, plain};

/// None when the route wants none. `destination` is what a PROXY header in front of us told; else it is our own address.
pub(crate) fn for_route(record: &Record, destination: Option<SocketAddr>, client: &OwnedFd) -> Option<HeaderBytes> {
    let version = record.chosen.as_ref()?.route.route.proxy_header?;
    let own = || getsockname(client).ok().and_then(|address| SocketAddr::try_from(address).ok());
    let addresses = match destination.or_else(own).map(plain) {
        Some(destination) => Addresses::Ip { transport: Transport::Stream, source: record.source, destination },
        None => Addresses::Unspecified,
    };
    Some(match version {
        ProxyHeader::V1 => write_v1(&addresses),
        ProxyHeader::V2 => write_v2(&addresses, &[], Checksum::Omit).expect("two addresses fit"),
    })
}
