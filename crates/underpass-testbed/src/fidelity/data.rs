//! Bytes arrive whole, in order and in time, however slowly they are sent or read.

use std::time::Duration;

use super::Case;
use super::conn::{Conn, Outcome, noise, pause};
use super::lane::{Lane, Setup};
use crate::proxies::HELLO_DEADLINE;

const TEN_MB: usize = 10 << 20;
/// Beyond the deadline: a busy machine, and a proxy that looks at its clock once in a while.
const GRACE: Duration = Duration::from_secs(5);
/// What a proxy may put aside for a reader that does not read, besides the kernel's own buffers.
const BUFFERED_KIB: u64 = 4 << 10;

pub(super) const CASES: &[Case] = &[
    Case::new("data: dribble", "a byte there and a byte back, 500 times, none is held back", Setup::Named, dribble),
    Case::new("data: 10 MB each way at once", "all of it arrives unchanged", Setup::Named, ten_mb_both_ways),
    Case::new("data: large records", "TLS records of 16 KB and more pass as they are", Setup::Named, large_records),
    Case::new("data: slow reader", "4 MB to a client that takes its time", Setup::Named, slow_reader),
    Case::new("data: slow writer", "pieces with pauses arrive as they come", Setup::Named, slow_writer),
    Case::new("data: idle for 3 s", "a silent connection stays", Setup::Named, idle),
    Case::new("data: neighbours of a stalled reader", "others are not held up by it", Setup::Named, neighbours),
    Case::new(
        "data: reader that stops",
        "the sender is held back, memory stays, and nothing is lost",
        Setup::Named,
        backpressure,
    )
    .alone(),
    Case::new("silent client", "closed when its time for a hello is over", Setup::Named, |lane| silent(lane, &[])),
    Case::new("client silent amid the hello", "the same with half a hello", Setup::Named, half_hello),
    Case::new("silent client is counted", "who looks at the counters sees it", Setup::Counted, silent_is_counted),
];

fn dribble(lane: &Lane<'_>) -> Outcome {
    let (mut client, mut backend) = lane.open()?;
    for byte in noise(500, 5) {
        client.send(&[byte])?;
        backend.expect(&[byte])?;
        backend.send(&[!byte])?;
        client.expect(&[!byte])?;
    }
    Ok(())
}

fn ten_mb_both_ways(lane: &Lane<'_>) -> Outcome {
    let (client, backend) = lane.open()?;
    let (there, back) = (noise(TEN_MB, 6), noise(TEN_MB, 7));
    std::thread::scope(|scope| {
        let work = [
            scope.spawn(|| client.twin()?.send(&there)),
            scope.spawn(|| backend.twin()?.send(&back)),
            scope.spawn(|| backend.twin()?.expect(&there)),
            scope.spawn(|| client.twin()?.expect(&back)),
        ];
        work.into_iter().try_for_each(|thread| thread.join().unwrap_or(Err("a thread broke".to_owned())))
    })
}

fn large_records(lane: &Lane<'_>) -> Outcome {
    let (mut client, mut backend) = lane.open()?;
    for size in [16_384_u16, 16_384 + 256, u16::MAX] {
        let mut record = vec![23, 3, 3];
        record.extend(size.to_be_bytes());
        record.extend(noise(usize::from(size), 8));
        client.send(&record)?;
        backend.expect(&record)?;
        backend.send(&record)?;
        client.expect(&record)?;
    }
    Ok(())
}

fn slow_reader(lane: &Lane<'_>) -> Outcome {
    let (mut client, mut backend) = lane.open()?;
    let bytes = noise(4 << 20, 9);
    let sent = bytes.clone();
    let sending = std::thread::spawn(move || backend.send(&sent).map(|()| backend));
    for piece in bytes.chunks(64 << 10) {
        pause(Duration::from_millis(20));
        client.expect(piece)?;
    }
    sending.join().map_or(Ok(()), |sent| sent.map(drop))
}

fn slow_writer(lane: &Lane<'_>) -> Outcome {
    let (mut client, mut backend) = lane.open()?;
    for piece in noise(20 * 700, 10).chunks(700) {
        pause(Duration::from_millis(50));
        client.send(piece)?;
        backend.expect(piece)?;
    }
    Ok(())
}

fn idle(lane: &Lane<'_>) -> Outcome {
    let (mut client, mut backend) = lane.open()?;
    pause(Duration::from_secs(3));
    client.send(b"still")?;
    backend.expect(b"still")?;
    backend.send(b"here")?;
    client.expect(b"here")
}

fn neighbours(lane: &Lane<'_>) -> Outcome {
    // More than there are workers, so that each of them has some.
    let stalled: Vec<(Conn, Conn)> = (0..8).map(|_| lane.open()).collect::<Outcome<_>>()?;
    for (_, backend) in &stalled {
        backend.fill()?;
    }
    (0..20).try_for_each(|_| lane.still_works())
}

fn backpressure(lane: &Lane<'_>) -> Outcome {
    const READERS: u64 = 8;
    let before = lane.running.usage().resident_kib;
    let pairs: Vec<(Conn, Conn)> = (0..READERS).map(|_| lane.open()).collect::<Outcome<_>>()?;
    let taken: Vec<usize> = pairs.iter().map(|(_, backend)| backend.fill()).collect::<Outcome<_>>()?;
    let grown = lane.running.usage().resident_kib.saturating_sub(before);
    if grown > READERS * BUFFERED_KIB {
        return Err(format!("{READERS} readers that stopped cost {grown} KiB"));
    }
    for ((mut client, mut backend), count) in pairs.into_iter().zip(taken) {
        let finishing = std::thread::spawn(move || backend.send(b"end").and_then(|()| backend.finish()));
        let bytes = client.receive(count + 3)?;
        if !bytes.ends_with(b"xend") {
            return Err("the end of what was sent did not arrive".to_owned());
        }
        client.expect_fin()?;
        let _ = finishing.join();
    }
    Ok(())
}

fn silent(lane: &Lane<'_>, first: &[u8]) -> Outcome {
    lane.expect_refused_within(first, HELLO_DEADLINE + GRACE)
}

fn half_hello(lane: &Lane<'_>) -> Outcome {
    let hello = lane.hello().bytes();
    silent(lane, &hello[..hello.len() / 2])
}

fn silent_is_counted(lane: &Lane<'_>) -> Outcome {
    let before = lane.running.refusals();
    silent(lane, &[])?;
    let after = lane.running.refusals();
    if after > before { Ok(()) } else { Err(format!("the counters went from {before:?} to {after:?}")) }
}
