//! Version 2: binary, with room for more (TLVs).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{
    Addresses, Command, Header, Parsed, ProxyProtocolError, Tlvs, Transport, Version, check_signature, crc32c,
};
use crate::cursor::Cursor;

pub(super) const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
pub(super) const FIXED: usize = 16;
pub(super) const LOCAL: u8 = 0x20;
pub(super) const PROXY: u8 = 0x21;
pub(super) const UNIX_PATH: usize = 108;

/// What may follow the fixed part. The field could say 64 kB; known senders stay below 600 bytes, one with a client certificate
/// in a TLV below 4 kB.
const MAX_BODY: usize = 4096;

/// The longest header that is read.
pub const MAX_HEADER: usize = FIXED + MAX_BODY;

pub(super) fn parse(bytes: &[u8]) -> Result<Parsed<'_>, ProxyProtocolError> {
    check_signature(bytes, &SIGNATURE)?;
    let Some([.., version_and_command, family, high, low]) = bytes.first_chunk::<FIXED>() else {
        return Ok(Parsed::Incomplete { need: FIXED });
    };
    let layout = match *version_and_command {
        LOCAL => None,
        PROXY => Some(Layout::of(*family)?),
        unknown => return Err(ProxyProtocolError::VersionAndCommand(unknown)),
    };
    let body = usize::from(u16::from_be_bytes([*high, *low]));
    if body > MAX_BODY {
        return Err(ProxyProtocolError::TooLong);
    }
    let Some(header) = bytes.get(..FIXED + body) else {
        return Ok(Parsed::Incomplete { need: FIXED + body });
    };
    layout.map_or_else(|| Ok(local(header)), |layout| proxied(header, layout)).map(Parsed::Header)
}

/// Which addresses a header has.
#[derive(Clone, Copy)]
enum Layout {
    None,
    Inet(Transport),
    Inet6(Transport),
    Unix(Transport),
}

impl Layout {
    fn of(family_and_transport: u8) -> Result<Self, ProxyProtocolError> {
        match family_and_transport {
            0x00 => Ok(Self::None),
            0x11 => Ok(Self::Inet(Transport::Stream)),
            0x12 => Ok(Self::Inet(Transport::Datagram)),
            0x21 => Ok(Self::Inet6(Transport::Stream)),
            0x22 => Ok(Self::Inet6(Transport::Datagram)),
            0x31 => Ok(Self::Unix(Transport::Stream)),
            0x32 => Ok(Self::Unix(Transport::Datagram)),
            unknown => Err(ProxyProtocolError::FamilyAndTransport(unknown)),
        }
    }

    fn read<'a>(self, body: &mut Cursor<'a>) -> Option<Addresses<'a>> {
        Some(match self {
            Self::None => Addresses::Unspecified,
            Self::Inet(transport) => {
                let [source, destination] = [body.array()?, body.array()?].map(Ipv4Addr::from_octets);
                ip(transport, source, destination, body)?
            }
            Self::Inet6(transport) => {
                let [source, destination] = [body.array()?, body.array()?].map(Ipv6Addr::from_octets);
                ip(transport, source, destination, body)?
            }
            Self::Unix(transport) => {
                let [source, destination] = [body.take(UNIX_PATH)?, body.take(UNIX_PATH)?].map(without_filling);
                Addresses::Unix { transport, source, destination }
            }
        })
    }
}

/// Of a header in which the sender speaks for itself nothing but the length is to be believed.
fn local(header: &[u8]) -> Header<'_> {
    Header {
        version: Version::V2,
        command: Command::Local,
        addresses: Addresses::Unspecified,
        tlvs: Tlvs::default(),
        len: header.len(),
    }
}

fn proxied(header: &[u8], layout: Layout) -> Result<Header<'_>, ProxyProtocolError> {
    let mut body = Cursor::new(&header[FIXED..]);
    let addresses = layout.read(&mut body).ok_or(ProxyProtocolError::TooShort)?;
    let tlvs = Tlvs::parse(body.rest())?;
    check_sum(header, tlvs)?;
    Ok(Header { version: Version::V2, command: Command::Proxy, addresses, tlvs, len: header.len() })
}

fn ip<A: Into<std::net::IpAddr>>(
    transport: Transport,
    source: A,
    destination: A,
    body: &mut Cursor<'_>,
) -> Option<Addresses<'static>> {
    let source = SocketAddr::new(source.into(), body.u16()?);
    let destination = SocketAddr::new(destination.into(), body.u16()?);
    Some(Addresses::Ip { transport, source, destination })
}

/// Abstract sockets have zeros within their names, so only those at the end go.
fn without_filling(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &path[..end]
}

/// The sum is taken over the whole header, with zeros in its own place.
fn check_sum(header: &[u8], tlvs: Tlvs<'_>) -> Result<(), ProxyProtocolError> {
    let Some((offset, stated)) = tlvs.checksum()? else { return Ok(()) };
    let at = header.len() - tlvs.len() + offset;
    let (before, after) = (&header[..at], &header[at + stated.len()..]);
    let computed = crc32c::sum(&[before, &[0; 4], after]);
    if computed == u32::from_be_bytes(stated) { Ok(()) } else { Err(ProxyProtocolError::Checksum) }
}
