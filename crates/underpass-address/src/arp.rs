//! The frames in which IPv4 addresses are asked for and announced: ARP (RFC 826), as RFC 5227 wants it used.

use std::net::Ipv4Addr;

use crate::Mac;

const ETHERTYPE: [u8; 2] = [0x08, 0x06];
/// Ethernet, IPv4, and how long their addresses are.
const KINDS: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];
const REQUEST: [u8; 2] = [0, 1];
const REPLY: [u8; 2] = [0, 2];
const LENGTH: usize = 42;

/// Asks who has an address, without saying that we do: nobody's table changes by it.
pub fn probe(ours: Mac, address: Ipv4Addr) -> Vec<u8> {
    request(ours, Ipv4Addr::UNSPECIFIED, address)
}

/// Tells everybody that an address is ours. A request, as RFC 5227 prefers: there are those who ignore replies that they did not ask for.
pub fn announcement(ours: Mac, address: Ipv4Addr) -> Vec<u8> {
    request(ours, address, address)
}

/// Who says in this frame, which may be anything, that it has the address.
pub fn claimant(frame: &[u8], address: Ipv4Addr) -> Option<Mac> {
    let frame: &[u8; LENGTH] = frame.first_chunk()?;
    let is_arp = frame[12..14] == ETHERTYPE && frame[14..20] == KINDS;
    let is_told = frame[20..22] == REQUEST || frame[20..22] == REPLY;
    let sender = Mac(frame[22..28].try_into().ok()?);
    (is_arp && is_told && frame[28..32] == address.octets()).then_some(sender)
}

fn request(ours: Mac, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let mut frame = Vec::with_capacity(LENGTH);
    frame.extend(Mac::BROADCAST.0);
    frame.extend(ours.0);
    frame.extend(ETHERTYPE);
    frame.extend(KINDS);
    frame.extend(REQUEST);
    frame.extend(ours.0);
    frame.extend(sender.octets());
    frame.extend([0; 6]);
    frame.extend(target.octets());
    frame
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OURS: Mac = Mac([0x02, 0, 0, 0, 0, 0x0a]);
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 100, 4);

    #[test]
    fn frames_are_byte_for_byte_what_the_standard_says() {
        #[rustfmt::skip]
        let probe_ = [
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0, 0, 0, 0, 0x0a, 0x08, 0x06,
            0, 1, 0x08, 0, 6, 4, 0, 1,
            0x02, 0, 0, 0, 0, 0x0a, 0, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 192, 168, 100, 4,
        ];
        assert_eq!(probe(OURS, ADDRESS), probe_);
        let mut announced = probe_;
        announced[28..32].copy_from_slice(&ADDRESS.octets());
        assert_eq!(announcement(OURS, ADDRESS), announced);
    }

    #[test]
    fn only_who_has_the_address_claims_it() {
        assert_eq!(claimant(&probe(OURS, ADDRESS), ADDRESS), None, "who asks does not have it");
        assert_eq!(claimant(&announcement(OURS, ADDRESS), ADDRESS), Some(OURS));
        assert_eq!(claimant(&announcement(OURS, ADDRESS), Ipv4Addr::LOCALHOST), None);
        let mut reply = announcement(OURS, ADDRESS);
        reply[21] = 2;
        reply.extend([0; 18]);
        assert_eq!(claimant(&reply, ADDRESS), Some(OURS), "padded as on a wire");
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(frame in prop::collection::vec(any::<u8>(), 0..80)) {
            claimant(&frame, ADDRESS);
        }

        #[test]
        fn a_frame_that_is_cut_or_of_another_kind_claims_nothing(at in 12usize..22, bit in 0u8..8, end in 0usize..LENGTH) {
            let good = announcement(OURS, ADDRESS);
            prop_assert_eq!(claimant(&good[..end], ADDRESS), None);
            let mut other = good;
            other[at] ^= 1 << bit;
            // A request with one bit changed may be a reply: 1 and 2 differ in two.
            prop_assert_eq!(claimant(&other, ADDRESS), None);
        }
    }
}
