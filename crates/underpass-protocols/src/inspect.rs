//! What a connection is, by its first bytes, decided as early as they allow.

use crate::client_hello::{self, ClientHello};
use crate::http::{Sniffed, sniff};
use crate::name::NameError;
use crate::record::{self, Gathered, HANDSHAKE, MAJOR_VERSION};

/// What the bytes are so far. Everything but `Incomplete` is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inspected<'a> {
    /// It takes `need` bytes in total, or more, to become something; never above [`MAX_HELLO`](crate::MAX_HELLO). Fewer may
    /// be enough to see that it becomes nothing: ask again whenever bytes arrive, or, to bound the work, when there are `need`.
    Incomplete {
        need: usize,
    },
    Tls(ClientHello<'a>),
    /// Begins with a method of HTTP/1 or with HTTP/2's preface.
    Http,
    /// Neither TLS nor HTTP.
    Other,
    /// TLS that no server should be shown.
    Invalid(HelloError),
}

/// Why something that begins like TLS is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    #[error("an SSLv2 hello, which carries no server name")]
    Ssl2,
    #[error("a TLS record of type {0} where the ClientHello should be")]
    NotAHandshake(u8),
    #[error("a handshake message of type {0} where the ClientHello should be")]
    NotAClientHello(u8),
    #[error("a record of an unknown version within the ClientHello")]
    RecordVersion,
    #[error("a record longer than TLS allows")]
    RecordTooLong,
    #[error("too many empty records")]
    EmptyRecords,
    #[error("a ClientHello of more than {} bytes", record::MAX_HELLO)]
    TooLong,
    #[error("version {0:#06x} is not TLS")]
    Version(u16),
    #[error("the lengths in its {0} do not add up")]
    Malformed(&'static str),
    #[error("extension {0:#06x} is there twice")]
    DuplicateExtension(u16),
    #[error("more than one server name")]
    SeveralNames,
    #[error("a server name of an unknown type")]
    UnknownNameType,
    #[error("the server name is not a host name")]
    Name(#[source] NameError),
}

/// Looks at what has arrived on a connection, from its first byte on. `scratch` may be empty and is used again by the next
/// call; nothing is put into it unless a hello lies in several records.
pub fn inspect<'a>(bytes: &'a [u8], scratch: &'a mut Vec<u8>) -> Inspected<'a> {
    match bytes {
        [] => Inspected::Incomplete { need: 1 },
        // change_cipher_spec, alert, handshake, application_data and heartbeat
        [20..=24] => Inspected::Incomplete { need: 2 },
        [HANDSHAKE, MAJOR_VERSION, ..] => tls(bytes, scratch).unwrap_or_else(Inspected::Invalid),
        [kind @ 20..=24, MAJOR_VERSION, ..] => Inspected::Invalid(HelloError::NotAHandshake(*kind)),
        [0x80..=0xff, ..] => ssl2(bytes),
        _ => match sniff(bytes) {
            Sniffed::Incomplete { need } => Inspected::Incomplete { need },
            Sniffed::Http => Inspected::Http,
            Sniffed::Other => Inspected::Other,
        },
    }
}

fn tls<'a>(bytes: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<Inspected<'a>, HelloError> {
    match record::gather(bytes, scratch)? {
        Gathered::Incomplete { need } => Ok(Inspected::Incomplete { need }),
        Gathered::Whole { body, len } => client_hello::parse(body, len).map(Inspected::Tls),
    }
}

/// The hello of SSLv2, also in the form in which later versions were offered to old servers: two bytes of length with the
/// highest bit set, the message's type, 1, and a version.
fn ssl2(bytes: &[u8]) -> Inspected<'static> {
    match bytes {
        [_, _, 1, 0, 2, ..] | [_, _, 1, 3, _, ..] => Inspected::Invalid(HelloError::Ssl2),
        [_] | [_, _] => Inspected::Incomplete { need: 3 },
        [_, _, 1] | [_, _, 1, 0 | 3] => Inspected::Incomplete { need: bytes.len() + 1 },
        _ => Inspected::Other,
    }
}
