//! FIN is passed on as FIN and RST as RST, in either direction, at any time, and what was sent before is not lost.

use std::time::Duration;

use super::Case;
use super::conn::{Outcome, noise, pause};
use super::lane::{Lane, Setup, Which};

/// How often a race is tried.
const TRIES: usize = 50;
/// Each may cost all patience.
const ENOUGH: usize = 3;

pub(super) const CASES: &[Case] = &[
    Case::new("half-close: client first", "the backend sees FIN and may go on sending", Setup::Named, client_first),
    Case::new("half-close: backend first", "the client sees FIN and may go on sending", Setup::Named, backend_first),
    Case::new("half-close: late data", "even 2 s and 1 MB later", Setup::Named, late_data),
    Case::new("FIN with the hello", "both are passed on, and the answer comes back", Setup::Named, fin_with_hello),
    Case::new(
        "FIN with the first byte",
        "of the backend: the byte arrives before the FIN",
        Setup::Named,
        fin_with_first_byte,
    ),
    Case::new("FIN with 1 MB", "what was sent before FIN arrives before it", Setup::Named, fin_with_much),
    Case::new("FIN from both at once", "both see it, and nothing is lost", Setup::Named, both_at_once),
    Case::new("close without a word", "a client that connects and leaves costs nothing", Setup::Named, leaves_at_once),
    Case::new("RST: client, amid the hello", "no backend hears of it", Setup::Named, reset_amid_hello),
    Case::new("RST: client, after the hello", "the backend sees RST, not FIN", Setup::Named, client_resets),
    Case::new(
        "RST: client, after an answer",
        "the backend sees RST, not FIN",
        Setup::Named,
        client_resets_after_answer,
    ),
    Case::new("RST: client, after the backend's FIN", "the backend sees RST", Setup::Named, client_resets_after_fin),
    Case::new("RST: backend, after the hello", "the client sees RST, not FIN", Setup::Named, backend_resets),
    Case::new("RST: backend, after the client's FIN", "the client sees RST", Setup::Named, backend_resets_after_fin),
    Case::new(
        "RST: backend, at once",
        "a backend that accepts and resets: the client sees RST",
        Setup::Named,
        resets_at_once,
    ),
    Case::new(
        "RST: client, amid bulk",
        "the backend sees RST while bytes are under way",
        Setup::Named,
        reset_amid_bulk,
    ),
];

fn client_first(lane: &Lane<'_>) -> Outcome {
    let (mut client, mut backend) = lane.open()?;
    client.send(b"question")?;
    client.finish()?;
    backend.expect(b"question")?;
    backend.expect_fin()?;
    backend.send(b"late answer")?;
    client.expect(b"late answer")?;
    backend.finish()?;
    client.expect_fin()
}

fn backend_first(lane: &Lane<'_>) -> Outcome {
    let (mut client, mut backend) = lane.open()?;
    backend.send(b"all I have")?;
    backend.finish()?;
    client.expect(b"all I have")?;
    client.expect_fin()?;
    client.send(b"late words")?;
    backend.expect(b"late words")?;
    client.finish()?;
    backend.expect_fin()
}

fn late_data(lane: &Lane<'_>) -> Outcome {
    let (mut client, mut backend) = lane.open()?;
    client.finish()?;
    backend.expect_fin()?;
    pause(Duration::from_secs(2));
    let answer = noise(1 << 20, 3);
    let sent = answer.clone();
    let sending = std::thread::spawn(move || backend.send(&sent).and_then(|()| backend.finish()));
    client.expect(&answer)?;
    client.expect_fin()?;
    sending.join().unwrap_or(Ok(()))
}

fn fin_with_hello(lane: &Lane<'_>) -> Outcome {
    let once = || {
        let hello = lane.hello().bytes();
        let mut client = lane.connect()?;
        client.send(&hello)?;
        client.finish()?;
        let mut backend = lane.accept_with(Which::Own, &hello)?;
        backend.expect_fin()?;
        backend.send(b"answer")?;
        client.expect(b"answer")
    };
    all_of(TRIES, once)
}

