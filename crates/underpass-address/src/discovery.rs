//! The frames in which IPv6 addresses are asked for and announced: neighbour discovery (RFC 4861, and RFC 4862 for the asking).

use std::net::Ipv6Addr;

use crate::Mac;

const ETHERTYPE: [u8; 2] = [0x86, 0xdd];
const ICMP: u8 = 58;
/// Of neighbour discovery: whoever sees less knows that a frame came through a router, and drops it.
const HOPS: u8 = 255;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// What others remember of the address is to be replaced.
const OVERRIDE: u8 = 0x20;
const TARGET_LINK_ADDRESS: u8 = 2;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Where the parts of a frame begin.
const IP: usize = 14;
const MESSAGE: usize = IP + 40;
/// Of a message, without options: type, code, checksum, flags, target.
const SHORTEST: usize = 24;

/// Asks who has an address, as somebody who has none: the answer goes to all.
pub fn probe(ours: Mac, address: Ipv6Addr) -> Vec<u8> {
    let [.., a, b, c] = address.octets();
    let asked = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
    let mut message = vec![SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
    message.extend(address.octets());
    frame(ours, Ipv6Addr::UNSPECIFIED, asked, message)
}

/// Tells everybody that an address is ours.
pub fn announcement(ours: Mac, address: Ipv6Addr) -> Vec<u8> {
    let mut message = vec![ADVERTISEMENT, 0, 0, 0, OVERRIDE, 0, 0, 0];
    message.extend(address.octets());
    message.extend([TARGET_LINK_ADDRESS, 1]);
    message.extend(ours.0);
    frame(ours, address, ALL_NODES, message)
}

/// Who says in this frame, which may be anything, that it has the address.
pub fn claimant(frame: &[u8], address: Ipv6Addr) -> Option<Mac> {
    let header: &[u8; MESSAGE] = frame.first_chunk()?;
    let is_discovery = header[12..14] == ETHERTYPE && header[IP] >> 4 == 6;
    if !is_discovery || header[IP + 6] != ICMP || header[IP + 7] != HOPS {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([header[IP + 4], header[IP + 5]]));
    let message = frame.get(MESSAGE..MESSAGE + length).filter(|message| message.len() >= SHORTEST)?;
    let addresses = &header[IP + 8..MESSAGE];
    if message[..2] != [ADVERTISEMENT, 0] || message[8..24] != address.octets() || checksum(addresses, message) != 0 {
        return None;
    }
    let sender = Mac(header[6..12].try_into().ok()?);
    Some(link_address(&message[SHORTEST..])?.unwrap_or(sender))
}

/// What the options of an advertisement say; nothing at all when they are malformed.
#[expect(clippy::option_option, reason = "malformed, or not said")]
fn link_address(mut options: &[u8]) -> Option<Option<Mac>> {
    let mut found = None;
    while let [kind, units, ..] = *options {
        let (option, rest) = options.split_at_checked(usize::from(units) * 8).filter(|_| units > 0)?;
        if let (TARGET_LINK_ADDRESS, Ok(mac)) = (kind, option[2..].try_into()) {
            found = Some(Mac(mac));
        }
        options = rest;
    }
    options.is_empty().then_some(found)
}

fn frame(ours: Mac, from: Ipv6Addr, to: Ipv6Addr, mut message: Vec<u8>) -> Vec<u8> {
    let (mut addresses, [.., a, b, c, d]) = (from.octets().to_vec(), to.octets());
    addresses.extend(to.octets());
    let sum = checksum(&addresses, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let length = u16::try_from(message.len()).expect("a message of ours is a few dozen bytes long");
    let mut frame = vec![0x33, 0x33, a, b, c, d];
    frame.extend(ours.0);
    frame.extend(ETHERTYPE);
    frame.extend([0x60, 0, 0, 0]);
    frame.extend(length.to_be_bytes());
    frame.extend([ICMP, HOPS]);
    frame.extend(addresses);
    frame.extend(message);
    frame
}

/// Of a message that has its checksum in it: zero, when it is right.
fn checksum(addresses: &[u8], message: &[u8]) -> u16 {
    let words = |bytes: &[u8]| -> u64 {
        let pairs = bytes.chunks(2);
        pairs.map(|pair| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or_default())).sum()
    };
    let mut sum = words(addresses) + words(message) + message.len() as u64 + u64::from(ICMP);
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !u16::try_from(sum).expect("folded to 16 bits")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OURS: Mac = Mac([0x02, 0, 0, 0, 0, 0x0a]);
    const ADDRESS: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0x12, 0x3456);

    /// The checksums were computed by another program.
    #[test]
    fn frames_are_byte_for_byte_what_the_standard_says() {
        #[rustfmt::skip]
        let asked = [
            0x33, 0x33, 0xff, 0x12, 0x34, 0x56, 0x02, 0, 0, 0, 0, 0x0a, 0x86, 0xdd,
            0x60, 0, 0, 0, 0, 24, 58, 255,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0x12, 0x34, 0x56,
            135, 0, 0x14, 0xd7, 0, 0, 0, 0,
            0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56,
        ];
        assert_eq!(probe(OURS, ADDRESS), asked);
        #[rustfmt::skip]
        let announced = [
            0x33, 0x33, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 0x0a, 0x86, 0xdd,
            0x60, 0, 0, 0, 0, 32, 58, 255,
            0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56,
            0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
            136, 0, 0xf1, 0xc3, 0x20, 0, 0, 0,
            0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56,
            2, 1, 0x02, 0, 0, 0, 0, 0x0a,
        ];
        assert_eq!(announcement(OURS, ADDRESS), announced);
    }

    #[test]
    fn only_who_has_the_address_claims_it() {
        assert_eq!(claimant(&probe(OURS, ADDRESS), ADDRESS), None, "who asks does not have it");
        assert_eq!(claimant(&announcement(OURS, ADDRESS), ADDRESS), Some(OURS));
        assert_eq!(claimant(&announcement(OURS, ADDRESS), Ipv6Addr::LOCALHOST), None);
    }

    #[test]
    fn who_does_not_tell_its_own_address_is_known_by_the_frame() {
        let mut message = vec![ADVERTISEMENT, 0, 0, 0, 0, 0, 0, 0];
        message.extend(ADDRESS.octets());
        assert_eq!(claimant(&frame(OURS, ADDRESS, ALL_NODES, message), ADDRESS), Some(OURS));
    }

    #[test]
    fn options_that_never_end_are_no_advertisement() {
        let mut message = vec![ADVERTISEMENT, 0, 0, 0, 0, 0, 0, 0];
        message.extend(ADDRESS.octets());
        message.extend([14, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(claimant(&frame(OURS, ADDRESS, ALL_NODES, message), ADDRESS), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..120), tail in prop::collection::vec(any::<u8>(), 0..64)) {
            claimant(&bytes, ADDRESS);
            let mut message = vec![ADVERTISEMENT, 0, 0, 0, 0, 0, 0, 0];
            message.extend(ADDRESS.octets());
            message.extend(tail);
            claimant(&frame(OURS, ADDRESS, ALL_NODES, message), ADDRESS);
        }

        /// Beside the Ethernet addresses, the traffic class and the flow label every bit counts, or is summed up.
        #[test]
        fn a_frame_that_is_cut_or_damaged_claims_nothing(at in 18usize..86, bit in 0u8..8, end in 0usize..86) {
            let good = announcement(OURS, ADDRESS);
            prop_assert_eq!(claimant(&good[..end], ADDRESS), None);
            let mut bad = good;
            bad[at] ^= 1 << bit;
            prop_assert_eq!(claimant(&bad, ADDRESS), None);
        }
    }
}
