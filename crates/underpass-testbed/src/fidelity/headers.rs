//! The PROXY protocol, from clients and to backends.

use std::net::{Ipv4Addr, SocketAddr};

use super::Case;
use super::conn::{Conn, Outcome};
use super::lane::{Lane, Setup, Which};
use crate::proxies::ProxyHeader;

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const V1: &[u8] = b"PROXY TCP4 192.0.2.1 192.0.2.2 1111 443\r\n";
/// The client of [`V1`].
const ORIGINAL: ([u8; 4], u16) = ([192, 0, 2, 1], 1111);

pub(super) const CASES: &[Case] = &[
    Case::new("PROXY v1 in", "the header is taken off", Setup::HeaderIn, |lane| accepted(lane, V1)),
    Case::new(
        "PROXY v1 in, byte by byte",
        "in pieces, which the specification asks to tolerate",
        Setup::HeaderIn,
        dribbled,
    ),
    Case::new("PROXY v1 in, UNKNOWN", "a client of unknown origin is welcome", Setup::HeaderIn, |lane| {
        accepted(lane, b"PROXY UNKNOWN\r\n")
    }),
    Case::new("PROXY v1 in, broken", "bad addresses, ports, lines: refused", Setup::HeaderIn, broken_v1),
    Case::new("PROXY v2 in", "the header is taken off", Setup::HeaderIn, |lane| accepted(lane, &v2(0x21, &[]))),
    Case::new("PROXY v2 in, with TLVs", "what is behind the addresses too", Setup::HeaderIn, |lane| {
        accepted(lane, &v2(0x21, b"\x04\0\x03\0\0\0\xe0\0\x05hello"))
    }),
    Case::new("PROXY v2 in, LOCAL", "a health check of another proxy is welcome", Setup::HeaderIn, |lane| {
        accepted(lane, &v2(0x20, &[]))
    }),
    Case::new("PROXY v2 in, broken", "bad version, command, length: refused", Setup::HeaderIn, broken_v2),
    Case::new("PROXY in, none", "a client without a header is refused", Setup::HeaderIn, |lane| {
        lane.expect_refused(&lane.hello().bytes())
    }),
    Case::new("PROXY v1 out", "the backend is told client and proxy", Setup::HeaderOut(ProxyHeader::V1), out_v1),
    Case::new("PROXY v2 out", "the backend is told client and proxy", Setup::HeaderOut(ProxyHeader::V2), out_v2),
    Case::new("PROXY v1 in, v2 out", "the backend is told the original client", Setup::HeaderThrough, through),
];

/// A v2 header for TCP over IPv4 with these TLVs.
fn v2(version_and_command: u8, tlvs: &[u8]) -> Vec<u8> {
    let length = u16::try_from(12 + tlvs.len()).expect("a short header");
    let mut header = SIGNATURE.to_vec();
    header.extend([version_and_command, 0x11]);
    header.extend(length.to_be_bytes());
    header.extend([192, 0, 2, 1, 192, 0, 2, 2, 4, 87, 1, 187]);
    header.extend(tlvs);
    header
}

fn accepted(lane: &Lane<'_>, header: &[u8]) -> Outcome {
    let hello = lane.hello().bytes();
    let mut client = lane.connect()?;
    client.send(&[header, &hello].concat())?;
    answered(lane, client, &hello)
}

fn answered(lane: &Lane<'_>, mut client: Conn, hello: &[u8]) -> Outcome {
    let mut backend = lane.accept_with(Which::Own, hello)?;
    backend.send(b"answer")?;
    client.expect(b"answer")
}

fn dribbled(lane: &Lane<'_>) -> Outcome {
    let hello = lane.hello().bytes();
    let mut client = lane.connect()?;
    client.dribble(V1)?;
    client.send(&hello)?;
    answered(lane, client, &hello)
}

