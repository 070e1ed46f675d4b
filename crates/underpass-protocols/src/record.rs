//! TLS records (RFC 8446 5.1) up to the end of the first handshake message.
//!
//! A client may cut its hello over records as it likes, in the middle of the name and in the middle of the message's own header.
//! The records are measured first; only a hello that is there as a whole and in several pieces is copied together.

use crate::inspect::HelloError;

/// The most bytes of a connection that are looked at for one hello, record headers included. Post-quantum hellos have 2 to 20 kB.
pub const MAX_HELLO: usize = 64 * 1024;

pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const MAJOR_VERSION: u8 = 3;

const RECORD_HEADER: usize = 5;
const MAX_RECORD: usize = 1 << 14;
/// Records without content are forbidden in a handshake, yet OpenSSL lets so many pass: a free way to keep a relay busy otherwise.
const MAX_EMPTY_RECORDS: usize = 32;

const MESSAGE_HEADER: usize = 4;
const CLIENT_HELLO: u8 = 1;

pub(crate) enum Gathered<'a> {
    Incomplete { need: usize },
    Whole { body: &'a [u8], len: usize },
}

/// Finds the body of the ClientHello in the records that have arrived. `scratch` is used only when it lies in pieces.
pub(crate) fn gather<'a>(bytes: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<Gathered<'a>, HelloError> {
    let (message, len) = match measure(bytes)? {
        Measured::Incomplete { need } => return Ok(Gathered::Incomplete { need }),
        Measured::Contiguous { len } => (&bytes[RECORD_HEADER..len], len),
        Measured::Pieces { len } => {
            join(&bytes[..len], scratch);
            (scratch.as_slice(), len)
        }
    };
    Ok(Gathered::Whole { body: &message[MESSAGE_HEADER..], len })
}

enum Measured {
    Incomplete { need: usize },
    Contiguous { len: usize },
    Pieces { len: usize },
}

fn measure(bytes: &[u8]) -> Result<Measured, HelloError> {
    let mut message = Message::default();
    let mut need = shortest(MESSAGE_HEADER);
    let mut empty_records = 0;
    let mut at = 0;
    while let Some(length) = record_length(&bytes[at..])? {
        empty_records += usize::from(length == 0);
        if empty_records > MAX_EMPTY_RECORDS {
            return Err(HelloError::EmptyRecords);
        }
        let start = at + RECORD_HEADER;
        let end = bytes.len().min(start + length);
        let missing = message.missing_before(&bytes[start..end])?;
        need = start + if missing <= length { missing } else { length + shortest(missing - length) };
        if need > MAX_HELLO {
            return Err(HelloError::TooLong);
        }
        if need <= end {
            return Ok(if at == 0 { Measured::Contiguous { len: need } } else { Measured::Pieces { len: need } });
        }
        if end < start + length {
            break;
        }
        message.arrived += length;
        at = end;
    }
    Ok(Measured::Incomplete { need })
}

/// The length of the record that begins here; `None` while its header is incomplete.
fn record_length(bytes: &[u8]) -> Result<Option<usize>, HelloError> {
    if bytes.first().is_some_and(|kind| *kind != HANDSHAKE) {
        return Err(HelloError::NotAHandshake(bytes[0]));
    }
    if bytes.get(1).is_some_and(|major| *major != MAJOR_VERSION) {
        return Err(HelloError::RecordVersion);
    }
    let Some([_, _, _, high, low]) = bytes.first_chunk() else { return Ok(None) };
    match usize::from(u16::from_be_bytes([*high, *low])) {
        length if length > MAX_RECORD => Err(HelloError::RecordTooLong),
        length => Ok(Some(length)),
    }
}

/// The fewest bytes that can carry so much of a message from the start of a record on.
fn shortest(message: usize) -> usize {
    message + message.div_ceil(MAX_RECORD) * RECORD_HEADER
}

/// The handshake message as far as the records tell.
#[derive(Default)]
struct Message {
    header: [u8; MESSAGE_HEADER],
    /// Bytes of it, header included, in the records before the current one.
    arrived: usize,
}

impl Message {
    /// How much of the message the current record and those after it have to bring; `fragment` is what came of the current one.
    /// Until the header is there, the header is all that is known to be missing.
    fn missing_before(&mut self, fragment: &[u8]) -> Result<usize, HelloError> {
        for (to, from) in self.header.iter_mut().skip(self.arrived).zip(fragment) {
            *to = *from;
        }
        let known = self.arrived + fragment.len();
        let [kind, length @ ..] = self.header;
        if known > 0 && kind != CLIENT_HELLO {
            return Err(HelloError::NotAClientHello(kind));
        }
        let [high, middle, low] = length.map(usize::from);
        let body = if known < MESSAGE_HEADER { 0 } else { high << 16 | middle << 8 | low };
        Ok(MESSAGE_HEADER + body - self.arrived)
    }
}

/// Puts the fragments of records that were measured before behind each other.
fn join(mut records: &[u8], into: &mut Vec<u8>) {
    into.clear();
    while let Some(([_, _, _, high, low], rest)) = records.split_first_chunk::<RECORD_HEADER>() {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (fragment, rest) = rest.split_at(length);
        into.extend_from_slice(fragment);
        records = rest;
    }
}
