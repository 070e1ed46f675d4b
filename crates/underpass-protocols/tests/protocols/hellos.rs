//! ClientHellos made to order.

use std::sync::Arc;

use proptest::prelude::*;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

pub(crate) const SERVER_NAME: u16 = 0;
pub(crate) const ALPN: u16 = 16;
pub(crate) const SUPPORTED_VERSIONS: u16 = 43;
pub(crate) const ECH: u16 = 0xfe0d;
pub(crate) const GREASE: u16 = 0x8a8a;

/// A handshake message with these extensions.
pub(crate) fn message(extensions: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 4, 0x13, 0x01, 0x0a, 0x0a, 1, 0]);
    body.extend(prefixed_u16(&extensions.concat()));
    wrap(1, &body)
}

/// A handshake message of any type.
pub(crate) fn wrap(kind: u8, body: &[u8]) -> Vec<u8> {
    let [.., high, middle, low] = body.len().to_be_bytes();
    [&[kind, high, middle, low], body].concat()
}

pub(crate) fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &prefixed_u16(data)].concat()
}

pub(crate) fn server_name(name: &[u8]) -> Vec<u8> {
    extension(SERVER_NAME, &prefixed_u16(&[&[0][..], &prefixed_u16(name)].concat()))
}

pub(crate) fn alpn(protocols: &[Vec<u8>]) -> Vec<u8> {
    let list: Vec<u8> = protocols.iter().flat_map(|name| [&[name.len() as u8][..], name].concat()).collect();
    extension(ALPN, &prefixed_u16(&list))
}

/// An extension that means nothing and takes room.
pub(crate) fn padding(len: usize) -> Vec<u8> {
    extension(GREASE, &vec![0; len])
}

pub(crate) fn prefixed_u16(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

/// Records of at most so many bytes of content.
pub(crate) fn records_of(message: &[u8], most: usize) -> Vec<u8> {
    message.chunks(most).flat_map(record).collect()
}

pub(crate) fn record(content: &[u8]) -> Vec<u8> {
    [&[22, 3, 1][..], &prefixed_u16(content)].concat()
}

/// Records that end where `cuts` say, modulo the length.
pub(crate) fn records_cut_at(message: &[u8], cuts: &[prop::sample::Index]) -> Vec<u8> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(message.len())).filter(|cut| *cut > 0).collect();
    ends.push(message.len());
    ends.sort_unstable();
    ends.dedup();
    let starts = std::iter::once(&0).chain(&ends);
    starts.zip(&ends).flat_map(|(start, end)| records_of(&message[*start..*end], 1 << 14)).collect()
}

/// What a rustls client says first.
pub(crate) fn of_rustls(name: &str, alpn: &[Vec<u8>]) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    config.alpn_protocols = alpn.to_vec();
    let mut client = ClientConnection::new(Arc::new(config), name.to_owned().try_into().unwrap()).unwrap();
    let mut sent = Vec::new();
    client.write_tls(&mut sent).unwrap();
    sent
}

/// Host names in lower and upper case, with and without `xn--`.
pub(crate) fn any_name() -> impl Strategy<Value = String> {
    "([a-zA-Z0-9_]([a-zA-Z0-9_-]{0,20}[a-zA-Z0-9])?\\.){0,5}(xn--)?[a-zA-Z]{2,20}"
}

pub(crate) fn any_alpn() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6)
}
