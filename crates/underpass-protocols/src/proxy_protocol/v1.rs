//! Version 1: one line of text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::{Addresses, Command, Header, Parsed, ProxyProtocolError, Tlvs, Transport, Version, check_signature};

/// The longest line, CR LF included, as the specification computes it.
pub(super) const MAX_LINE: usize = 107;
pub(super) const MIN_LINE: usize = "PROXY UNKNOWN\r\n".len();

const SIGNATURE: &[u8] = b"PROXY ";
const UNKNOWN: &[u8] = b"UNKNOWN";

pub(super) fn parse(bytes: &[u8]) -> Result<Parsed<'_>, ProxyProtocolError> {
    check_signature(bytes, SIGNATURE)?;
    let end = match find_end(bytes)? {
        End::At(end) => end,
        End::NotBefore(need) => return Ok(Parsed::Incomplete { need }),
    };
    let fields = bytes.get(SIGNATURE.len()..end).ok_or(ProxyProtocolError::Protocol)?;
    let addresses = parse_fields(fields)?;
    let len = end + b"\r\n".len();
    let (version, command) = (Version::V1, Command::Proxy);
    Ok(Parsed::Header(Header { version, command, addresses, tlvs: Tlvs::default(), len }))
}

enum End {
    /// Where the CR is.
    At(usize),
    /// The end of the line is not there; the line will have at least so many bytes.
    NotBefore(usize),
}

/// A CR or LF that does not belong to the one CR LF is an error at once: what follows must not be taken for the line.
fn find_end(bytes: &[u8]) -> Result<End, ProxyProtocolError> {
    const LAST_CR: usize = MAX_LINE - 2;
    let window = &bytes[..bytes.len().min(LAST_CR + 1)];
    let Some(end) = window.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
        return match window.len() {
            0..=LAST_CR => Ok(End::NotBefore(MIN_LINE.max(bytes.len() + 2))),
            _ => Err(ProxyProtocolError::TooLong),
        };
    };
    match bytes[end..] {
        [b'\r'] => Ok(End::NotBefore(MIN_LINE.max(end + 2))),
        [b'\r', b'\n', ..] => Ok(End::At(end)),
        _ => Err(ProxyProtocolError::LineEnd),
    }
}

fn parse_fields(fields: &[u8]) -> Result<Addresses<'static>, ProxyProtocolError> {
    match fields.strip_prefix(UNKNOWN) {
        // Whatever else the sender says after it is to be ignored.
        Some([] | [b' ', ..]) => return Ok(Addresses::Unspecified),
        Some(_) => return Err(ProxyProtocolError::Protocol),
        None => {}
    }
    let (protocol, rest) = fields.split_at_checked(5).ok_or(ProxyProtocolError::Protocol)?;
    match protocol {
        b"TCP4 " => parse_addresses::<Ipv4Addr>(rest),
        b"TCP6 " => parse_addresses::<Ipv6Addr>(rest),
        _ => Err(ProxyProtocolError::Protocol),
    }
}

fn parse_addresses<A: FromStr + Into<IpAddr>>(fields: &[u8]) -> Result<Addresses<'static>, ProxyProtocolError> {
    let text = str::from_utf8(fields).map_err(|_| ProxyProtocolError::Fields)?;
    let mut fields = text.split(' ');
    let mut field = || fields.next().ok_or(ProxyProtocolError::Fields);
    let (source, destination) = (field()?, field()?);
    let (source_port, destination_port) = (field()?, field()?);
    if fields.next().is_some() {
        return Err(ProxyProtocolError::Fields);
    }
    let address = |text: &str| text.parse::<A>().map(A::into).map_err(|_| ProxyProtocolError::Address);
    Ok(Addresses::Ip {
        transport: Transport::Stream,
        source: SocketAddr::new(address(source)?, parse_port(source_port)?),
        destination: SocketAddr::new(address(destination)?, parse_port(destination_port)?),
    })
}

/// Stricter than `str::parse`, which lets signs and leading zeros pass.
fn parse_port(text: &str) -> Result<u16, ProxyProtocolError> {
    let canonical = match text.as_bytes() {
        [b'0'] => true,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    text.parse().ok().filter(|_| canonical).ok_or(ProxyProtocolError::Port)
}
