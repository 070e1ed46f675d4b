//! HAProxy's PROXY protocol, versions 1 and 2: who is really connecting, told by the load balancer in front.
//!
//! Senders disagree with the specification here and there; nothing is bent to fit them. A header that is believed decides
//! which source addresses are let in, so one that is not exactly right is refused.

mod crc32c;
mod tlv;
mod v1;
mod v2;
mod write;

use std::net::SocketAddr;

pub use tlv::{CRC32C, Tlv, Tlvs};
pub use v2::MAX_HEADER;
pub use write::{Checksum, HeaderBytes, MAX_WRITTEN, WriteError, write_v1, write_v2, write_v2_local};

/// What the bytes at the start of a connection are so far. Everything but `Incomplete` is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// It takes `need` bytes in total, or more, to become a header; never above [`MAX_HEADER`].
    Incomplete {
        need: usize,
    },
    Header(Header<'a>),
    Invalid(ProxyProtocolError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    pub version: Version,
    pub command: Command,
    pub addresses: Addresses<'a>,
    pub tlvs: Tlvs<'a>,
    /// How many bytes the header takes; the connection's own begin after them.
    pub len: usize,
}

impl Header<'_> {
    /// Where the connection really comes from; `None` means that the socket's own peer is the one.
    pub fn source(&self) -> Option<SocketAddr> {
        match self.addresses {
            Addresses::Ip { source, .. } => Some(source),
            Addresses::Unspecified | Addresses::Unix { .. } => None,
        }
    }

    /// What the client connected to; `None` means that the socket's own address is it.
    pub fn destination(&self) -> Option<SocketAddr> {
        match self.addresses {
            Addresses::Ip { destination, .. } => Some(destination),
            Addresses::Unspecified | Addresses::Unix { .. } => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1,
    V2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// The sender speaks for itself, as in a health check: there are no addresses to believe.
    Local,
    Proxy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Stream,
    Datagram,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses<'a> {
    /// The sender does not know them or does not say.
    Unspecified,
    Ip {
        transport: Transport,
        source: SocketAddr,
        destination: SocketAddr,
    },
    /// Paths of sockets, without the zeros that fill up the field.
    Unix {
        transport: Transport,
        source: &'a [u8],
        destination: &'a [u8],
    },
}

/// Why something is not a PROXY protocol header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyProtocolError {
    #[error("no PROXY protocol header: the connection begins with something else")]
    NoSignature,
    #[error("the header is too long")]
    TooLong,
    #[error("the line does not end in CR LF")]
    LineEnd,
    #[error("the protocol is none of TCP4, TCP6 and UNKNOWN")]
    Protocol,
    #[error("the line does not have exactly two addresses and two ports")]
    Fields,
    #[error("an address is not one of the announced family")]
    Address,
    #[error("a port is not a number from 0 to 65535 without leading zeros")]
    Port,
    #[error("version and command {0:#04x} are unknown")]
    VersionAndCommand(u8),
    #[error("family and transport {0:#04x} are unknown")]
    FamilyAndTransport(u8),
    #[error("the header is too short for its addresses")]
    TooShort,
    #[error("the lengths of its TLVs do not add up")]
    Tlvs,
    #[error("the checksum is wrong")]
    Checksum,
}

/// Reads a header of either version from the start of what has arrived.
pub fn parse(bytes: &[u8]) -> Parsed<'_> {
    let parsed = match bytes {
        [] => Ok(Parsed::Incomplete { need: v1::MIN_LINE }),
        [b'P', ..] => v1::parse(bytes),
        [b'\r', ..] => v2::parse(bytes),
        _ => Err(ProxyProtocolError::NoSignature),
    };
    parsed.unwrap_or_else(Parsed::Invalid)
}

/// Fails unless the bytes are the beginning of the signature, or begin with it.
fn check_signature(bytes: &[u8], signature: &[u8]) -> Result<(), ProxyProtocolError> {
    let same = bytes.iter().zip(signature).all(|(byte, expected)| byte == expected);
    if same { Ok(()) } else { Err(ProxyProtocolError::NoSignature) }
}
