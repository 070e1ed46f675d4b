use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;
use underpass_protocols::proxy_protocol::*;

use crate::invariants;

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn header(bytes: &[u8]) -> Header<'_> {
    invariants::proxy_protocol(bytes);
    match parse(bytes) {
        Parsed::Header(header) => header,
        other => panic!("not a header: {other:?}"),
    }
}

fn refusal_of(bytes: &[u8]) -> ProxyProtocolError {
    invariants::proxy_protocol(bytes);
    match parse(bytes) {
        Parsed::Invalid(reason) => reason,
        other => panic!("not refused: {other:?}"),
    }
}

fn stream(source: &str, destination: &str) -> Addresses<'static> {
    let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
    Addresses::Ip { transport: Transport::Stream, source, destination }
}

fn v2(version_and_command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u16).to_be_bytes();
    [SIGNATURE, &[version_and_command, family], &length, body].concat()
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind][..], &(value.len() as u16).to_be_bytes(), value].concat()
}

#[test]
fn lines_of_version_1_are_read() {
    let bytes = b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\nGET /";
    let read = header(bytes);
    assert_eq!((read.version, read.command, read.len), (Version::V1, Command::Proxy, bytes.len() - 5));
    assert_eq!(read.addresses, stream("192.0.2.1:56324", "198.51.100.2:443"));
    assert_eq!(read.source(), Some("192.0.2.1:56324".parse().unwrap()));
    assert_eq!(read.destination(), Some("198.51.100.2:443".parse().unwrap()));
    let read = header(b"PROXY TCP6 2001:db8::1 2001:DB8:0:0:0:0:0:2 0 65535\r\n");
    assert_eq!(read.addresses, stream("[2001:db8::1]:0", "[2001:db8::2]:65535"));
}

#[test]
fn unknown_says_nothing_whatever_follows_it() {
    for line in ["PROXY UNKNOWN\r\n", "PROXY UNKNOWN \r\n", "PROXY UNKNOWN ffff::1 ffff::2 65535 0\r\n"] {
        assert_eq!(header(line.as_bytes()).addresses, Addresses::Unspecified);
        assert_eq!(header(line.as_bytes()).source(), None);
    }
}

#[test]
fn the_longest_line_has_107_bytes() {
    let unknown = |filling: usize| format!("PROXY UNKNOWN {}\r\n", "f".repeat(filling));
    assert_eq!(unknown(91).len(), 107);
    assert_eq!(header(unknown(91).as_bytes()).len, 107);
    assert_eq!(refusal_of(unknown(92).as_bytes()), ProxyProtocolError::TooLong);
    assert_eq!(refusal_of(&[b"PROXY ", &[b' '; 100][..]].concat()), ProxyProtocolError::TooLong);
}

#[test]
fn broken_lines_are_refused_with_the_reason() {
    use ProxyProtocolError::*;
    for (line, reason) in [
        ("GET / HTTP/1.1\r\n", NoSignature),
        ("PROXY\r\n", NoSignature),
        ("PROXYTCP4 1.2.3.4 1.2.3.4 1 2\r\n", NoSignature),
        ("PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n", LineEnd),
        ("PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\r\n", LineEnd),
        ("PROXY \r\n", Protocol),
        ("PROXY TCP5 1.2.3.4 1.2.3.4 1 2\r\n", Protocol),
        ("PROXY tcp4 1.2.3.4 1.2.3.4 1 2\r\n", Protocol),
        ("PROXY  TCP4 1.2.3.4 1.2.3.4 1 2\r\n", Protocol),
        ("PROXY UNKNOWNS\r\n", Protocol),
        ("PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n", Fields),
        ("PROXY TCP4 1.2.3.4 1.2.3.4 1 2 \r\n", Fields),
        ("PROXY TCP4 1.2.3.4  1.2.3.4 1 2\r\n", Fields),
        ("PROXY TCP4 1.2.3.4 1.2.3 1 2\r\n", Address),
        ("PROXY TCP4 1.2.3.4 1.2.3.04 1 2\r\n", Address),
        ("PROXY TCP4 ::1 ::1 1 2\r\n", Address),
        ("PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n", Address),
        ("PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", Address),
        ("PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n", Port),
        ("PROXY TCP4 1.2.3.4 1.2.3.4 1 +2\r\n", Port),
        ("PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n", Port),
        ("PROXY TCP4 1.2.3.4 1.2.3.4 1 \r\n", Port),
    ] {
        assert_eq!(refusal_of(line.as_bytes()), reason, "{line:?}");
    }
}

