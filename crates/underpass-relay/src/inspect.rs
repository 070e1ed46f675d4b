//! The first bytes of a connection, and what they say. Pure: bytes in, finding out.

use std::net::SocketAddr;

use underpass_protocols::proxy_protocol::{self, Header, Parsed};
use underpass_protocols::stream_header::{self, StreamHeader};
use underpass_protocols::{Inspected, MAX_HELLO, NormalName, Sni, inspect};
use underpass_tables::{Expects, Listener, Opening};

use crate::record::End;

/// What a connection may send before it has to be decided.
pub(crate) const MAX_OPENING: usize = MAX_HELLO + proxy_protocol::MAX_HEADER;

/// What has been found so far.
#[expect(clippy::large_enum_variant, reason = "lives on the stack, once per connection; a box would be an allocation")]
pub(crate) enum Finding {
    /// Not decidable below so many bytes.
    Incomplete {
        need: usize,
    },
    Found(Found),
    Refuse(End, &'static [u8]),
}

/// What the connection began with.
pub(crate) struct Found {
    /// The PROXY header: not part of what the endpoint gets.
    pub(crate) skip: usize,
    pub(crate) source: Option<SocketAddr>,
    pub(crate) destination: Option<SocketAddr>,
    pub(crate) start: Start,
}

impl Found {
    /// Nothing that has to be understood.
    pub(crate) fn plain() -> Self {
        Self { skip: 0, source: None, destination: None, start: Start::Plain }
    }

    fn behind(self, header: &Header<'_>) -> Self {
        Self { skip: header.len, source: header.source(), destination: header.destination(), ..self }
    }
}

#[expect(clippy::large_enum_variant, reason = "as above")]
pub(crate) enum Start {
    Named(NormalName),
    Unnamed,
    Plain,
    Tunnel(u32),
}

impl Start {
    pub(crate) fn opening(&self) -> Opening<'_> {
        match self {
            Self::Named(name) => Opening::Named(name),
            Self::Unnamed => Opening::Unnamed,
            Self::Plain => Opening::Plain,
            Self::Tunnel(number) => Opening::Tunnel(*number),
        }
    }
}

/// A fatal alert, as a whole record. TLS 1.2 in the header is what every version writes there.
const fn alert(description: u8) -> [u8; 7] {
    [21, 3, 3, 0, 2, 2, description]
}

/// The client can tell from these that it was refused and why, where a closed connection says nothing.
pub(crate) static UNRECOGNIZED_NAME: [u8; 7] = alert(112);
static DECODE_ERROR: [u8; 7] = alert(50);
/// What is said after the head, which alone is the answer to HEAD.
const BODY_BYTES: usize = 52;
static HTTP_ON_TLS_PORT: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
Content-Type: text/plain; charset=utf-8\r\n\
Content-Length: 52\r\n\
Connection: close\r\n\
\r\n\
This port speaks TLS: use https:// instead of http.\n";

/// Looks at all bytes that have arrived.
pub(crate) fn examine(bytes: &[u8], listener: &Listener, scratch: &mut Vec<u8>) -> Finding {
    match listener.expects {
        Expects::Nothing => return Finding::Found(Found::plain()),
        Expects::StreamHeader => return examine_stream_header(bytes),
        Expects::Hello if !listener.proxy_header => return examine_hello(bytes, listener, scratch),
        Expects::Hello => {}
    }
    match proxy_protocol::parse(bytes) {
        Parsed::Incomplete { need } => Finding::Incomplete { need },
        Parsed::Invalid(_) => Finding::Refuse(End::InvalidProxyHeader, &[]),
        Parsed::Header(header) => match examine_hello(&bytes[header.len..], listener, scratch) {
            Finding::Incomplete { need } => Finding::Incomplete { need: need + header.len },
            Finding::Found(found) => Finding::Found(found.behind(&header)),
            refuse => refuse,
        },
    }
}

