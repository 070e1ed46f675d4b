//! The ClientHello message (RFC 8446 4.1.2, RFC 5246 7.4.1.2): what a relay needs of it.
//!
//! Only the extensions that are read are checked; the rest is the server's business. GREASE values (RFC 8701) are unknown
//! extensions and unknown versions, and are passed over like any other.

use crate::cursor::Cursor;
use crate::inspect::HelloError;
use crate::server_name::{self, ServerName, Sni};

const SERVER_NAME: u16 = 0x0000;
const ALPN: u16 = 0x0010;
const SUPPORTED_VERSIONS: u16 = 0x002b;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

const RANDOM: usize = 32;
const MAX_SESSION_ID: usize = 32;

/// What a client says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientHello<'a> {
    pub sni: Sni<'a>,
    pub alpn: Alpn<'a>,
    /// The client uses Encrypted ClientHello, or pretends to: `sni` is the outer, public name.
    pub ech: bool,
    /// The highest TLS version offered, as on the wire (`0x0304` is TLS 1.3).
    pub version: u16,
    /// How many bytes of the connection the hello takes, record headers included. What follows is not part of it.
    pub len: usize,
}

impl<'a> ClientHello<'a> {
    /// The name to route by; `None` also for an IP address in its place.
    pub fn server_name(&self) -> Option<ServerName<'a>> {
        match self.sni {
            Sni::Name(name) => Some(name),
            Sni::Absent | Sni::IpLiteral(_) => None,
        }
    }
}

/// The application protocols that a client offers, in its order of preference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alpn<'a>(&'a [u8]);

impl<'a> Alpn<'a> {
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> + Clone {
        let mut list = Cursor::new(self.0);
        std::iter::from_fn(move || list.prefixed_u8())
    }

    pub fn contains(self, protocol: &[u8]) -> bool {
        self.iter().any(|offered| offered == protocol)
    }

    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    fn parse(data: &'a [u8]) -> Result<Self, HelloError> {
        const BROKEN: HelloError = HelloError::Malformed("ALPN extension");
        let mut data = Cursor::new(data);
        let protocols = data.prefixed_u16().filter(|list| !list.is_empty()).ok_or(BROKEN)?;
        let mut list = Cursor::new(protocols);
        while !list.is_empty() {
            list.prefixed_u8().filter(|protocol| !protocol.is_empty()).ok_or(BROKEN)?;
        }
        if data.is_empty() { Ok(Self(protocols)) } else { Err(BROKEN) }
    }
}

/// Reads the body of the message, that is, what follows its type and length; `len` is for the result.
pub(crate) fn parse(body: &[u8], len: usize) -> Result<ClientHello<'_>, HelloError> {
    let mut body = Cursor::new(body);
    let legacy_version = body.u16().ok_or(HelloError::Malformed("version"))?;
    if legacy_version >> 8 != 3 {
        return Err(HelloError::Version(legacy_version));
    }
    skip_to_extensions(&mut body)?;
    let extensions = Extensions::parse(body)?;
    Ok(ClientHello {
        sni: extensions.sni.unwrap_or_default(),
        alpn: extensions.alpn.unwrap_or_default(),
        ech: extensions.ech.is_some(),
        version: extensions.version.flatten().unwrap_or(legacy_version),
        len,
    })
}

fn skip_to_extensions(body: &mut Cursor<'_>) -> Result<(), HelloError> {
    let random = body.take(RANDOM);
    random.ok_or(HelloError::Malformed("random"))?;
    let session_id = body.prefixed_u8().filter(|id| id.len() <= MAX_SESSION_ID);
    session_id.ok_or(HelloError::Malformed("session id"))?;
    let suites = body.prefixed_u16().filter(|suites| !suites.is_empty() && suites.len() % 2 == 0);
    suites.ok_or(HelloError::Malformed("cipher suites"))?;
    let compression = body.prefixed_u8().filter(|methods| !methods.is_empty());
    compression.ok_or(HelloError::Malformed("compression methods"))?;
    Ok(())
}

/// The extensions that matter here; each is `Some` once seen, whatever it held.
#[derive(Default)]
struct Extensions<'a> {
    sni: Option<Sni<'a>>,
    alpn: Option<Alpn<'a>>,
    ech: Option<()>,
    version: Option<Option<u16>>,
}

impl<'a> Extensions<'a> {
    fn parse(mut body: Cursor<'a>) -> Result<Self, HelloError> {
        const BROKEN: HelloError = HelloError::Malformed("extensions");
        let mut found = Self::default();
        if body.is_empty() {
            return Ok(found); // clients older than extensions
        }
        let mut list = Cursor::new(body.prefixed_u16().ok_or(BROKEN)?);
        if !body.is_empty() {
            return Err(BROKEN);
        }
        while !list.is_empty() {
            let kind = list.u16().ok_or(BROKEN)?;
            found.read(kind, list.prefixed_u16().ok_or(BROKEN)?)?;
        }
        Ok(found)
    }

    fn read(&mut self, kind: u16, data: &'a [u8]) -> Result<(), HelloError> {
        let again = match kind {
            SERVER_NAME => self.sni.replace(server_name::parse(data)?).is_some(),
            ALPN => self.alpn.replace(Alpn::parse(data)?).is_some(),
            SUPPORTED_VERSIONS => self.version.replace(highest_version(data)?).is_some(),
            ENCRYPTED_CLIENT_HELLO => self.ech.replace(()).is_some(),
            _ => false,
        };
        if again { Err(HelloError::DuplicateExtension(kind)) } else { Ok(()) }
    }
}

/// `None` when the list has nothing but GREASE and drafts.
fn highest_version(data: &[u8]) -> Result<Option<u16>, HelloError> {
    const BROKEN: HelloError = HelloError::Malformed("supported_versions extension");
    let mut data = Cursor::new(data);
    let mut list = Cursor::new(data.prefixed_u8().ok_or(BROKEN)?);
    let mut highest = None;
    while !list.is_empty() {
        let version = list.u16().ok_or(BROKEN)?;
        if version >> 8 == 3 {
            highest = highest.max(Some(version));
        }
    }
    if data.is_empty() { Ok(highest) } else { Err(BROKEN) }
}