#[test]
fn headers_of_version_2_are_read() {
    let addresses = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb];
    let body = [&addresses[..], &tlv(0x20, b"cluster"), &tlv(0xea, b""), &tlv(0x04, &[0; 3])].concat();
    let bytes = [v2(0x21, 0x11, &body), vec![22, 3, 1]].concat();
    let read = header(&bytes);
    assert_eq!((read.version, read.command, read.len), (Version::V2, Command::Proxy, bytes.len() - 3));
    assert_eq!(read.addresses, stream("192.0.2.1:56324", "198.51.100.2:443"));
    let kinds: Vec<u8> = read.tlvs.iter().map(|tlv| tlv.kind).collect();
    assert_eq!(kinds, [0x20, 0xea, 0x04]);
    assert_eq!(read.tlvs.get(0x20), Some(&b"cluster"[..]));
    assert_eq!(read.tlvs.get(0x21), None);
}

#[test]
fn families_and_transports_are_told_apart() {
    let v6 = [[0x20; 16], [0x30; 16]].concat();
    let datagram = [&v6[..], &[0, 1, 0, 2]].concat();
    let Addresses::Ip { transport, source, .. } = header(&v2(0x21, 0x22, &datagram)).addresses else { panic!() };
    assert_eq!((transport, source.is_ipv6(), source.port()), (Transport::Datagram, true, 1));

    let mut paths = [0; 216];
    paths[..4].copy_from_slice(b"/a/b");
    paths[108..111].copy_from_slice(b"\0ab");
    let expected =
        Addresses::Unix { transport: Transport::Stream, source: b"/a/b".as_slice(), destination: b"\0ab".as_slice() };
    assert_eq!(header(&v2(0x21, 0x31, &paths)).addresses, expected);
    assert_eq!(header(&v2(0x21, 0x00, &tlv(1, b"h2"))).addresses, Addresses::Unspecified);
}

#[test]
fn of_a_local_header_only_the_length_counts() {
    let bytes = v2(0x20, 0xff, b"no addresses and no TLVs");
    let read = header(&bytes);
    assert_eq!((read.command, read.addresses, read.len), (Command::Local, Addresses::Unspecified, bytes.len()));
    assert!(read.tlvs.is_empty());
}

#[test]
fn broken_headers_are_refused_with_the_reason() {
    use ProxyProtocolError::*;
    let with_tlvs = |tlvs: &[u8]| v2(0x21, 0x11, &[&[1; 12], tlvs].concat());
    assert_eq!(refusal_of(b"\r\n\r\n\0\r\nQUIT\r"), NoSignature);
    assert_eq!(refusal_of(&v2(0x11, 0x11, &[0; 12])), VersionAndCommand(0x11));
    assert_eq!(refusal_of(&v2(0x22, 0x11, &[0; 12])), VersionAndCommand(0x22));
    for family in [0x01, 0x10, 0x13, 0x41] {
        assert_eq!(refusal_of(&v2(0x21, family, &[0; 216])), FamilyAndTransport(family));
    }
    assert_eq!(refusal_of(&v2(0x21, 0x11, &[0; 11])), TooShort);
    assert_eq!(refusal_of(&v2(0x21, 0x21, &[0; 35])), TooShort);
    assert_eq!(refusal_of(&v2(0x21, 0x31, &[0; 215])), TooShort);
    assert_eq!(refusal_of(&v2(0x21, 0x11, &[0; 4097])[..16]), TooLong);
    assert_eq!(refusal_of(&with_tlvs(&[4, 0])), Tlvs);
    assert_eq!(refusal_of(&with_tlvs(&[4, 0, 2, 0])), Tlvs);
    assert_eq!(refusal_of(&with_tlvs(&tlv(CRC32C, &[0; 4]))), Checksum);
    assert_eq!(refusal_of(&with_tlvs(&tlv(CRC32C, &[0; 3]))), Checksum);
}

#[test]
fn a_right_sum_is_right_once() {
    let addresses = stream("192.0.2.1:1", "192.0.2.2:2");
    let written = write_v2(&addresses, &[Tlv { kind: 1, value: b"h2" }], Checksum::Crc32c).unwrap();
    assert_eq!(header(&written).tlvs.get(CRC32C).unwrap().len(), 4);
    let sum = written.len() - 7; // with another type it would be no sum
    for at in (16..written.len()).filter(|at| *at != sum) {
        let mut broken = written.to_vec();
        broken[at] ^= 1;
        assert!(matches!(parse(&broken), Parsed::Invalid(_)), "byte {at}");
    }
    let mut twice = written.to_vec();
    twice.extend_from_slice(&written[sum..]);
    twice[15] += 7;
    assert_eq!(refusal_of(&twice), ProxyProtocolError::Checksum);
}

