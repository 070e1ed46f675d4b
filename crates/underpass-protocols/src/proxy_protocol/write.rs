//! Writing headers, into a buffer on the stack: one goes out before the first byte of every connection that asks for it.

use std::fmt::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Deref;

use super::v2::{FIXED, LOCAL, PROXY, SIGNATURE, UNIX_PATH};
use super::{Addresses, CRC32C, Tlv, Transport, crc32c};

/// The longest header that is written: it has to go out in one piece, and so much fits into the smallest segment of TCP.
pub const MAX_WRITTEN: usize = 536;

const INET: u8 = 0x10;
const INET6: u8 = 0x20;
const UNIX: u8 = 0x30;

/// A header, ready to be sent.
#[derive(Clone, Copy)]
pub struct HeaderBytes {
    bytes: [u8; MAX_WRITTEN],
    len: usize,
}

/// Whether a version 2 header carries a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    Omit,
    Crc32c,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    #[error("the header would have more than {MAX_WRITTEN} bytes")]
    TooLong,
    #[error("the path of a socket has more than {UNIX_PATH} bytes")]
    PathTooLong,
}

/// A line of version 1. What it cannot say (datagrams, paths) it says is unknown. When only one address is of IPv4, it is
/// written as the IPv6 address that stands for it.
pub fn write_v1(addresses: &Addresses<'_>) -> HeaderBytes {
    let mut line = HeaderBytes::new();
    let written = match *addresses {
        Addresses::Ip { transport: Transport::Stream, source, destination } => {
            write_line(&mut line, source, destination)
        }
        _ => line.write_str("PROXY UNKNOWN\r\n"),
    };
    written.expect("the longest line is shorter than the buffer");
    line
}

/// A header of version 2. A checksum among the `tlvs` was that of another header and is left out.
pub fn write_v2(addresses: &Addresses<'_>, tlvs: &[Tlv<'_>], checksum: Checksum) -> Result<HeaderBytes, WriteError> {
    let mut header = HeaderBytes::fixed(PROXY);
    let family = header.push_addresses(addresses)?;
    for tlv in tlvs.iter().filter(|tlv| tlv.kind != CRC32C) {
        header.push_tlv(*tlv)?;
    }
    if checksum == Checksum::Crc32c {
        header.push_tlv(Tlv { kind: CRC32C, value: &[0; 4] })?;
    }
    header.bytes[13] = family;
    header.set_length();
    if checksum == Checksum::Crc32c {
        header.set_sum();
    }
    Ok(header)
}

/// A header of version 2 by which we speak for ourselves, as in a health check.
pub fn write_v2_local() -> HeaderBytes {
    HeaderBytes::fixed(LOCAL)
}

fn write_line(line: &mut HeaderBytes, source: SocketAddr, destination: SocketAddr) -> fmt::Result {
    let ports = (source.port(), destination.port());
    match Pair::of(source, destination) {
        Pair::V4(from, to) => write!(line, "PROXY TCP4 {from} {to} {} {}\r\n", ports.0, ports.1),
        Pair::V6(from, to) => {
            line.write_str("PROXY TCP6 ")?;
            write_groups(line, from)?;
            line.write_char(' ')?;
            write_groups(line, to)?;
            write!(line, " {} {}\r\n", ports.0, ports.1)
        }
    }
}

/// All eight groups in hexadecimal: the specification knows no dotted quads within an IPv6 address, which `Display` writes.
fn write_groups(line: &mut HeaderBytes, address: Ipv6Addr) -> fmt::Result {
    for (index, group) in address.segments().iter().enumerate() {
        let colon = if index == 0 { "" } else { ":" };
        write!(line, "{colon}{group:x}")?;
    }
    Ok(())
}

/// Two addresses of one family.
#[derive(Clone, Copy)]
enum Pair {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

impl Pair {
    fn of(source: SocketAddr, destination: SocketAddr) -> Self {
        let v6 = |address: SocketAddr| match address {
            SocketAddr::V4(address) => address.ip().to_ipv6_mapped(),
            SocketAddr::V6(address) => *address.ip(),
        };
        match (source, destination) {
            (SocketAddr::V4(source), SocketAddr::V4(destination)) => Self::V4(*source.ip(), *destination.ip()),
            _ => Self::V6(v6(source), v6(destination)),
        }
    }
}

impl HeaderBytes {
    fn new() -> Self {
        Self { bytes: [0; MAX_WRITTEN], len: 0 }
    }

    /// A version 2 header with nothing in it.
    fn fixed(version_and_command: u8) -> Self {
        let mut header = Self::new();
        header.bytes[..SIGNATURE.len()].copy_from_slice(&SIGNATURE);
        header.bytes[SIGNATURE.len()] = version_and_command;
        header.len = FIXED;
        header
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let free = self.bytes[self.len..].get_mut(..bytes.len()).ok_or(WriteError::TooLong)?;
        free.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    /// Returns the byte that says which addresses these are.
    fn push_addresses(&mut self, addresses: &Addresses<'_>) -> Result<u8, WriteError> {
        match *addresses {
            Addresses::Unspecified => Ok(0),
            Addresses::Ip { transport, source, destination } => {
                let family = self.push_ips(Pair::of(source, destination))?;
                self.push_both(&source.port().to_be_bytes(), &destination.port().to_be_bytes())?;
                Ok(family | transport_bits(transport))
            }
            Addresses::Unix { transport, source, destination } => {
                self.push_both(&filled_path(source)?, &filled_path(destination)?)?;
                Ok(UNIX | transport_bits(transport))
            }
        }
    }

    fn push_ips(&mut self, pair: Pair) -> Result<u8, WriteError> {
        match pair {
            Pair::V4(source, destination) => self.push_both(&source.octets(), &destination.octets()).map(|()| INET),
            Pair::V6(source, destination) => self.push_both(&source.octets(), &destination.octets()).map(|()| INET6),
        }
    }

    fn push_both(&mut self, source: &[u8], destination: &[u8]) -> Result<(), WriteError> {
        self.push(source)?;
        self.push(destination)
    }

    fn push_tlv(&mut self, tlv: Tlv<'_>) -> Result<(), WriteError> {
        let length = u16::try_from(tlv.value.len()).map_err(|_| WriteError::TooLong)?;
        self.push(&[tlv.kind])?;
        self.push(&length.to_be_bytes())?;
        self.push(tlv.value)
    }

    fn set_length(&mut self) {
        let body = (self.len - FIXED) as u16;
        self.bytes[FIXED - 2..FIXED].copy_from_slice(&body.to_be_bytes());
    }

    /// Over the zeros that were pushed last.
    fn set_sum(&mut self) {
        let sum = crc32c::sum(&[self]);
        self.bytes[self.len - 4..self.len].copy_from_slice(&sum.to_be_bytes());
    }
}

impl Deref for HeaderBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Write for HeaderBytes {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes()).map_err(|_| fmt::Error)
    }
}

impl fmt::Debug for HeaderBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

fn transport_bits(transport: Transport) -> u8 {
    match transport {
        Transport::Stream => 1,
        Transport::Datagram => 2,
    }
}

fn filled_path(path: &[u8]) -> Result<[u8; UNIX_PATH], WriteError> {
    let mut filled = [0; UNIX_PATH];
    filled.get_mut(..path.len()).ok_or(WriteError::PathTooLong)?.copy_from_slice(path);
    Ok(filled)
}
