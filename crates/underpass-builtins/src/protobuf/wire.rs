//! The bytes of protobuf: numbered fields, each a number or a run of bytes. Knows no message.

use super::Problem;

/// One field as it stands in the bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

/// The fields of a message by number; equal numbers in the order of the bytes.
pub(super) struct Fields<'a>(Vec<(u64, Wire<'a>)>);

/// The largest number that a field can have.
const LAST_NUMBER: u64 = (1 << 29) - 1;

impl<'a> Fields<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, Problem> {
        let (mut found, mut rest) = (Vec::new(), bytes);
        while !rest.is_empty() {
            let tag = varint(&mut rest)?;
            let number = tag >> 3;
            if number == 0 || number > LAST_NUMBER {
                return Err(Problem::FieldNumber(number));
            }
            let value = match (tag & 7) as u8 {
                0 => Wire::Varint(varint(&mut rest)?),
                1 => Wire::Fixed64(u64::from_le_bytes(array(&mut rest)?)),
                2 => Wire::Bytes(run(&mut rest)?),
                5 => Wire::Fixed32(u32::from_le_bytes(array(&mut rest)?)),
                other => return Err(Problem::UnknownWireType(other)),
            };
            found.push((number, value));
        }
        found.sort_by_key(|(number, _)| *number);
        Ok(Self(found))
    }

    /// Every occurrence of one field.
    pub(super) fn all(&self, number: u64) -> impl ExactSizeIterator<Item = Wire<'a>> {
        let start = self.0.partition_point(|(n, _)| *n < number);
        let end = self.0.partition_point(|(n, _)| *n <= number);
        self.0[start..end].iter().map(|(_, value)| *value)
    }

    /// The one that counts where only one is meant.
    pub(super) fn last(&self, number: u64) -> Option<Wire<'a>> {
        self.all(number).last()
    }

    /// Text that is empty when left out.
    pub(super) fn text(&self, number: u64) -> Result<&'a str, Problem> {
        self.last(number).map_or(Ok(""), Wire::text)
    }

    /// A number that is zero when left out.
    pub(super) fn number(&self, number: u64) -> Result<u64, Problem> {
        self.last(number).map_or(Ok(0), Wire::number)
    }

    /// Bytes that are none when left out.
    pub(super) fn bytes(&self, number: u64) -> Result<&'a [u8], Problem> {
        self.last(number).map_or(Ok(&[]), Wire::bytes)
    }
}

impl<'a> Wire<'a> {
    pub(super) fn number(self) -> Result<u64, Problem> {
        match self {
            Self::Varint(number) => Ok(number),
            other => Err(other.instead_of("a varint")),
        }
    }

    pub(super) fn fixed64(self) -> Result<u64, Problem> {
        match self {
            Self::Fixed64(bits) => Ok(bits),
            other => Err(other.instead_of("64 bits")),
        }
    }

    pub(super) fn bytes(self) -> Result<&'a [u8], Problem> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            other => Err(other.instead_of("bytes")),
        }
    }

    pub(super) fn text(self) -> Result<&'a str, Problem> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Problem::NotUtf8)
    }

    fn instead_of(self, expected: &'static str) -> Problem {
        let found = match self {
            Self::Varint(_) => "a varint",
            Self::Fixed64(_) => "64 bits",
            Self::Fixed32(_) => "32 bits",
            Self::Bytes(_) => "bytes",
        };
        Problem::WireType { expected, found }
    }
}

/// The numbers of a packed list.
pub(super) fn packed(mut bytes: &[u8]) -> Result<Vec<Wire<'_>>, Problem> {
    let mut numbers = Vec::new();
    while !bytes.is_empty() {
        numbers.push(Wire::Varint(varint(&mut bytes)?));
    }
    Ok(numbers)
}

pub(super) fn put(out: &mut Vec<u8>, number: u64, value: Wire<'_>) {
    let tag = |type_: u64| number << 3 | type_;
    match value {
        Wire::Varint(value) => {
            put_varint(out, tag(0));
            put_varint(out, value);
        }
        Wire::Fixed64(bits) => {
            put_varint(out, tag(1));
            out.extend(bits.to_le_bytes());
        }
        Wire::Bytes(bytes) => {
            put_varint(out, tag(2));
            put_varint(out, bytes.len() as u64);
            out.extend(bytes);
        }
        Wire::Fixed32(bits) => {
            put_varint(out, tag(5));
            out.extend(bits.to_le_bytes());
        }
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn varint(rest: &mut &[u8]) -> Result<u64, Problem> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or(Problem::Truncated)?;
        *rest = after;
        // The tenth byte has room for one bit.
        if shift == 63 && *byte > 1 {
            break;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Problem::LongVarint)
}

fn array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Problem> {
    let (taken, after) = rest.split_first_chunk().ok_or(Problem::Truncated)?;
    *rest = after;
    Ok(*taken)
}

fn run<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Problem> {
    let length = usize::try_from(varint(rest)?).map_err(|_| Problem::Truncated)?;
    let (taken, after) = rest.split_at_checked(length).ok_or(Problem::Truncated)?;
    *rest = after;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_read() {
        let values =
            [Wire::Varint(u64::MAX), Wire::Fixed64(1 << 60), Wire::Bytes(b"text"), Wire::Fixed32(7), Wire::Varint(0)];
        let mut out = Vec::new();
        values.iter().for_each(|value| put(&mut out, 3, *value));
        put(&mut out, LAST_NUMBER, Wire::Bytes(b""));
        let fields = Fields::read(&out).unwrap();
        assert_eq!(fields.all(3).collect::<Vec<_>>(), values);
        assert_eq!(fields.last(LAST_NUMBER), Some(Wire::Bytes(b"")));
        assert_eq!(fields.last(4), None);
    }

    #[test]
    fn broken_bytes_are_named() {
        let table: [(&[u8], Problem); 7] = [
            (&[0x08], Problem::Truncated),
            (&[0x12, 5, 1], Problem::Truncated),
            (&[0x09, 1, 2], Problem::Truncated),
            (&[0x00], Problem::FieldNumber(0)),
            (&[0x0b], Problem::UnknownWireType(3)),
            (&[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2], Problem::LongVarint),
            (&[0x12, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1], Problem::Truncated),
        ];
        for (bytes, expected) in table {
            assert_eq!(Fields::read(bytes).err(), Some(expected), "{bytes:?}");
        }
    }
}
