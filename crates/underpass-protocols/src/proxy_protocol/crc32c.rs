//! CRC-32C (Castagnoli, RFC 4960 appendix B), by table: a header has some hundred bytes, and few have a sum at all.

/// The polynomial 0x1EDC6F41, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < table.len() {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
};

/// The sum of the parts as if they were one.
pub(super) fn sum(parts: &[&[u8]]) -> u32 {
    let bytes = parts.iter().copied().flatten();
    !bytes.fold(!0, |sum: u32, byte| sum >> 8 ^ TABLE[usize::from(sum as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_rfc_3720() {
        assert_eq!(sum(&[b"123456789"]), 0xe306_9283);
        assert_eq!(sum(&[&[0; 32]]), 0x8a91_36aa);
        assert_eq!(sum(&[&[0xff; 16], &[0xff; 16]]), 0x62a8_ab43);
        assert_eq!(sum(&[]), 0);
    }
}
