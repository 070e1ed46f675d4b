//! Sockets to accept from: one per worker and address, so that the kernel spreads the connections and no worker waits for another.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::{self, Errno};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, ipproto, listen, socket_with, sockopt};
use underpass_tables::Transport;

use crate::datagram::tell_addresses;

/// Connections that wait to be accepted; the kernel lowers it to what the system allows.
const BACKLOG: i32 = 4096;

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("{0} is in use by another process; stop that one, or choose another port")]
    InUse(SocketAddr),
    #[error("{0} is not an address of this machine; check serverIP")]
    NotOurs(SocketAddr),
    #[error("{0} needs the right to use ports below 1024: run as root, or grant the capability NET_BIND_SERVICE")]
    Forbidden(SocketAddr),
    #[error("{0} cannot be listened on")]
    Other(SocketAddr, #[source] Errno),
}

/// One socket per worker. Port 0 is chosen once, for all of them.
pub(crate) fn listeners(
    address: SocketAddr,
    transport: Transport,
    workers: usize,
) -> Result<(SocketAddr, Vec<Arc<OwnedFd>>), BindError> {
    // Sockets that share a port also share it with strangers of the same user: whether somebody is there already is asked without
    // sharing.
    drop(open(address, transport, false).map_err(|errno| explained(address, errno))?);
    let first = open(address, transport, true).map_err(|errno| explained(address, errno))?;
    let address = getsockname(&first).ok().and_then(|name| SocketAddr::try_from(name).ok()).unwrap_or(address);
    Ok((address, joined(vec![Arc::new(first)], address, transport, workers)?))
}

/// Adds to the sockets at an address until each worker has one.
pub(crate) fn joined(
    mut sockets: Vec<Arc<OwnedFd>>,
    address: SocketAddr,
    transport: Transport,
    workers: usize,
) -> Result<Vec<Arc<OwnedFd>>, BindError> {
    while sockets.len() < workers {
        sockets.push(Arc::new(open(address, transport, true).map_err(|errno| explained(address, errno))?));
    }
    Ok(sockets)
}

fn explained(address: SocketAddr, errno: Errno) -> BindError {
    match errno {
        Errno::ADDRINUSE => BindError::InUse(address),
        Errno::ADDRNOTAVAIL => BindError::NotOurs(address),
        Errno::ACCESS => BindError::Forbidden(address),
        errno => BindError::Other(address, errno),
    }
}

fn open(address: SocketAddr, transport: Transport, shared: bool) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let (kind, protocol) = match transport {
        Transport::Stream => (SocketType::STREAM, ipproto::TCP),
        Transport::Datagram => (SocketType::DGRAM, ipproto::UDP),
    };
    let fd = socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, Some(protocol))?;
    if transport == Transport::Stream {
        sockopt::set_socket_reuseaddr(&fd, true)?;
        // Inherited by what is accepted.
        sockopt::set_tcp_nodelay(&fd, true)?;
    }
    sockopt::set_socket_reuseport(&fd, shared)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, !address.ip().is_unspecified())?;
    }
    bind(&fd, &address)?;
    match transport {
        Transport::Stream => listen(&fd, BACKLOG)?,
        Transport::Datagram if address.ip().is_unspecified() => tell_addresses(&fd, address.ip()),
        Transport::Datagram => {}
    }
    Ok(fd)
}
