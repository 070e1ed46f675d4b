//! TLS ClientHellos made by hand, to be cut where no TLS library would cut them.

/// What a TLS record can carry.
pub const LARGEST_RECORD: usize = 1 << 14;

const HANDSHAKE: u8 = 22;
const SERVER_NAME: u16 = 0;
const PADDING: u16 = 21;
const KEY_SHARE: u16 = 51;

/// A ClientHello as a browser would send it, with changes.
#[derive(Clone, Debug)]
pub struct Hello {
    name: Option<Vec<u8>>,
    /// Tells one hello from another.
    random: [u8; 32],
    suites: Vec<u16>,
    /// Before the server name.
    first: Vec<(u16, Vec<u8>)>,
    /// After it.
    last: Vec<(u16, Vec<u8>)>,
}

impl Hello {
    pub fn to(name: &str) -> Self {
        Self { name: Some(name.as_bytes().to_vec()), ..Self::unnamed() }
    }

    /// With a name that no resolver would take.
    pub fn to_bytes(name: &[u8]) -> Self {
        Self { name: Some(name.to_vec()), ..Self::unnamed() }
    }

    /// Without the server_name extension.
    pub fn unnamed() -> Self {
        let last = vec![
            (10, vec![0, 6, 0, 29, 0, 23, 0, 24]),
            (13, vec![0, 8, 4, 3, 8, 4, 4, 1, 5, 3]),
            (16, b"\0\x0c\x02h2\x08http/1.1".to_vec()),
            (43, vec![4, 3, 4, 3, 3]),
            (45, vec![1, 1]),
            (KEY_SHARE, key_shares(&[(29, 32)])),
        ];
        Self { name: None, random: [7; 32], suites: vec![0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f], first: vec![], last }
    }

    /// Tells it from others: a backend that receives these bytes knows whose they are.
    pub fn marked(mut self, mark: u64) -> Self {
        self.random[..8].copy_from_slice(&mark.to_be_bytes());
        self
    }

    /// Another extension behind the server name.
    pub fn with(mut self, extension: u16, body: Vec<u8>) -> Self {
        self.last.push((extension, body));
        self
    }

    /// Another extension before the server name.
    pub fn with_before(mut self, extension: u16, body: Vec<u8>) -> Self {
        self.first.push((extension, body));
        self
    }

    /// Values that no registry knows, wherever a client may put them (RFC 8701).
    pub fn with_grease(mut self) -> Self {
        self.suites.insert(0, 0x2a2a);
        self.with_before(0xdada, vec![]).with(0x4a4a, vec![0])
    }

    /// The key share of X25519MLKEM768 beside the usual one.
    pub fn with_post_quantum_key(mut self) -> Self {
        self.last.retain(|(kind, _)| *kind != KEY_SHARE);
        self.with(KEY_SHARE, key_shares(&[(0x11ec, 1216), (29, 32)]))
    }

    /// An encrypted inner hello; the name outside is the one to route by.
    pub fn with_encrypted_hello(self) -> Self {
        let mut body = vec![0, 0, 1, 0, 1, 42, 0, 32];
        body.extend([9; 32]);
        body.extend([0, 208]);
        body.extend([8; 208]);
        self.with(0xfe0d, body)
    }

    /// Padding, so that the handshake message has this size.
    pub fn padded_to(self, size: usize) -> Self {
        let missing = size.checked_sub(self.message().len() + 4).expect("padding makes a hello longer");
        self.with(PADDING, vec![0; missing])
    }

    /// The same, with the padding before the name.
    pub fn padded_before_to(self, size: usize) -> Self {
        let missing = size.checked_sub(self.message().len() + 4).expect("padding makes a hello longer");
        self.with_before(PADDING, vec![0; missing])
    }

    /// The handshake message, without records.
    pub fn message(&self) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend(self.random);
        body.extend([32]);
        body.extend([5; 32]);
        put_u16_block(&mut body, &self.suites.iter().flat_map(|suite| suite.to_be_bytes()).collect::<Vec<_>>());
        body.extend([1, 0]);
        put_u16_block(&mut body, &self.extensions());
        let mut message = vec![1];
        message.extend(&(body.len() as u32).to_be_bytes()[1..]);
        message.extend(body);
        message
    }

    /// In as few records as possible.
    pub fn bytes(&self) -> Vec<u8> {
        self.in_records_of(LARGEST_RECORD)
    }

    /// In records that carry so many bytes each.
    pub fn in_records_of(&self, size: usize) -> Vec<u8> {
        self.message().chunks(size).flat_map(record).collect()
    }

    /// In two records, the first of which carries so many bytes.
    pub fn in_two_records(&self, first: usize) -> Vec<u8> {
        let message = self.message();
        let (head, tail) = message.split_at(first);
        [record(head), record(tail)].concat()
    }

    fn extensions(&self) -> Vec<u8> {
        let name = self.name.iter().map(|name| (SERVER_NAME, server_name(name)));
        let mut bytes = Vec::new();
        for (kind, body) in self.first.iter().cloned().chain(name).chain(self.last.iter().cloned()) {
            bytes.extend(kind.to_be_bytes());
            put_u16_block(&mut bytes, &body);
        }
        bytes
    }
}

/// A handshake record around these bytes.
pub fn record(payload: &[u8]) -> Vec<u8> {
    let mut record = vec![HANDSHAKE, 3, 1];
    put_u16_block(&mut record, payload);
    record
}

fn server_name(name: &[u8]) -> Vec<u8> {
    let mut entry = vec![0];
    put_u16_block(&mut entry, name);
    let mut list = Vec::new();
    put_u16_block(&mut list, &entry);
    list
}

/// Groups and the sizes of their keys.
fn key_shares(shares: &[(u16, usize)]) -> Vec<u8> {
    let mut entries = Vec::new();
    for (group, size) in shares {
        entries.extend(group.to_be_bytes());
        put_u16_block(&mut entries, &vec![3; *size]);
    }
    let mut list = Vec::new();
    put_u16_block(&mut list, &entries);
    list
}

fn put_u16_block(bytes: &mut Vec<u8>, block: &[u8]) {
    let length = u16::try_from(block.len()).expect("a block fits into 64 KiB");
    bytes.extend(length.to_be_bytes());
    bytes.extend(block);
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// What rustls reads as the name.
    fn name_of(bytes: &[u8]) -> Option<String> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut acceptor = rustls::server::Acceptor::default();
        acceptor.read_tls(&mut Cursor::new(bytes)).unwrap();
        let accepted = acceptor.accept().unwrap_or_else(|(error, _)| panic!("{error}"));
        accepted.and_then(|accepted| accepted.client_hello().server_name().map(str::to_owned))
    }

    #[test]
    fn a_tls_library_reads_the_name() {
        let hello = Hello::to("a.example.test");
        assert_eq!(name_of(&hello.bytes()).as_deref(), Some("a.example.test"));
        assert_eq!(name_of(&hello.in_two_records(60)).as_deref(), Some("a.example.test"));
        assert_eq!(name_of(&Hello::unnamed().bytes()), None);
        let dressed = hello.with_grease().with_encrypted_hello();
        assert_eq!(name_of(&dressed.bytes()).as_deref(), Some("a.example.test"));
    }

    #[test]
    fn padding_is_exact() {
        assert_eq!(Hello::to("a.test").padded_to(4000).message().len(), 4000);
        assert_eq!(Hello::to("a.test").padded_before_to(20_000).bytes().len(), 20_000 + 2 * 5);
    }
}
