//! What strangers send, against properties and the fuzzers' corpora.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod invariants;
#[path = "../../../underpass-protocols/tests/protocols/replay.rs"]
mod replay;

use proptest::prelude::*;

use self::replay::replay;

#[test]
fn corpus_of_arp() {
    replay("arp", invariants::arp);
}

#[test]
fn corpus_of_discovery() {
    replay("discovery", invariants::discovery);
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        invariants::arp(&bytes);
        invariants::discovery(&bytes);
    }

    /// Options of a few kinds and lengths, of which some end where the frame does.
    #[test]
    fn any_options(head in prop::collection::vec(any::<u8>(), 78), options in prop::collection::vec((0u8..4, 0u8..3, any::<[u8; 6]>()), 0..6)) {
        let tail = options.into_iter().flat_map(|(kind, units, value)| [&[kind, units][..], &value].concat());
        invariants::discovery(&head.into_iter().chain(tail).collect::<Vec<u8>>());
    }
}
