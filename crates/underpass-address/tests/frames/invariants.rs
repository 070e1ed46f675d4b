//! What holds for any bytes whatsoever. The tests here and the fuzz targets under `fuzz/` check the same.
//!
//! Chance hardly ever makes a frame with the right checksum. So bytes are also taken for what stands in an otherwise right frame, and what
//! is read of it is compared with what another reader, here, makes of it.

use std::net::{Ipv4Addr, Ipv6Addr};

use underpass_address::{Mac, arp, discovery};

/// Where parts of a frame stand, and how long the shortest whole one is.
const ARP_SENDER: usize = 22;
const ARP_ADDRESS: usize = 28;
const ARP_LENGTH: usize = 42;
const IP: usize = 14;
const MESSAGE: usize = 54;
const TARGET: usize = 62;
const OPTIONS: usize = 78;

pub(crate) fn arp(bytes: &[u8]) {
    arp_frame(bytes);
    if bytes.len() < ARP_LENGTH {
        return;
    }
    let mut right = bytes.to_vec();
    right[12..20].copy_from_slice(&[0x08, 0x06, 0, 1, 0x08, 0x00, 6, 4]);
    right[20..22].copy_from_slice(&[0, 1 + (bytes[21] & 1)]);
    assert_eq!(arp_frame(&right), Some(Mac(array(&right, ARP_SENDER))));
}

/// Who claims the address that stands in the frame.
fn arp_frame(bytes: &[u8]) -> Option<Mac> {
    if bytes.len() < ARP_LENGTH {
        assert_eq!(arp::claimant(bytes, Ipv4Addr::LOCALHOST), None);
        return None;
    }
    let address = Ipv4Addr::from(array::<4>(bytes, ARP_ADDRESS));
    let claimant = arp::claimant(bytes, address);
    assert_eq!(arp::claimant(bytes, Ipv4Addr::from(!u32::from(address))), None, "of another address");
    if claimant.is_some() {
        assert_eq!(arp::claimant(&bytes[..ARP_LENGTH], address), claimant, "what follows is padding");
        assert_eq!(arp::claimant(&bytes[..ARP_LENGTH - 1], address), None, "cut off");
    }
    claimant
}

pub(crate) fn discovery(bytes: &[u8]) {
    discovery_frame(bytes);
    if bytes.len() < OPTIONS {
        return;
    }
    let right = advertisement(bytes);
    assert_eq!(discovery_frame(&right), link_address(&right));
}

fn discovery_frame(bytes: &[u8]) -> Option<Mac> {
    if bytes.len() < OPTIONS {
        assert_eq!(discovery::claimant(bytes, Ipv6Addr::LOCALHOST), None);
        return None;
    }
    let address = Ipv6Addr::from(array::<16>(bytes, TARGET));
    let claimant = discovery::claimant(bytes, address);
    assert_eq!(discovery::claimant(bytes, Ipv6Addr::from(!u128::from(address))), None, "of another address");
    if claimant.is_some() {
        let end = MESSAGE + usize::from(u16::from_be_bytes(array(bytes, IP + 4)));
        assert_eq!(discovery::claimant(&bytes[..end], address), claimant, "what follows is padding");
        assert_eq!(discovery::claimant(&bytes[..end - 1], address), None, "cut off");
        damage_is_noticed(&bytes[..end], address);
    }
    claimant
}

/// The checksum is over addresses and message: no bit of them can be another.
fn damage_is_noticed(frame: &[u8], address: Ipv6Addr) {
    let mut bad = frame.to_vec();
    for at in IP + 8..bad.len() {
        let bit = 1 << (at % 8);
        bad[at] ^= bit;
        assert_eq!(discovery::claimant(&bad, address), None, "damaged at {at}");
        bad[at] ^= bit;
    }
}

/// The same bytes as an advertisement that has nothing wrong, but maybe its options.
fn advertisement(bytes: &[u8]) -> Vec<u8> {
    let mut frame = bytes.to_vec();
    let length = u16::try_from(frame.len() - MESSAGE).unwrap_or(u16::MAX);
    frame.truncate(MESSAGE + usize::from(length));
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    frame[IP] = 0x60 | (bytes[IP] & 0xf);
    frame[IP + 4..IP + 6].copy_from_slice(&length.to_be_bytes());
    frame[IP + 6..IP + 8].copy_from_slice(&[58, 255]);
    frame[MESSAGE..MESSAGE + 4].copy_from_slice(&[136, 0, 0, 0]);
    let sum = checksum(&frame[IP + 8..], length);
    frame[MESSAGE + 2..MESSAGE + 4].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// RFC 1071, in the smallest steps.
fn checksum(addresses_and_message: &[u8], length: u16) -> u16 {
    let add = |sum: u16, word: u16| {
        let (sum, carried) = sum.overflowing_add(word);
        sum + u16::from(carried)
    };
    let words = addresses_and_message.chunks(2).map(|pair| u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    !words.fold(add(length, 58), add)
}

/// What the last option of its kind says, else whoever sent the frame; nobody, when the options do not fill their place.
fn link_address(frame: &[u8]) -> Option<Mac> {
    let (mut at, mut found) = (OPTIONS, Mac(array(frame, 6)));
    while at < frame.len() {
        let size = 8 * usize::from(*frame.get(at + 1)?);
        if size == 0 || at + size > frame.len() {
            return None;
        }
        if (frame[at], size) == (2, 8) {
            found = Mac(array(frame, at + 2));
        }
        at += size;
    }
    Some(found)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("whoever calls has looked at the length")
}
