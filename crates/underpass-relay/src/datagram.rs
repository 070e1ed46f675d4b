//! Datagrams with both of their addresses. Who listens at all addresses of a machine has to answer by the one that was asked: clients take no other
//! answer, and where there are routes by source, the answer takes another way without it.
//!
//! `nix`, because rustix knows no `IP_PKTINFO`.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::libc::{in_addr, in_pktinfo, in6_addr, in6_pktinfo};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
};
use rustix::io::{self, Errno};

/// Has every datagram tell which address it was sent to. Where that cannot be had answers go as the kernel thinks best.
pub(crate) fn tell_addresses(socket: &OwnedFd, listening_at: IpAddr) {
    let _ = match listening_at {
        IpAddr::V4(_) => setsockopt(socket, sockopt::Ipv4PacketInfo, &true),
        IpAddr::V6(_) => setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true),
    };
}

/// What came with a datagram: how long it is, who sent it, and to which address of ours, if the socket tells.
pub(crate) struct Received {
    pub(crate) length: usize,
    pub(crate) client: Option<SocketAddr>,
    pub(crate) asked: Option<IpAddr>,
}

/// Room for what comes beside a datagram.
pub(crate) fn room() -> Vec<u8> {
    nix::cmsg_space!(in6_pktinfo)
}

pub(crate) fn receive(socket: &OwnedFd, buffer: &mut [u8], room: &mut [u8]) -> io::Result<Received> {
    let mut parts = [IoSliceMut::new(buffer)];
    let received = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(room), MsgFlags::empty());
    let received = received.map_err(errno)?;
    let beside = received.cmsgs().into_iter().flatten();
    Ok(Received {
        length: received.bytes,
        client: received.address.as_ref().and_then(address),
        asked: beside.filter_map(|message| local_address(&message)).next(),
    })
}

/// A datagram to the client, from the address that it asked.
pub(crate) fn answer(socket: &OwnedFd, datagram: &[u8], client: SocketAddr, asked: Option<IpAddr>) -> io::Result<()> {
    let (parts, to) = ([IoSlice::new(datagram)], SockaddrStorage::from(client));
    let send = |beside: &[ControlMessage<'_>]| {
        sendmsg(socket.as_raw_fd(), &parts, beside, MsgFlags::MSG_NOSIGNAL, Some(&to)).map(drop).map_err(errno)
    };
    match asked {
        None => send(&[]),
        Some(IpAddr::V4(from)) => {
            let from = in_addr { s_addr: u32::from_ne_bytes(from.octets()) };
            let any = in_addr { s_addr: 0 };
            send(&[ControlMessage::Ipv4PacketInfo(&in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: from, ipi_addr: any })])
        }
        Some(IpAddr::V6(from)) => {
            let from = in6_addr { s6_addr: from.octets() };
            send(&[ControlMessage::Ipv6PacketInfo(&in6_pktinfo { ipi6_addr: from, ipi6_ifindex: 0 })])
        }
    }
}

/// Of ours; a group or everybody is no address to answer from.
fn local_address(message: &ControlMessageOwned) -> Option<IpAddr> {
    let address = match message {
        ControlMessageOwned::Ipv4PacketInfo(info) => Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes()).into(),
        ControlMessageOwned::Ipv6PacketInfo(info) => Ipv6Addr::from(info.ipi6_addr.s6_addr).into(),
        _ => return None,
    };
    Some(address).filter(|address: &IpAddr| !address.is_multicast() && !address.is_unspecified())
}

fn address(sender: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = sender.as_sockaddr_in().map(|sender| SocketAddr::V4((*sender).into()));
    v4.or_else(|| sender.as_sockaddr_in6().map(|sender| SocketAddr::V6((*sender).into())))
}

fn errno(errno: nix::errno::Errno) -> Errno {
    Errno::from_raw_os_error(errno as i32)
}
