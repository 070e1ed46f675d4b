use proptest::prelude::*;
use underpass_protocols::{ClientHello, HelloError, Inspected, MAX_HELLO, NameError, Sni, inspect};

use crate::hellos::*;
use crate::invariants;

fn hello_of<'a>(bytes: &'a [u8], scratch: &'a mut Vec<u8>) -> ClientHello<'a> {
    match inspect(bytes, scratch) {
        Inspected::Tls(hello) => hello,
        other => panic!("not a hello: {other:?}"),
    }
}

fn name_in(bytes: &[u8]) -> String {
    hello_of(bytes, &mut Vec::new()).server_name().unwrap().as_str().to_owned()
}

fn refusal_of(bytes: &[u8]) -> HelloError {
    invariants::client_hello(bytes);
    match inspect(bytes, &mut Vec::new()) {
        Inspected::Invalid(reason) => reason,
        other => panic!("not refused: {other:?}"),
    }
}

fn with(extensions: &[Vec<u8>]) -> Vec<u8> {
    record(&message(extensions))
}

#[test]
fn nothing_is_decided_without_bytes() {
    assert_eq!(inspect(&[], &mut Vec::new()), Inspected::Incomplete { need: 1 });
}

#[test]
fn one_byte_is_enough_to_refuse_what_cannot_be_tls_or_http() {
    for byte in (0..0x80).filter(|byte| !(20..=24).contains(byte) && !b"GPHDOCT".contains(byte)) {
        assert_eq!(inspect(&[byte], &mut Vec::new()), Inspected::Other, "{byte:#04x}");
    }
}

#[test]
fn bytes_that_only_begin_like_tls_or_ssl_are_other() {
    for bytes in [&[22, 0][..], &[22, 2, 0], &[21, 4], &[0x80, 0x2e, 2], &[0x80, 0x2e, 1, 9], &[0x80, 0x2e, 1, 0, 3]] {
        assert_eq!(inspect(bytes, &mut Vec::new()), Inspected::Other, "{bytes:?}");
        invariants::client_hello(bytes);
    }
}

#[test]
fn a_hello_in_one_record_is_borrowed_and_leaves_the_scratch_alone() {
    let bytes = with(&[padding(3), server_name(b"a.example.com")]);
    let mut scratch = b"before".to_vec();
    let name = hello_of(&bytes, &mut scratch).server_name().unwrap().as_str();
    assert!(bytes.as_ptr_range().contains(&name.as_ptr()));
    assert_eq!(scratch, b"before");
}

#[test]
fn everything_that_is_asked_for_is_read() {
    let protocols = [b"h2".to_vec(), b"http/1.1".to_vec()];
    let versions = extension(SUPPORTED_VERSIONS, &[6, 0x8a, 0x8a, 3, 4, 3, 3]);
    let message = message(&[alpn(&protocols), versions, server_name(b"A.example.com."), extension(ECH, &[0, 1])]);
    let bytes = [record(&message), b"early data".to_vec()].concat();
    let mut scratch = Vec::new();
    let hello = hello_of(&bytes, &mut scratch);
    assert_eq!(hello.server_name().unwrap().as_str(), "A.example.com");
    assert_eq!(&*hello.server_name().unwrap().normal(), "a.example.com");
    assert!(hello.alpn.iter().eq(protocols.iter().map(Vec::as_slice)));
    assert!(hello.alpn.contains(b"h2") && !hello.alpn.contains(b"h3"));
    assert!(hello.ech);
    assert_eq!(hello.version, 0x0304);
    assert_eq!(hello.len, bytes.len() - b"early data".len());
}

#[test]
fn a_hello_without_extensions_asks_for_nothing() {
    let mut body = vec![3, 1];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0, 0x2f, 1, 0]);
    let bytes = record(&wrap(1, &body));
    let mut scratch = Vec::new();
    let hello = hello_of(&bytes, &mut scratch);
    assert_eq!((hello.sni, hello.version, hello.ech), (Sni::Absent, 0x0301, false));
    assert!(hello.alpn.is_empty());
    invariants::client_hello(&bytes);
}

#[test]
fn only_grease_among_the_versions_leaves_the_old_field() {
    let bytes = with(&[extension(SUPPORTED_VERSIONS, &[2, 0x8a, 0x8a])]);
    assert_eq!(hello_of(&bytes, &mut Vec::new()).version, 0x0303);
}

#[test]
fn an_address_is_not_a_name() {
    for literal in ["192.0.2.1", "192.0.2.1.", "2001:db8::1", "::1", "::ffff:192.0.2.1"] {
        let bytes = with(&[server_name(literal.as_bytes())]);
        let mut scratch = Vec::new();
        let hello = hello_of(&bytes, &mut scratch);
        assert_eq!(hello.server_name(), None);
        assert!(matches!(hello.sni, Sni::IpLiteral(_)), "{literal}");
        invariants::client_hello(&bytes);
    }
    assert_eq!(name_in(&with(&[server_name(b"192.0.2.1.test")])), "192.0.2.1.test");
}

