//! However the hello is cut, it is understood, and the backend gets every byte of it.

use std::time::Duration;

use super::Case;
use super::conn::{Outcome, noise, pause};
use super::lane::{Lane, Setup, Which};
use crate::hello::LARGEST_RECORD;

pub(super) const CASES: &[Case] = &[
    Case::new("hello: whole", "a hello in one segment reaches its backend unchanged", Setup::Named, whole),
    Case::new("hello: every cut", "cut in two segments at any byte, it is the same", Setup::Named, every_cut),
    Case::new("hello: byte by byte", "every byte in a segment of its own", Setup::Named, byte_by_byte),
    Case::new("hello: gap of 2 s", "the second half may come late", Setup::Named, gap),
    Case::new("hello: two records, every cut", "cut over two TLS records at any byte", Setup::Named, every_record_cut),
    Case::new("hello: records of 7 bytes", "over many TLS records", Setup::Named, |lane| records_of(lane, 7)),
    Case::new("hello: records of 1 byte", "over as many TLS records as it has bytes", Setup::Named, |lane| {
        records_of(lane, 1)
    }),
    Case::new("hello: records of 1 byte, dribbled", "the same, byte by byte", Setup::Named, dribbled_records),
    Case::new("hello: 1.9 kB", "with a post-quantum key share", Setup::Named, post_quantum),
    Case::new("hello: largest record", "16,384 bytes in one record", Setup::Named, largest_record),
    Case::new("hello: 20 kB", "in two records, the name in the first", Setup::Named, |lane| {
        carried(lane, &lane.hello().padded_to(20_000).bytes())
    }),
    Case::new("hello: 20 kB, name at the end", "in two records, the name in the second", Setup::Named, |lane| {
        carried(lane, &lane.hello().padded_before_to(20_000).bytes())
    }),
    Case::new("hello: GREASE", "values that no registry knows are skipped", Setup::Named, |lane| {
        carried(lane, &lane.hello().with_grease().bytes())
    }),
    Case::new("hello: ECH", "routed by the outer name", Setup::Named, |lane| {
        carried(lane, &lane.hello().with_encrypted_hello().bytes())
    }),
    Case::new("hello: unknown extensions first", "the name may stand behind forty others", Setup::Named, name_last),
    Case::new("hello: data behind it", "early data in the same segment is carried on", Setup::Named, data_behind),
    Case::new("hello: 64 kB behind it", "also when it is more than a buffer holds", Setup::Named, much_behind),
];

/// Sends a hello in one piece; the backend gets it, and an answer comes back.
fn carried(lane: &Lane<'_>, bytes: &[u8]) -> Outcome {
    pieces(lane, &[bytes], Duration::ZERO)
}

fn pieces(lane: &Lane<'_>, pieces: &[&[u8]], between: Duration) -> Outcome {
    let mut client = lane.connect()?;
    for (index, piece) in pieces.iter().enumerate() {
        if index > 0 {
            pause(between);
        }
        client.send(piece)?;
    }
    let mut backend = lane.accept_with(Which::Own, &pieces.concat())?;
    backend.send(b"answer")?;
    client.expect(b"answer")
}

fn whole(lane: &Lane<'_>) -> Outcome {
    carried(lane, &lane.hello().bytes())
}

fn every_cut(lane: &Lane<'_>) -> Outcome {
    for cut in 1..lane.hello().bytes().len() {
        let hello = lane.hello().bytes();
        let (head, tail) = hello.split_at(cut);
        let done = pieces(lane, &[head, tail], Duration::from_millis(2));
        done.map_err(|seen| format!("cut behind byte {cut}: {seen}"))?;
    }
    Ok(())
}

fn byte_by_byte(lane: &Lane<'_>) -> Outcome {
    dribbled(lane, &lane.hello().bytes())
}

fn dribbled(lane: &Lane<'_>, hello: &[u8]) -> Outcome {
    let mut client = lane.connect()?;
    client.dribble(hello)?;
    let mut backend = lane.accept_with(Which::Own, hello)?;
    backend.send(b"answer")?;
    client.expect(b"answer")
}

fn gap(lane: &Lane<'_>) -> Outcome {
    let hello = lane.hello().bytes();
    let (head, tail) = hello.split_at(hello.len() / 2);
    pieces(lane, &[head, tail], Duration::from_secs(2))
}

fn every_record_cut(lane: &Lane<'_>) -> Outcome {
    for cut in 1..lane.hello().message().len() {
        let done = carried(lane, &lane.hello().in_two_records(cut));
        done.map_err(|seen| format!("cut behind byte {cut}: {seen}"))?;
    }
    Ok(())
}

fn records_of(lane: &Lane<'_>, size: usize) -> Outcome {
    carried(lane, &lane.hello().in_records_of(size))
}

fn dribbled_records(lane: &Lane<'_>) -> Outcome {
    dribbled(lane, &lane.hello().in_records_of(1))
}

fn post_quantum(lane: &Lane<'_>) -> Outcome {
    let hello = lane.hello().with_post_quantum_key().padded_to(1_900).bytes();
    carried(lane, &hello)?;
    let (head, tail) = hello.split_at(1_400);
    pieces(lane, &[head, tail], Duration::from_millis(20))
}

fn largest_record(lane: &Lane<'_>) -> Outcome {
    carried(lane, &lane.hello().padded_before_to(LARGEST_RECORD).bytes())
}

fn name_last(lane: &Lane<'_>) -> Outcome {
    let hello = (0..40).fold(lane.hello(), |hello, index| hello.with_before(0x7000 + index, vec![1; 20]));
    carried(lane, &hello.bytes())
}

fn data_behind(lane: &Lane<'_>) -> Outcome {
    carried(lane, &[lane.hello().bytes(), noise(500, 1)].concat())
}

fn much_behind(lane: &Lane<'_>) -> Outcome {
    carried(lane, &[lane.hello().bytes(), noise(64 << 10, 2)].concat())
}