fn broken_v1(lane: &Lane<'_>) -> Outcome {
    let broken: [&[u8]; 5] = [
        b"PROXY TCP4 192.0.2.256 192.0.2.2 1111 443\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1111 65536\r\n",
        b"PROXY TCP9 192.0.2.1 192.0.2.2 1111 443\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1111\r\n",
        b"PROXY  TCP4 192.0.2.1 192.0.2.2 1111 443\r\n",
    ];
    broken.iter().try_for_each(|header| {
        let text = String::from_utf8_lossy(header).trim_end().to_owned();
        refused(lane, header).map_err(|seen| format!("{text}: {seen}"))
    })
}

fn broken_v2(lane: &Lane<'_>) -> Outcome {
    let mut too_short = v2(0x21, &[]);
    // Less than two addresses and two ports.
    too_short[15] = 8;
    refused(lane, &v2(0x31, &[])).map_err(|seen| format!("version 3: {seen}"))?;
    refused(lane, &v2(0x2f, &[])).map_err(|seen| format!("command 15: {seen}"))?;
    refused(lane, &too_short).map_err(|seen| format!("too short for its addresses: {seen}"))
}

fn refused(lane: &Lane<'_>, header: &[u8]) -> Outcome {
    lane.expect_refused(&[header, &lane.hello().bytes()].concat())
}

fn out_v1(lane: &Lane<'_>) -> Outcome {
    let (client, hello, mut backend) = sent(lane)?;
    let (source, destination) = (client.local_addr()?, lane.address());
    let expected =
        format!("PROXY TCP4 {} {} {} {}\r\n", source.ip(), destination.ip(), source.port(), destination.port());
    let received = backend.receive(expected.len())?;
    if received != expected.as_bytes() {
        return Err(format!("{:?} where {expected:?} was due", String::from_utf8_lossy(&received)));
    }
    backend.expect(&hello)
}

fn out_v2(lane: &Lane<'_>) -> Outcome {
    let (client, hello, mut backend) = sent(lane)?;
    expect_v2(&mut backend, client.local_addr()?)?;
    backend.expect(&hello)
}

fn through(lane: &Lane<'_>) -> Outcome {
    let hello = lane.hello().bytes();
    let mut client = lane.connect()?;
    client.send(&[V1, &hello].concat())?;
    let mut backend = lane.accept(Which::Own)?;
    expect_v2(&mut backend, ORIGINAL.into())?;
    backend.expect(&hello)
}

fn sent(lane: &Lane<'_>) -> Outcome<(Conn, Vec<u8>, Conn)> {
    let hello = lane.hello().bytes();
    let mut client = lane.connect()?;
    client.send(&hello)?;
    let backend = lane.accept(Which::Own)?;
    Ok((client, hello, backend))
}

/// A v2 header with this source; TLVs behind it have to be whole.
fn expect_v2(backend: &mut Conn, source: SocketAddr) -> Outcome {
    let head = backend.receive(16)?;
    if !head.starts_with(SIGNATURE) || head[12..14] != [0x21, 0x11] {
        return Err(format!("the header begins with {head:02x?}"));
    }
    let body = backend.receive(usize::from(u16::from_be_bytes([head[14], head[15]])))?;
    let [a, b, c, d, _, _, _, _, high, low, _, _, tlvs @ ..] = body.as_slice() else {
        return Err(format!("{} bytes are too few for two addresses", body.len()));
    };
    let told = SocketAddr::from((Ipv4Addr::new(*a, *b, *c, *d), u16::from_be_bytes([*high, *low])));
    if told != source {
        return Err(format!("the backend was told {told}, the client is {source}"));
    }
    whole_tlvs(tlvs)
}

fn whole_tlvs(mut tlvs: &[u8]) -> Outcome {
    while let [_, high, low, rest @ ..] = tlvs {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        tlvs = rest.get(length..).ok_or("a TLV is longer than the header")?;
    }
    if tlvs.is_empty() { Ok(()) } else { Err("half a TLV at the end of the header".to_owned()) }
}
