//! How long history is kept: decides when the writer compacts, and up to which revision. Pure; the time is an argument.
//!
//! Writes are gathered under marks, at most a few dozen for all of the history that is kept, so that noting a write costs
//! nothing and a compaction always takes a good piece at once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// History is let go in about this many pieces.
const PIECES: u32 = 32;

/// How much history to keep for watchers that resume and for lists at older revisions. Whichever limit is reached first
/// counts. Live entries are always kept.
#[derive(Debug, Clone)]
pub struct Options {
    /// Counted from the write, by this process's clock; after a restart from the restart.
    pub keep_for: Duration,
    pub keep_events: usize,
    /// Bytes of values that were replaced or deleted.
    pub keep_bytes: u64,
}

pub(crate) struct Retention {
    options: Options,
    marks: VecDeque<Mark>,
    /// Bytes of superseded values in all events ever noted; marks remember it to tell what came after them.
    noted_bytes: u64,
    dropped_bytes: u64,
    newest: u64,
    compacted: u64,
}

/// Writes up to `revision`, the last of them made at `last`.
struct Mark {
    opened: Opened,
    last: Instant,
    revision: u64,
    bytes: u64,
}

#[derive(Clone, Copy)]
struct Opened {
    at: Instant,
    revision: u64,
    bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { keep_for: Duration::from_secs(300), keep_events: 100_000, keep_bytes: 64 << 20 }
    }
}

impl Retention {
    pub(crate) fn new(options: Options) -> Retention {
        let marks = VecDeque::new();
        Retention { options, marks, noted_bytes: 0, dropped_bytes: 0, newest: 0, compacted: 0 }
    }

    pub(crate) fn note(&mut self, now: Instant, revision: u64, bytes: u64) {
        self.newest = revision;
        self.noted_bytes += bytes;
        let opened = Opened { at: now, revision, bytes: self.noted_bytes };
        let mark = Mark { opened, last: now, revision, bytes: self.noted_bytes };
        match self.marks.back_mut() {
            Some(back) if is_open(&self.options, back.opened, opened) => *back = Mark { opened: back.opened, ..mark },
            _ => self.marks.push_back(mark),
        }
    }

    /// The revision to compact up to, if it is time.
    pub(crate) fn cut(&self, now: Instant) -> Option<u64> {
        let expired = self.marks.partition_point(|mark| self.expiry(mark).is_some_and(|expiry| expiry <= now));
        let expired = expired.checked_sub(1).map(|index| self.marks[index].revision);
        expired.max(self.crowded_out()).filter(|revision| *revision > self.compacted)
    }

    /// When to ask again if nothing is written until then.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.marks.front().and_then(|mark| self.expiry(mark))
    }

    /// Everything up to `revision` was compacted; `bytes` of old values went with it.
    pub(crate) fn compacted(&mut self, revision: u64, bytes: u64) {
        self.compacted = revision;
        self.dropped_bytes += bytes;
        while self.marks.front().is_some_and(|mark| mark.revision <= revision) {
            self.marks.pop_front();
        }
    }

    fn expiry(&self, mark: &Mark) -> Option<Instant> {
        mark.last.checked_add(self.options.keep_for)
    }

    fn crowded_out(&self) -> Option<u64> {
        let fits = |revision: u64, bytes: u64| {
            self.newest - revision <= self.options.keep_events as u64
                && self.noted_bytes - bytes <= self.options.keep_bytes
        };
        if fits(self.compacted.min(self.newest), self.dropped_bytes) {
            return None;
        }
        self.marks.iter().find(|mark| fits(mark.revision, mark.bytes)).map(|mark| mark.revision)
    }
}

/// Whether a write `now` still belongs to the piece that was `opened`.
fn is_open(options: &Options, opened: Opened, now: Opened) -> bool {
    now.at.duration_since(opened.at) < options.keep_for / PIECES
        && now.revision - opened.revision < options.keep_events as u64 / u64::from(PIECES)
        && now.bytes - opened.bytes < options.keep_bytes / u64::from(PIECES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn keep(seconds: u32, keep_events: usize, keep_bytes: u64) -> Retention {
        Retention::new(Options { keep_for: SECOND * seconds, keep_events, keep_bytes })
    }

    #[test]
    fn nothing_is_cut_before_its_time_and_nothing_stays_long_after() {
        let (mut retention, start) = (keep(320, 1_000_000, 1 << 30), Instant::now());
        for second in 0..=320 {
            retention.note(start + SECOND * second, u64::from(second) + 2, 10);
            if second < 320 {
                assert_eq!(retention.cut(start + SECOND * second), None, "second {second}");
            }
        }
        let cut = retention.cut(start + SECOND * 330).expect("the first writes are older than 320 s");
        assert!((2..=12).contains(&cut), "only writes up to second 10 are old enough, cut at {cut}");
        retention.compacted(cut, 0);
        assert_eq!(retention.cut(start + SECOND * 640), Some(322));
    }

    #[test]
    fn an_idle_store_is_asked_again_exactly_when_its_last_writes_expire() {
        let (mut retention, start) = (keep(60, 1000, 1 << 30), Instant::now());
        assert_eq!(retention.due(), None);
        retention.note(start, 2, 0);
        retention.note(start + SECOND, 3, 0);
        assert_eq!(retention.due(), Some(start + SECOND * 61));
        assert_eq!(retention.cut(start + SECOND * 61), Some(3));
        retention.compacted(3, 0);
        assert_eq!((retention.due(), retention.cut(start + SECOND * 1000)), (None, None));
    }

    #[test]
    fn too_many_events_are_cut_to_the_limit_in_pieces() {
        let (mut retention, now) = (keep(3600, 320, 1 << 30), Instant::now());
        let mut cuts = Vec::new();
        for revision in 2..2000 {
            retention.note(now, revision, 1);
            if let Some(cut) = retention.cut(now) {
                assert!(revision - cut <= 320 && revision - cut >= 300, "kept {}", revision - cut);
                retention.compacted(cut, 1);
                cuts.push(cut);
            }
            assert!(revision - retention.compacted <= 331);
        }
        assert!(cuts.len() < 200, "{} compactions for 1700 events too many", cuts.len());
    }

    #[test]
    fn too_many_bytes_are_cut() {
        let (mut retention, now) = (keep(3600, 1_000_000, 3200), Instant::now());
        for revision in 2..34 {
            retention.note(now, revision, 100);
        }
        assert_eq!(retention.cut(now), None);
        retention.note(now, 34, 100);
        let cut = retention.cut(now).expect("over the limit");
        assert!(cut < 5, "only the oldest go: {cut}");
    }

    #[test]
    fn keep_nothing_and_keep_forever_work() {
        let now = Instant::now();
        let mut nothing = keep(0, 0, 0);
        nothing.note(now, 2, 5);
        assert_eq!(nothing.cut(now), Some(2));
        let options = Options { keep_for: Duration::MAX, keep_events: usize::MAX, keep_bytes: u64::MAX };
        let mut forever = Retention::new(options);
        forever.note(now, 2, 5);
        assert_eq!((forever.cut(now + SECOND * 1_000_000), forever.due()), (None, None));
    }
}
