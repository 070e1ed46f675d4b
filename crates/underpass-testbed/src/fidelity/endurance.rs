//! Many connections, and what is left of them.

use std::time::Duration;

use super::Case;
use super::conn::{Conn, Outcome};
use super::lane::{Lane, Setup};
use crate::interrupt;
use crate::wait::look_until;

/// Descriptors that a proxy may open for itself while it is watched.
const SPARE: u64 = 8;
const SETTLES_WITHIN: Duration = Duration::from_secs(20);

pub(super) const CASES: &[Case] = &[
    Case::new("500 connections at once", "all of them are served, and stay apart", Setup::Named, at_once).alone(),
    Case::new(
        "many connections, one after the other",
        "all served, and no descriptor is left behind",
        Setup::Named,
        sequential,
    )
    .alone(),
];

fn at_once(lane: &Lane<'_>) -> Outcome {
    let before = lane.running.usage().descriptors;
    let mut pairs: Vec<(Conn, Conn)> = (0..500).map(|_| lane.open()).collect::<Outcome<_>>()?;
    for (index, (client, _)) in pairs.iter_mut().enumerate() {
        client.send(&index.to_be_bytes())?;
    }
    for (index, (client, backend)) in pairs.iter_mut().enumerate() {
        backend.expect(&index.to_be_bytes())?;
        backend.send(&(!index).to_be_bytes())?;
        client.expect(&(!index).to_be_bytes())?;
    }
    drop(pairs);
    settles(lane, before)
}

fn sequential(lane: &Lane<'_>) -> Outcome {
    lane.still_works()?;
    let before = lane.running.usage().descriptors;
    for index in (0..lane.settings.sequential).take_while(|_| !interrupt::came()) {
        lane.still_works().map_err(|seen| format!("connection {index}: {seen}"))?;
    }
    settles(lane, before)
}

/// As many descriptors as before, soon.
fn settles(lane: &Lane<'_>, before: u64) -> Outcome {
    let mut now = before;
    let settled = look_until(SETTLES_WITHIN, || {
        now = lane.running.usage().descriptors;
        (now <= before + SPARE).then_some(())
    });
    settled.ok_or_else(|| format!("{before} descriptors before, {now} after"))
}
