use proptest::prelude::*;
use underpass_protocols::{Inspected, Sniffed, inspect, sniff};

use crate::invariants;

#[test]
fn a_method_and_a_space_are_http() {
    for method in ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "CONNECT", "PATCH", "TRACE", "PRI"] {
        let request = format!("{method} / HTTP/1.1\r\n");
        assert_eq!(sniff(request.as_bytes()), Sniffed::Http);
        for end in 0..=method.len() {
            assert!(matches!(sniff(&request.as_bytes()[..end]), Sniffed::Incomplete { .. }), "{}", &request[..end]);
        }
        assert_eq!(sniff(&request.as_bytes()[..=method.len()]), Sniffed::Http);
        invariants::client_hello(request.as_bytes());
    }
}

#[test]
fn other_words_are_not() {
    for text in ["get / HTTP/1.1", "GETS ", "GET\t/", "SSH-2.0-OpenSSH_9.2", "EHLO example.com", "PROXY TCP4 ", "P\0"] {
        assert_eq!(sniff(text.as_bytes()), Sniffed::Other, "{text:?}");
    }
}

#[test]
fn the_next_byte_may_decide() {
    assert_eq!(sniff(b"D"), Sniffed::Incomplete { need: 2 });
    assert_eq!(sniff(b"DA"), Sniffed::Other);
    assert_eq!(sniff(b"DELET"), Sniffed::Incomplete { need: 6 });
    assert_eq!(inspect(b"OPTIONS", &mut Vec::new()), Inspected::Incomplete { need: 8 });
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
        invariants::http(&bytes);
    }

    #[test]
    fn any_letters(text in "[A-Z]{1,8} ?[a-z/ ]{0,8}") {
        invariants::http(text.as_bytes());
    }
}