fn fin_with_first_byte(lane: &Lane<'_>) -> Outcome {
    let once = || {
        let (mut client, mut backend) = lane.open()?;
        backend.send(b"!")?;
        backend.finish()?;
        client.expect(b"!")?;
        client.expect_fin()
    };
    all_of(TRIES, once)
}

fn fin_with_much(lane: &Lane<'_>) -> Outcome {
    let (mut client, mut backend) = lane.open()?;
    let bytes = noise(1 << 20, 4);
    let sent = bytes.clone();
    let sending = std::thread::spawn(move || client.send(&sent).and_then(|()| client.finish()).map(|()| client));
    backend.expect(&bytes)?;
    backend.expect_fin()?;
    sending.join().map_or(Ok(()), |sent| sent.map(drop))
}

fn both_at_once(lane: &Lane<'_>) -> Outcome {
    let once = || {
        let (mut client, mut backend) = lane.open()?;
        client.send(b"from the client")?;
        backend.send(b"from the backend")?;
        client.finish()?;
        backend.finish()?;
        backend.expect(b"from the client")?;
        client.expect(b"from the backend")?;
        backend.expect_fin()?;
        client.expect_fin()
    };
    all_of(TRIES, once)
}

fn leaves_at_once(lane: &Lane<'_>) -> Outcome {
    (0..TRIES).try_for_each(|_| lane.connect().map(drop))?;
    lane.expect_no_backend()?;
    lane.still_works()
}

fn reset_amid_hello(lane: &Lane<'_>) -> Outcome {
    let hello = lane.hello().bytes();
    let mut client = lane.connect()?;
    client.send(&hello[..hello.len() / 2])?;
    client.reset()?;
    lane.expect_no_backend()?;
    lane.still_works()
}

fn client_resets(lane: &Lane<'_>) -> Outcome {
    let (client, mut backend) = lane.open()?;
    client.reset()?;
    backend.expect_reset()
}

fn client_resets_after_answer(lane: &Lane<'_>) -> Outcome {
    let (mut client, mut backend) = lane.open()?;
    backend.send(b"answer")?;
    client.expect(b"answer")?;
    client.reset()?;
    backend.expect_reset()
}

fn client_resets_after_fin(lane: &Lane<'_>) -> Outcome {
    let (mut client, mut backend) = lane.open()?;
    backend.finish()?;
    client.expect_fin()?;
    client.reset()?;
    backend.expect_reset()
}

fn backend_resets(lane: &Lane<'_>) -> Outcome {
    let (mut client, backend) = lane.open()?;
    backend.reset()?;
    client.expect_reset()
}

fn backend_resets_after_fin(lane: &Lane<'_>) -> Outcome {
    let (mut client, mut backend) = lane.open()?;
    client.finish()?;
    backend.expect_fin()?;
    backend.reset()?;
    client.expect_reset()
}

fn resets_at_once(lane: &Lane<'_>) -> Outcome {
    let mut client = lane.connect()?;
    client.send(&lane.hello().bytes())?;
    lane.accept(Which::Own)?.reset()?;
    client.expect_reset()?;
    lane.still_works()
}

fn reset_amid_bulk(lane: &Lane<'_>) -> Outcome {
    let (mut client, mut backend) = lane.open()?;
    // Nobody sends when the reset comes: a failed send would take the news away from the one who reads.
    backend.fill()?;
    client.receive(64 << 10)?;
    backend.fill()?;
    client.reset()?;
    backend.expect_reset()
}

/// Tries a race again and again; a few failures are enough to know.
fn all_of(tries: usize, mut once: impl FnMut() -> Outcome) -> Outcome {
    let mut failed = Vec::new();
    for done in 1..=tries {
        failed.extend(once().err());
        if failed.len() == ENOUGH || (done == tries && !failed.is_empty()) {
            return Err(format!("{} of {done} tries: {}", failed.len(), failed[0]));
        }
    }
    Ok(())
}
