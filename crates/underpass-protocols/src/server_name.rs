//! The server_name extension (RFC 6066): which host the client wants.

use std::net::{IpAddr, Ipv4Addr};

use crate::cursor::Cursor;
use crate::inspect::HelloError;
use crate::name::{self, NameError, NormalName};

const HOST_NAME: u8 = 0;

/// What a hello says about the host that it wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sni<'a> {
    #[default]
    Absent,
    Name(ServerName<'a>),
    /// Against the RFC, but some clients send it. It is not a name: route as if nothing had been sent.
    IpLiteral(IpAddr),
}

/// A checked host name as the client wrote it, but for a trailing dot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerName<'a>(&'a str);

impl<'a> ServerName<'a> {
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// The form in which names are compared.
    pub fn normal(self) -> NormalName {
        NormalName::of_checked(self.0)
    }
}

/// Reads the extension's data. One entry, of the one type that exists: servers differ in what they make of more.
pub(crate) fn parse(data: &[u8]) -> Result<Sni<'_>, HelloError> {
    const BROKEN: HelloError = HelloError::Malformed("server_name extension");
    let mut data = Cursor::new(data);
    let mut list = Cursor::new(data.prefixed_u16().ok_or(BROKEN)?);
    if list.u8().ok_or(BROKEN)? != HOST_NAME {
        return Err(HelloError::UnknownNameType);
    }
    let name = list.prefixed_u16().ok_or(BROKEN)?;
    if !list.is_empty() {
        return Err(HelloError::SeveralNames);
    }
    if !data.is_empty() {
        return Err(BROKEN);
    }
    read_name(name).map_err(HelloError::Name)
}

fn read_name(name: &[u8]) -> Result<Sni<'_>, NameError> {
    match ip_literal(name) {
        Some(address) => Ok(Sni::IpLiteral(address)),
        None => name::check(name).map(ServerName).map(Sni::Name),
    }
}

/// `1.2.3.4`, also with a dot at the end, and `2001:db8::1`. Shorthands (`127.1`) are names that no DNS has: left to the router.
fn ip_literal(name: &[u8]) -> Option<IpAddr> {
    const LONGEST: usize = "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255".len();
    let begins_like_one = |byte: &u8| byte.is_ascii_hexdigit() || *byte == b':';
    if name.len() > LONGEST || !name.first().is_some_and(begins_like_one) {
        return None;
    }
    let text = str::from_utf8(name).ok()?;
    let address = text.parse::<IpAddr>().ok();
    address.or_else(|| text.strip_suffix('.')?.parse::<Ipv4Addr>().ok().map(IpAddr::V4))
}
