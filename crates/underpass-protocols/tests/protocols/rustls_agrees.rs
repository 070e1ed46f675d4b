//! rustls reads the same out of a hello as we do: what its own clients send, and that with damage.

use proptest::prelude::*;
use underpass_protocols::{Inspected, inspect};

use crate::hellos::*;
use crate::invariants::{self, ReadByRustls, read_by_rustls};

/// Damage that is more than noise: it hits the small fields, too.
fn damage() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    let byte = prop_oneof![any::<u8>(), 0..20u8, Just(b'.'), Just(0xff)];
    prop::collection::vec((any::<prop::sample::Index>(), byte), 1..6)
}

proptest! {
    #[test]
    fn on_hellos_of_its_clients(name in "([a-z0-9]{1,20}\\.){0,4}[a-z]{2,20}", protocols in any_alpn()) {
        let bytes = of_rustls(&name, &protocols);
        prop_assert_eq!(read_by_rustls(&bytes), Some(ReadByRustls { name: Some(name.clone()), alpn: protocols.clone() }));
        let mut scratch = Vec::new();
        let Inspected::Tls(hello) = inspect(&bytes, &mut scratch) else { panic!("not a hello") };
        prop_assert_eq!(hello.server_name().unwrap().as_str(), &name);
        prop_assert!(hello.alpn.iter().eq(protocols.iter().map(Vec::as_slice)));
        prop_assert_eq!((hello.version, hello.len), (0x0304, bytes.len()));
        invariants::client_hello(&bytes);
    }

    #[test]
    fn on_damaged_hellos(name in "[a-z]{1,9}\\.[a-z]{2,5}", protocols in any_alpn(), damage in damage(), cuts: [prop::sample::Index; 2]) {
        let mut message = of_rustls(&name, &protocols)[5..].to_vec();
        for (at, byte) in damage {
            let at = at.index(message.len());
            message[at] = byte;
        }
        invariants::client_hello(&records_cut_at(&message, &cuts));
    }

    #[test]
    fn on_any_name(name in prop_oneof![any_name(), "[a-zA-Z0-9.:_-]{1,70}", "\\PC{1,20}"]) {
        let hello = of_rustls("placeholder.test", &[]);
        let renamed = rename(&hello, name.as_bytes());
        invariants::client_hello(&renamed);
    }
}

/// A hello of rustls with another name in it; every length around it is put right.
fn rename(hello: &[u8], name: &[u8]) -> Vec<u8> {
    let old = server_name(b"placeholder.test");
    let at = hello.windows(old.len()).position(|window| window == old).unwrap();
    let extensions_at = 5 + 4 + 2 + 32 + 1 + 32 + 2 + suites_len(hello) + 2;
    let extensions = [&hello[extensions_at + 2..at], &server_name(name), &hello[at + old.len()..]].concat();
    record(&wrap(1, &[&hello[9..extensions_at], &prefixed_u16(&extensions)].concat()))
}

fn suites_len(hello: &[u8]) -> usize {
    let at = 5 + 4 + 2 + 32 + 1 + 32;
    u16::from_be_bytes([hello[at], hello[at + 1]]).into()
}