#[test]
fn any_version_of_records_is_fine_as_long_as_it_is_tls() {
    let mut bytes = with(&[server_name(b"a.test")]);
    for minor in [0, 1, 2, 3, 4, 0xff] {
        bytes[2] = minor;
        assert_eq!(name_in(&bytes), "a.test");
    }
}

#[test]
fn one_byte_per_record_is_enough() {
    let message = message(&[server_name(b"slow.example.com")]);
    let bytes = records_of(&message, 1);
    assert_eq!(name_in(&bytes), "slow.example.com");
    invariants::client_hello(&bytes);
}

#[test]
fn hellos_of_up_to_64_kib_are_read() {
    let fill = |padding_of: usize| {
        let list = [padding(padding_of / 2), padding(padding_of - padding_of / 2), server_name(b"big.test")];
        records_of(&message(&list), 1 << 14)
    };
    let room = MAX_HELLO - fill(0).len() - 3 * 5; // four records, of which one has been counted
    let longest = fill(room);
    assert_eq!(longest.len(), MAX_HELLO);
    assert_eq!(name_in(&longest), "big.test");
    invariants::client_hello(&longest);
    assert_eq!(refusal_of(&fill(room + 1)), HelloError::TooLong);
}

#[test]
fn what_announces_more_than_64_kib_is_refused_at_its_ninth_byte() {
    let bytes = [22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff];
    assert_eq!(refusal_of(&bytes), HelloError::TooLong);
    assert_eq!(inspect(&bytes[..8], &mut Vec::new()), Inspected::Incomplete { need: 9 });
}

#[test]
fn record_headers_count() {
    let message = message(&[padding(20_000), server_name(b"a.test")]);
    assert_eq!(refusal_of(&records_of(&message, 1)), HelloError::TooLong);
    assert_eq!(name_in(&records_of(&message, 4)), "a.test");
}

#[test]
fn empty_records_are_borne_up_to_a_bound() {
    let message = message(&[server_name(b"a.test")]);
    let bytes = |count: usize| [record(&[]).repeat(count), record(&message)].concat();
    assert_eq!(name_in(&bytes(32)), "a.test");
    assert_eq!(refusal_of(&bytes(33)), HelloError::EmptyRecords);
    invariants::client_hello(&bytes(32));
}

#[test]
fn waiting_for_what_is_needed_takes_few_questions() {
    let bytes = records_of(&message(&[padding(9_000)]), 1);
    let (mut arrived, mut asked) = (0, 0);
    while let Inspected::Incomplete { need } = inspect(&bytes[..arrived], &mut Vec::new()) {
        (arrived, asked) = (need, asked + 1);
    }
    assert!(asked < 60, "{asked} questions for one hello");
}

#[test]
fn broken_records_are_refused() {
    let message = message(&[server_name(b"a.test")]);
    let (first, second) = message.split_at(20);
    let other = |kind: u8, major: u8| [record(first), vec![kind, major, 3, 0, 1, 0]].concat();
    assert_eq!(refusal_of(&[21, 3, 1, 0, 2, 2, 40]), HelloError::NotAHandshake(21));
    assert_eq!(refusal_of(&[23, 3]), HelloError::NotAHandshake(23));
    assert_eq!(refusal_of(&other(20, 3)), HelloError::NotAHandshake(20));
    assert_eq!(refusal_of(&other(22, 2)), HelloError::RecordVersion);
    assert_eq!(refusal_of(&[22, 3, 1, 0x40, 1]), HelloError::RecordTooLong);
    assert_eq!(refusal_of(&[22, 3, 1, 0, 1, 2]), HelloError::NotAClientHello(2));
    assert_eq!(name_in(&[record(first), record(second)].concat()), "a.test");
}

#[test]
fn the_hello_of_sslv2_is_recognised() {
    assert_eq!(refusal_of(&[0x80, 0x2e, 1, 0, 2, 0, 0x15]), HelloError::Ssl2);
    assert_eq!(refusal_of(&[0x80, 0x2e, 1, 3, 1]), HelloError::Ssl2);
}

#[test]
fn broken_names_are_refused_with_the_reason() {
    let refused = |name: &[u8]| refusal_of(&with(&[server_name(name)]));
    assert_eq!(refused(b""), HelloError::Name(NameError::Empty));
    assert_eq!(refused(b"a\0.test"), HelloError::Name(NameError::Character(0)));
    assert_eq!(refused("bücher.test".as_bytes()), HelloError::Name(NameError::Character(0xc3)));
    assert_eq!(refused(b"a..test"), HelloError::Name(NameError::EmptyLabel));
    assert_eq!(refused(b"[::1]"), HelloError::Name(NameError::Character(b'[')));
    assert_eq!(refused(&[b'a'; 64]), HelloError::Name(NameError::LabelTooLong));
    assert_eq!(refused(&b"a.".repeat(200)), HelloError::Name(NameError::TooLong));
}

