//! Backends that are not there, or not well.

use std::time::Duration;

use super::Case;
use super::conn::{Outcome, noise, pause};
use super::lane::{Lane, OTHER, Setup, Which};

pub(super) const CASES: &[Case] = &[
    Case::new("backend: first endpoint dead", "the second one is used, every time", Setup::FirstDead, first_dead),
    Case::new("backend: all endpoints dead", "the client is closed soon, not left waiting", Setup::AllDead, all_dead),
    Case::new("backend: dead beside a living one", "other names of the port go on", Setup::AllDead, beside_dead),
    Case::new("backend: accepts and stalls", "what was sent arrives when it wakes up", Setup::Named, stalls),
    Case::new("backend: speaks before the client's next word", "its bytes come at once", Setup::Named, speaks_early),
];

fn first_dead(lane: &Lane<'_>) -> Outcome {
    for attempt in 0..20 {
        lane.still_works().map_err(|seen| format!("connection {attempt}: {seen}"))?;
    }
    Ok(())
}

fn all_dead(lane: &Lane<'_>) -> Outcome {
    let mut client = lane.connect()?;
    client.send(&lane.hello().bytes())?;
    client.expect_refusal(Duration::from_secs(5))
}

fn beside_dead(lane: &Lane<'_>) -> Outcome {
    for _ in 0..20 {
        let mut lost = lane.connect()?;
        lost.send(&lane.hello().bytes())?;
        let hello = lane.hello_to(OTHER).bytes();
        let mut client = lane.connect()?;
        client.send(&hello)?;
        let mut backend = lane.accept_with(Which::Other, &hello)?;
        backend.send(b"answer")?;
        client.expect(b"answer")?;
    }
    Ok(())
}

fn stalls(lane: &Lane<'_>) -> Outcome {
    let hello = lane.hello().bytes();
    let mut client = lane.connect()?;
    client.send(&hello)?;
    let mut backend = lane.accept(Which::Own)?;
    let bytes = noise(256 << 10, 11);
    client.send(&bytes)?;
    pause(Duration::from_secs(2));
    client.expect_silence()?;
    backend.expect(&hello)?;
    backend.expect(&bytes)?;
    backend.send(b"awake")?;
    client.expect(b"awake")
}

fn speaks_early(lane: &Lane<'_>) -> Outcome {
    let mut client = lane.connect()?;
    client.send(&lane.hello().bytes())?;
    let mut backend = lane.accept(Which::Own)?;
    backend.send(b"early")?;
    client.expect(b"early")
}
