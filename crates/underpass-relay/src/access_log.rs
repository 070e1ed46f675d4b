//! Writing the access log, in a thread of its own. Whoever reads it may be slow, gone, or never have been there: connections, the start
//! and the end do not wait for that. What cannot be written is lost and counted.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel};
use std::time::Duration;

/// Batches of lines that may wait to be written.
const BATCHES: usize = 1024;
/// How often it is told that lines are lost.
const TELL_EVERY_MS: u64 = 60_000;
/// What the end waits for the last lines to be written.
const GRACE: Duration = Duration::from_secs(1);

/// Lines that were lost.
#[derive(Default)]
pub(crate) struct Lost {
    lines: AtomicU64,
    /// When it may be told again.
    tell_from_ms: AtomicU64,
}

/// Where workers put their lines.
#[derive(Clone)]
pub(crate) struct Lines {
    batches_tx: SyncSender<String>,
    lost: Arc<Lost>,
}

/// The thread that writes. It is never joined: it may wait for a reader for ever.
pub(crate) struct Writing {
    /// Closed when everything is written.
    written_rx: Receiver<()>,
}

pub(crate) fn start(out: Box<dyn Write + Send>, lost: &Arc<Lost>) -> std::io::Result<(Lines, Writing)> {
    let (batches_tx, batches_rx) = sync_channel(BATCHES);
    let (written_tx, written_rx) = channel();
    let counted = lost.clone();
    std::thread::Builder::new().name("access-log".into()).spawn(move || {
        write_all(&batches_rx, out, &counted);
        drop(written_tx);
    })?;
    Ok((Lines { batches_tx, lost: lost.clone() }, Writing { written_rx }))
}

impl Lines {
    /// Never waits.
    pub(crate) fn hand_over(&self, batch: String, now_ms: u64) {
        if let Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) = self.batches_tx.try_send(batch) {
            self.lost.add(&batch);
            self.lost.tell(now_ms);
        }
    }
}

impl Lost {
    pub(crate) fn lines(&self) -> u64 {
        self.lines.load(Relaxed)
    }

    fn add(&self, batch: &str) {
        self.lines.fetch_add(batch.lines().count() as u64, Relaxed);
    }

    fn tell(&self, now_ms: u64) {
        let due = self.tell_from_ms.load(Relaxed);
        let next = now_ms + TELL_EVERY_MS;
        if now_ms >= due && self.tell_from_ms.compare_exchange(due, next, Relaxed, Relaxed).is_ok() {
            tracing::warn!(
                lost = self.lines(),
                "lines of the access log are lost: whoever reads it is too slow, or gone"
            );
        }
    }
}

impl Writing {
    /// Waits for the last lines, but not for a reader that takes none. To be called when nobody hands over any more.
    pub(crate) fn finish(self) {
        if self.written_rx.recv_timeout(GRACE) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the access log was not written to its end: nobody reads it");
        }
    }
}

fn write_all(batches_rx: &Receiver<String>, mut out: Box<dyn Write + Send>, lost: &Lost) {
    let mut failing = false;
    while let Ok(batch) = batches_rx.recv() {
        let written = out.write_all(batch.as_bytes()).and_then(|()| out.flush());
        if let Err(error) = &written {
            lost.add(&batch);
            if !failing {
                tracing::warn!(%error, "the access log cannot be written; lines are lost until it can");
            }
        }
        failing = written.is_err();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use std::io;
    use std::time::Instant;

    use super::*;

    /// A reader that takes nothing until it is let go.
    struct Stalled(Receiver<()>);

    impl Write for Stalled {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_stalls_costs_lines_and_no_time() {
        let (_go_tx, go_rx) = channel();
        let lost = Arc::new(Lost::default());
        let (lines, writing) = start(Box::new(Stalled(go_rx)), &lost).unwrap();
        // One batch may be with the writer already, which is why the count has a margin of one.
        for _ in 0..BATCHES + 11 {
            lines.hand_over("a\nb\n".into(), 0);
        }
        assert!((20..=22).contains(&lost.lines()), "{}", lost.lines());
        drop(lines);
        let begun = Instant::now();
        writing.finish();
        assert!(begun.elapsed() < 5 * GRACE);
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_what_comes_later_is_tried() {
        let lost = Arc::new(Lost::default());
        let (lines, writing) = start(Box::new(Full), &lost).unwrap();
        lines.hand_over("a\nb\n".into(), 0);
        lines.hand_over("c\n".into(), 0);
        drop(lines);
        writing.finish();
        assert_eq!(lost.lines(), 3);
    }
}