/// Bytes from the specification's own arithmetic, not from our writer.
#[test]
fn what_is_written_is_known_to_the_byte() {
    let addresses = stream("192.0.2.1:56324", "198.51.100.2:443");
    assert_eq!(&*write_v1(&addresses), b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n");
    let v6 = stream("[2001:db8::1]:1", "[::ffff:192.0.2.1]:2");
    assert_eq!(&*write_v1(&v6), b"PROXY TCP6 2001:db8:0:0:0:0:0:1 0:0:0:0:0:ffff:c000:201 1 2\r\n");
    assert_eq!(&*write_v1(&Addresses::Unspecified), b"PROXY UNKNOWN\r\n");
    assert_eq!(&*write_v2_local(), v2(0x20, 0, &[]));
    let body = [&[192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb][..], &tlv(0x20, b"c")].concat();
    let written = write_v2(&addresses, &[Tlv { kind: 0x20, value: b"c" }], Checksum::Omit).unwrap();
    assert_eq!(&*written, v2(0x21, 0x11, &body));
}

#[test]
fn addresses_of_two_families_are_written_as_ipv6() {
    let mixed = stream("192.0.2.1:1", "[2001:db8::2]:2");
    let same = stream("[::ffff:192.0.2.1]:1", "[2001:db8::2]:2");
    assert_eq!(header(&write_v1(&mixed)).addresses, same);
    assert_eq!(header(&write_v2(&mixed, &[], Checksum::Omit).unwrap()).addresses, same);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let long = [0; MAX_WRITTEN];
    let too_long = write_v2(&Addresses::Unspecified, &[Tlv { kind: 9, value: &long }], Checksum::Omit);
    assert_eq!(too_long.unwrap_err(), WriteError::TooLong);
    let path = Addresses::Unix { transport: Transport::Stream, source: &[1; 109], destination: b"" };
    assert_eq!(write_v2(&path, &[], Checksum::Omit).unwrap_err(), WriteError::PathTooLong);
}

fn any_ips() -> impl Strategy<Value = Addresses<'static>> {
    let ends = prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b))),
        any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b))),
    ];
    (ends, any::<(u16, u16, bool)>()).prop_map(|((a, b), (from, to, datagram))| Addresses::Ip {
        transport: if datagram { Transport::Datagram } else { Transport::Stream },
        source: SocketAddr::new(a, from),
        destination: SocketAddr::new(b, to),
    })
}

fn any_tlvs() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    prop::collection::vec((4..=255u8, prop::collection::vec(any::<u8>(), 0..60)), 0..5)
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        invariants::proxy_protocol(&bytes);
    }

    #[test]
    fn any_line(line in "PROXY (TCP[46]|UNKNOWN)?[ 0-9a-f:.]{0,60}(\r\n)?") {
        invariants::proxy_protocol(line.as_bytes());
    }

    #[test]
    fn any_body(command in 0x1f..0x23u8, family in 0..0x40u8, body in prop::collection::vec(0..6u8, 0..300)) {
        invariants::proxy_protocol(&v2(command, family, &body));
    }

    #[test]
    fn what_is_written_is_read(addresses in any_ips(), tlvs in any_tlvs(), sum: bool) {
        let checksum = if sum { Checksum::Crc32c } else { Checksum::Omit };
        let tlvs: Vec<_> = tlvs.iter().map(|(kind, value)| Tlv { kind: *kind, value }).collect();
        let written = write_v2(&addresses, &tlvs, checksum).unwrap();
        let read = header(&written);
        prop_assert_eq!((read.version, read.command), (Version::V2, Command::Proxy));
        prop_assert_eq!((read.addresses, read.len), (addresses, written.len()));
        prop_assert!(read.tlvs.iter().filter(|tlv| tlv.kind != CRC32C).eq(tlvs));
        prop_assert_eq!(read.tlvs.get(CRC32C).is_some(), sum);
    }

    #[test]
    fn what_is_written_in_version_1_is_read(addresses in any_ips()) {
        let written = write_v1(&addresses);
        let expected = match addresses {
            Addresses::Ip { transport: Transport::Stream, .. } => addresses,
            _ => Addresses::Unspecified,
        };
        prop_assert_eq!(header(&written).addresses, expected);
    }
}
