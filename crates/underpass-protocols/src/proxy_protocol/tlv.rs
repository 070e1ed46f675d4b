//! What a version 2 header says beyond addresses: type, length, value.

use super::ProxyProtocolError;
use crate::cursor::Cursor;

/// The type of the TLV with the header's checksum.
pub const CRC32C: u8 = 0x03;

const TLV_HEADER: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tlv<'a> {
    pub kind: u8,
    pub value: &'a [u8],
}

/// All TLVs of a header, known and unknown ones alike; their lengths are known to add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tlvs<'a>(&'a [u8]);

impl<'a> Tlvs<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, ProxyProtocolError> {
        let mut rest = Cursor::new(bytes);
        while !rest.is_empty() {
            next(&mut rest).ok_or(ProxyProtocolError::Tlvs)?;
        }
        Ok(Self(bytes))
    }

    pub fn iter(self) -> impl Iterator<Item = Tlv<'a>> + Clone {
        let mut rest = Cursor::new(self.0);
        std::iter::from_fn(move || next(&mut rest))
    }

    /// The value of the first TLV of this type.
    pub fn get(self, kind: u8) -> Option<&'a [u8]> {
        self.iter().find(|tlv| tlv.kind == kind).map(|tlv| tlv.value)
    }

    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// In bytes.
    pub(super) fn len(self) -> usize {
        self.0.len()
    }

    /// The checksum, if there is one, and where it stands. Two of them cannot both be right.
    pub(super) fn checksum(self) -> Result<Option<(usize, [u8; 4])>, ProxyProtocolError> {
        let mut found = None;
        let mut at = 0;
        for tlv in self.iter() {
            at += TLV_HEADER;
            if tlv.kind == CRC32C {
                let sum = tlv.value.try_into().map_err(|_| ProxyProtocolError::Checksum)?;
                if found.replace((at, sum)).is_some() {
                    return Err(ProxyProtocolError::Checksum);
                }
            }
            at += tlv.value.len();
        }
        Ok(found)
    }
}

fn next<'a>(rest: &mut Cursor<'a>) -> Option<Tlv<'a>> {
    let kind = rest.u8()?;
    rest.prefixed_u16().map(|value| Tlv { kind, value })
}
