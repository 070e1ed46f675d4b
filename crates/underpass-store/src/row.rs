//! The bytes of one row of the log.
//!
//! `op u8 | bucket length u32 | name length u32 | created u64 | bucket | name | value | crc32 u32`, numbers little-endian.
//! The checksum covers the row's revision (its key) too, so that a row under the wrong key is found out. redb has page
//! checksums of its own, but it checks them only when asked or after a crash; ours make each row prove itself.

use crate::entry::Changed;

const PUT: u8 = 1;
const DELETED: u8 = 2;
const HEAD: usize = 1 + 4 + 4 + 8;
const CHECKSUM: usize = 4;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row<'a> {
    pub(crate) change: Changed,
    pub(crate) bucket: &'a str,
    pub(crate) name: &'a str,
    pub(crate) created: u64,
    pub(crate) value: &'a [u8],
}

impl<'a> Row<'a> {
    /// Replaces the content of `out`, which is reused from row to row.
    pub(crate) fn encode(&self, revision: u64, out: &mut Vec<u8>) {
        out.clear();
        out.push(match self.change {
            Changed::Put => PUT,
            Changed::Deleted => DELETED,
        });
        out.extend_from_slice(&length(self.bucket).to_le_bytes());
        out.extend_from_slice(&length(self.name).to_le_bytes());
        out.extend_from_slice(&self.created.to_le_bytes());
        out.extend_from_slice(self.bucket.as_bytes());
        out.extend_from_slice(self.name.as_bytes());
        out.extend_from_slice(self.value);
        let checksum = checksum(revision, out);
        out.extend_from_slice(&checksum.to_le_bytes());
    }

    /// `None` if the bytes are not a row of this revision, whatever the reason: they are damaged.
    pub(crate) fn decode(revision: u64, bytes: &'a [u8]) -> Option<Row<'a>> {
        let (body, stored) = bytes.split_last_chunk::<CHECKSUM>()?;
        if u32::from_le_bytes(*stored) != checksum(revision, body) {
            return None;
        }
        let (head, rest) = body.split_at_checked(HEAD)?;
        let number = |at: usize| Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?) as usize);
        let (bucket, rest) = rest.split_at_checked(number(1)?)?;
        let (name, value) = rest.split_at_checked(number(5)?)?;
        Some(Row {
            change: match head[0] {
                PUT => Changed::Put,
                DELETED => Changed::Deleted,
                _ => return None,
            },
            bucket: str::from_utf8(bucket).ok()?,
            name: str::from_utf8(name).ok()?,
            created: u64::from_le_bytes(*head[9..].first_chunk()?),
            value,
        })
    }
}

fn length(text: &str) -> u32 {
    u32::try_from(text.len()).expect("redb refuses values over 3 GiB, so no name gets near this")
}

fn checksum(revision: u64, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&revision.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Vec<u8> {
        let row = Row { change: Changed::Put, bucket: "pods", name: "ns/a", created: 3, value: b"{}" };
        let mut bytes = Vec::new();
        row.encode(9, &mut bytes);
        bytes
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let good = sample();
        assert!(Row::decode(9, &good).is_some());
        assert_eq!(Row::decode(8, &good), None, "the revision is part of the checksum");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Row::decode(9, &bad), None, "bit {bit}");
        }
        for cut in 0..good.len() {
            assert_eq!(Row::decode(9, &good[..cut]), None, "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn decode_gives_back_what_was_encoded(
            deleted: bool, bucket: String, name: String, created: u64, revision: u64, value: Vec<u8>,
        ) {
            let change = if deleted { Changed::Deleted } else { Changed::Put };
            let row = Row { change, bucket: &bucket, name: &name, created, value: &value };
            let mut bytes = Vec::new();
            row.encode(revision, &mut bytes);
            prop_assert_eq!(Row::decode(revision, &bytes), Some(row));
        }

        #[test]
        fn decode_survives_anything(revision: u64, bytes: Vec<u8>) {
            let _ = Row::decode(revision, &bytes);
        }
    }
}
