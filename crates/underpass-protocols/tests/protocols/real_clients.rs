use underpass_protocols::{Inspected, ServerName, inspect};

use crate::hellos::records_of;
use crate::invariants;

/// What must be read out of a file under `tests/hellos/`.
struct Expected {
    file: &'static str,
    bytes: &'static [u8],
    name: Option<&'static str>,
    /// The beginning of the first protocol.
    first_alpn: Option<&'static str>,
    version: u16,
    ech: bool,
}

macro_rules! expected {
    ($file:literal, $name:expr, $first_alpn:expr, $version:expr, $ech:expr) => {
        Expected {
            file: $file,
            bytes: include_bytes!(concat!("../hellos/", $file, ".bin")),
            name: $name,
            first_alpn: $first_alpn,
            version: $version,
            ech: $ech,
        }
    };
}

const HELLOS: &[Expected] = &[
    expected!("openssl", Some("openssl.example.com"), Some("h2"), 0x0304, false),
    expected!("openssl-tls12", Some("OLD.Example.Com"), None, 0x0303, false),
    expected!("openssl-no-name", None, None, 0x0304, false),
    expected!("openssl-records-of-512", Some("cut.example.com"), Some("protocol-00"), 0x0304, false),
    expected!("curl", Some("curl.example.com"), Some("h2"), 0x0304, false),
    expected!("python", Some("python.example.com"), Some("http/1.1"), 0x0304, false),
    expected!("go", Some("go.example.com"), Some("h2"), 0x0304, false),
    expected!("go-ech", Some("public.example.com"), Some("h2"), 0x0304, true),
    expected!("go-20k", Some("big.example.com"), Some("p00-xxx"), 0x0304, false),
];

impl Expected {
    fn check(&self, bytes: &[u8]) {
        let mut scratch = Vec::new();
        let Inspected::Tls(hello) = inspect(bytes, &mut scratch) else { panic!("{}: not a hello", self.file) };
        assert_eq!(hello.server_name().map(ServerName::as_str), self.name, "{}", self.file);
        let first = hello.alpn.iter().next().unwrap_or_default();
        assert!(first.starts_with(self.first_alpn.unwrap_or_default().as_bytes()), "{}", self.file);
        assert_eq!(hello.alpn.is_empty(), self.first_alpn.is_none(), "{}", self.file);
        assert_eq!((hello.version, hello.ech), (self.version, self.ech), "{}", self.file);
        assert_eq!(hello.len, bytes.len(), "{}", self.file);
        invariants::client_hello(bytes);
    }

    /// The handshake message without its records.
    fn message(&self) -> Vec<u8> {
        let (mut rest, mut message) = (self.bytes, Vec::new());
        while let [22, 3, _, high, low, content @ ..] = rest {
            let (content, next) = content.split_at(u16::from_be_bytes([*high, *low]).into());
            message.extend(content);
            rest = next;
        }
        message
    }
}

#[test]
fn hellos_are_read_as_they_came() {
    for hello in HELLOS {
        hello.check(hello.bytes);
    }
}

#[test]
fn and_cut_over_records_in_any_other_way() {
    for hello in HELLOS {
        for most in [3, 5, 64, 1000] {
            hello.check(&records_of(&hello.message(), most));
        }
    }
}

#[test]
fn plain_http_is_known() {
    let request = include_bytes!("../hellos/curl-http.bin");
    assert_eq!(inspect(request, &mut Vec::new()), Inspected::Http);
}