/// What the bytes are if nothing follows them: plain, where that is carried. A PROXY header that has to come first has to be whole.
pub(crate) fn examine_last(bytes: &[u8], listener: &Listener) -> Option<Found> {
    listener.rules.plain?;
    if !listener.proxy_header {
        return Some(Found::plain());
    }
    match proxy_protocol::parse(bytes) {
        Parsed::Header(header) => Some(Found::plain().behind(&header)),
        Parsed::Incomplete { .. } | Parsed::Invalid(_) => None,
    }
}

fn examine_stream_header(bytes: &[u8]) -> Finding {
    let Some(header) = bytes.first_chunk() else { return Finding::Incomplete { need: stream_header::LENGTH } };
    match StreamHeader::decode(header) {
        Ok(header) => Finding::Found(Found {
            skip: stream_header::LENGTH,
            source: Some(header.source),
            destination: None,
            start: Start::Tunnel(header.tunnel),
        }),
        Err(_) => Finding::Refuse(End::InvalidHello, &[]),
    }
}

fn examine_hello(bytes: &[u8], listener: &Listener, scratch: &mut Vec<u8>) -> Finding {
    let plain_is_carried = listener.rules.plain.is_some();
    let start = match inspect(bytes, scratch) {
        // Where plain bytes are carried it does not matter whether they are HTTP.
        Inspected::Incomplete { .. } if plain_is_carried && !may_be_tls(bytes) => Start::Plain,
        Inspected::Incomplete { need } => return Finding::Incomplete { need },
        Inspected::Tls(hello) => match hello.sni {
            Sni::Name(name) => Start::Named(name.normal()),
            Sni::Absent | Sni::IpLiteral(_) => Start::Unnamed,
        },
        _ if plain_is_carried => Start::Plain,
        Inspected::Http => return Finding::Refuse(End::PlainHttp, answer_to_http(bytes)),
        Inspected::Other => Start::Plain,
        Inspected::Invalid(_) => return Finding::Refuse(End::InvalidHello, &DECODE_ERROR),
    };
    Finding::Found(Found { skip: 0, source: None, destination: None, start })
}

fn answer_to_http(request: &[u8]) -> &'static [u8] {
    if request.starts_with(b"HEAD ") {
        &HTTP_ON_TLS_PORT[..HTTP_ON_TLS_PORT.len() - BODY_BYTES]
    } else {
        HTTP_ON_TLS_PORT
    }
}

/// Whether the next bytes can make it a hello, of SSLv2 too.
fn may_be_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [] | [20..=24] | [20..=24, 3, ..] | [0x80..=0xff, ..])
}

/// Whether the bytes so far can hardly be anything else: then the rest of the hello is worth waiting for.
pub(crate) fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [20..=24, 3, ..])
}

#[cfg(test)]
mod tests {
    use underpass_tables::{RouteId, Rules, Transport};

    use super::*;

    #[test]
    fn who_says_no_header_where_one_has_to_come_first_is_not_plain() {
        let mut listener = Listener {
            name: "test-listener".into(),
            address: ([127, 0, 0, 1], 1).into(),
            transport: Transport::Stream,
            proxy_header: true,
            expects: Expects::Hello,
            rules: Rules::default(),
        };
        let header = b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 25\r\n";
        let skipped = |listener: &Listener, bytes| examine_last(bytes, listener).map(|found| found.skip);
        assert_eq!(skipped(&listener, header), None, "nothing plain is carried");
        listener.rules.plain = Some(RouteId(0));
        assert!((0..header.len()).all(|cut| skipped(&listener, &header[..cut]).is_none()));
        assert_eq!(skipped(&listener, header), Some(header.len()));
        assert_eq!(skipped(&listener, b"EHLO"), None);
    }

    #[test]
    fn the_answer_to_plain_http_is_as_long_as_it_says() {
        let text = String::from_utf8_lossy(HTTP_ON_TLS_PORT);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{} bytes", body.len());
        assert_eq!(answer_to_http(b"HEAD / HTTP/1.1\r\n"), format!("{head}\r\n\r\n").as_bytes());
    }
}
