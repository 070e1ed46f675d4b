//! What holds for any bytes whatsoever. The tests here and the fuzz targets under `fuzz/` check the same.

use std::io::Cursor;

use rustls::server::Acceptor;
use underpass_protocols::proxy_protocol::{self, Addresses, CRC32C, Checksum, Command, Header, Parsed, Tlv, Version};
use underpass_protocols::stream_header::{self, StreamHeader};
use underpass_protocols::{ClientHello, Inspected, MAX_HELLO, NormalName, Sni, Sniffed, inspect, sniff};

/// An answer is final, `need` is a promise, and no server reads another name than we do.
pub(crate) fn client_hello(bytes: &[u8]) {
    let mut scratch = Vec::new();
    let whole = inspect(bytes, &mut scratch);
    for end in prefixes(bytes.len()) {
        let mut scratch = Vec::new();
        match inspect(&bytes[..end], &mut scratch) {
            Inspected::Incomplete { need } => {
                assert!(end < need && need <= MAX_HELLO, "{need} needed of {end}");
                assert!(need <= needed(&whole).unwrap_or(need), "{need} needed of {end}, but later {whole:?}");
            }
            decided => assert_eq!(decided, whole, "after {end} of {} bytes", bytes.len()),
        }
    }
    if let Inspected::Tls(hello) = whole {
        hello_is_sound(bytes, &hello);
    }
    rustls_does_not_disagree(bytes, &whole);
}

pub(crate) fn http(bytes: &[u8]) {
    let whole = sniff(bytes);
    for end in prefixes(bytes.len()) {
        match sniff(&bytes[..end]) {
            Sniffed::Incomplete { need } => assert!(end + 1 == need && need <= "OPTIONS ".len()),
            decided => assert_eq!(decided, whole),
        }
    }
    if whole == Sniffed::Http {
        assert!(matches!(inspect(bytes, &mut Vec::new()), Inspected::Http));
        assert!(bytes.iter().position(|byte| *byte == b' ').is_some_and(|space| space <= 7));
    }
}

/// An answer is final, `need` is a promise, and what was read can be written and read again.
pub(crate) fn proxy_protocol(bytes: &[u8]) {
    let whole = proxy_protocol::parse(bytes);
    for end in prefixes(bytes.len()) {
        match proxy_protocol::parse(&bytes[..end]) {
            Parsed::Incomplete { need } => {
                assert!(end < need && need <= proxy_protocol::MAX_HEADER);
                match whole {
                    Parsed::Header(header) => assert!(need <= header.len),
                    Parsed::Incomplete { need: later } => assert!(need <= later),
                    Parsed::Invalid(_) => {}
                }
            }
            decided => assert_eq!(decided, whole, "after {end} bytes"),
        }
    }
    if let Parsed::Header(header) = whole {
        assert!(header.len <= bytes.len());
        header_survives_writing(&header);
    }
}

/// Whatever is taken is taken for exactly what would be written: there are no two ways to say one thing.
pub(crate) fn stream_header(bytes: &[u8]) {
    let Some(header) = bytes.first_chunk::<{ stream_header::LENGTH }>() else { return };
    if let Ok(read) = StreamHeader::decode(header) {
        assert_eq!(read.encode(), *header);
    }
}

/// All of them for what is short, several hundred of the rest.
fn prefixes(len: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by((len / 300).max(1)).chain(len.saturating_sub(8)..=len)
}

fn needed(inspected: &Inspected<'_>) -> Option<usize> {
    match inspected {
        Inspected::Incomplete { need } => Some(*need),
        Inspected::Tls(hello) => Some(hello.len),
        _ => None,
    }
}

fn hello_is_sound(bytes: &[u8], hello: &ClientHello<'_>) {
    assert!(hello.len <= bytes.len() && hello.len <= MAX_HELLO);
    assert_eq!(hello.version >> 8, 3);
    assert!(hello.alpn.iter().all(|protocol| !protocol.is_empty()));
    if let Some(name) = hello.server_name() {
        assert_eq!(NormalName::new(name.as_str()), Some(name.normal()));
        assert_eq!(name.as_str().to_ascii_lowercase(), *name.normal());
        assert!(name.as_str().parse::<std::net::IpAddr>().is_err());
    }
}

/// rustls may refuse what we accept, and we may refuse what it accepts, but we must not read different things.
fn rustls_does_not_disagree(bytes: &[u8], ours: &Inspected<'_>) {
    let Some(theirs) = read_by_rustls(bytes) else { return };
    match ours {
        Inspected::Tls(ours) => {
            assert_eq!(ours.server_name().map(|name| name.normal().to_string()), theirs.name);
            assert_eq!(ours.alpn.iter().collect::<Vec<_>>(), theirs.alpn);
            assert!(theirs.name.is_none() || matches!(ours.sni, Sni::Name(_)));
        }
        Inspected::Invalid(_) => {}
        other => panic!("rustls reads {theirs:?}, we say {other:?}"),
    }
}

#[derive(Debug, PartialEq)]
pub(crate) struct ReadByRustls {
    pub(crate) name: Option<String>,
    pub(crate) alpn: Vec<Vec<u8>>,
}

/// `None` when rustls refuses it or wants more.
pub(crate) fn read_by_rustls(bytes: &[u8]) -> Option<ReadByRustls> {
    let mut acceptor = Acceptor::default();
    let mut bytes = Cursor::new(bytes);
    while acceptor.read_tls(&mut bytes).ok()? > 0 {
        let Some(accepted) = acceptor.accept().ok()? else { continue };
        let hello = accepted.client_hello();
        let alpn = hello.alpn().map(|protocols| protocols.map(<[u8]>::to_vec).collect());
        let name = hello.server_name().map(|name| name.strip_suffix('.').unwrap_or(name).to_owned());
        return Some(ReadByRustls { name, alpn: alpn.unwrap_or_default() });
    }
    None
}

fn header_survives_writing(header: &Header<'_>) {
    let written = match (header.version, header.command) {
        (Version::V1, _) => proxy_protocol::write_v1(&header.addresses),
        (Version::V2, Command::Local) => proxy_protocol::write_v2_local(),
        (Version::V2, Command::Proxy) => {
            let tlvs: Vec<Tlv<'_>> = header.tlvs.iter().collect();
            match proxy_protocol::write_v2(&header.addresses, &tlvs, Checksum::Crc32c) {
                Ok(written) => written,
                Err(_) => return, // we read longer headers than we write
            }
        }
    };
    let Parsed::Header(again) = proxy_protocol::parse(&written) else { panic!("{written:?} cannot be read") };
    assert_eq!(again.len, written.len());
    assert_eq!((again.version, again.command, again.addresses), (header.version, header.command, header.addresses));
    assert!(header.tlvs.iter().filter(not_a_sum).eq(again.tlvs.iter().filter(not_a_sum)));
    assert!(header.command == Command::Proxy || header.addresses == Addresses::Unspecified);
}

fn not_a_sum(tlv: &Tlv<'_>) -> bool {
    tlv.kind != CRC32C
}