#[test]
fn more_than_one_name_is_refused_in_every_form() {
    let entry = |kind: u8, name: &[u8]| [&[kind][..], &prefixed_u16(name)].concat();
    let list = |entries: &[Vec<u8>]| with(&[extension(SERVER_NAME, &prefixed_u16(&entries.concat()))]);
    let (a, b) = (entry(0, b"a.test"), entry(0, b"b.test"));
    assert_eq!(refusal_of(&list(&[a.clone(), b])), HelloError::SeveralNames);
    assert_eq!(refusal_of(&list(&[a, entry(1, b"b")])), HelloError::SeveralNames);
    assert_eq!(refusal_of(&list(&[entry(1, b"a.test")])), HelloError::UnknownNameType);
    let twice = with(&[server_name(b"a.test"), server_name(b"a.test")]);
    assert_eq!(refusal_of(&twice), HelloError::DuplicateExtension(SERVER_NAME));
}

#[test]
fn lengths_that_do_not_add_up_are_refused() {
    let sni = HelloError::Malformed("server_name extension");
    for data in [&[][..], &[0, 0], &[0, 9, 0, 0, 1, b'a'], &[0, 4, 0, 0, 1, b'a', 0], &[0, 4, 0, 0, 2, b'a']] {
        assert_eq!(refusal_of(&with(&[extension(SERVER_NAME, data)])), sni, "{data:?}");
    }
    for data in [&[][..], &[0, 0], &[0, 1, 0], &[0, 2, 2, b'h'], &[0, 2, 1, b'h', 0]] {
        assert_eq!(refusal_of(&with(&[extension(ALPN, data)])), HelloError::Malformed("ALPN extension"), "{data:?}");
    }
    for data in [&[][..], &[1, 3], &[2, 3, 4, 0]] {
        let refused = refusal_of(&with(&[extension(SUPPORTED_VERSIONS, data)]));
        assert_eq!(refused, HelloError::Malformed("supported_versions extension"), "{data:?}");
    }
    assert_eq!(refusal_of(&with(&[vec![0, 1, 2]])), HelloError::Malformed("extensions"));
    let mut longer = message(&[]);
    longer.push(0);
    longer[3] += 1;
    assert_eq!(refusal_of(&record(&longer)), HelloError::Malformed("extensions"));
}

#[test]
fn the_fields_before_the_extensions_are_checked() {
    let body = |change: fn(&mut Vec<u8>)| {
        let mut body = message(&[])[4..].to_vec();
        change(&mut body);
        refusal_of(&record(&wrap(1, &body)))
    };
    assert_eq!(body(|body| body[0] = 2), HelloError::Version(0x0203));
    assert_eq!(body(|body| body.truncate(1)), HelloError::Malformed("version"));
    assert_eq!(body(|body| body.truncate(20)), HelloError::Malformed("random"));
    assert_eq!(body(|body| body[34] = 33), HelloError::Malformed("session id"));
    assert_eq!(body(|body| body[36] = 3), HelloError::Malformed("cipher suites"));
    assert_eq!(body(|body| body[36] = 0), HelloError::Malformed("cipher suites"));
    assert_eq!(body(|body| body[41] = 0), HelloError::Malformed("compression methods"));
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        invariants::client_hello(&bytes);
    }

    #[test]
    fn any_bytes_in_records(content in prop::collection::vec(any::<u8>(), 0..400), cuts: [prop::sample::Index; 3]) {
        invariants::client_hello(&records_cut_at(&wrap(1, &content), &cuts));
    }

    #[test]
    fn any_extensions(
        mut kinds in prop::collection::vec((prop::sample::select(vec![SERVER_NAME, ALPN, SUPPORTED_VERSIONS, ECH, GREASE]),
            prop::collection::vec(0..9u8, 0..12)), 0..5),
    ) {
        let extensions: Vec<_> = kinds.drain(..).map(|(kind, data)| extension(kind, &data)).collect();
        invariants::client_hello(&with(&extensions));
    }

    #[test]
    fn names_in_are_names_out_however_they_are_cut(
        name in any_name(),
        protocols in any_alpn(),
        room in 0..40_000usize,
        name_first: bool,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut extensions = vec![server_name(name.as_bytes()), padding(room)];
        if !protocols.is_empty() {
            extensions.push(alpn(&protocols));
        }
        if !name_first {
            extensions.reverse();
        }
        let bytes = records_cut_at(&message(&extensions), &cuts);
        let mut scratch = Vec::new();
        let hello = hello_of(&bytes, &mut scratch);
        prop_assert_eq!(hello.server_name().unwrap().as_str(), &name);
        prop_assert!(hello.alpn.iter().eq(protocols.iter().map(Vec::as_slice)));
        prop_assert_eq!(hello.len, bytes.len());
        invariants::client_hello(&bytes);
    }
}
