//! A backend that holds back every change until the file has proved to be sound.
//!
//! redb changes a file as soon as it opens it: it marks it as in use, and repairs it after a crash. A damaged file must
//! stay as it is for whoever wants to rescue it, so changes are kept in memory while the content is checked. Then either
//! they are made, in the order and with the syncs in which redb asked for them, or they are forgotten with the backend.

use std::io;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::{BackendError, StorageBackend};

#[derive(Debug, Clone)]
pub(crate) struct Trial(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    backend: Box<dyn StorageBackend>,
    /// `None` once the trial is over and changes go straight through.
    held: Mutex<Option<Held>>,
}

#[derive(Debug)]
struct Held {
    length: u64,
    changes: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Resize(u64),
    Sync,
}

impl Trial {
    pub(crate) fn new(backend: Box<dyn StorageBackend>) -> io::Result<Trial> {
        let held = Held { length: backend.len()?, changes: Vec::new() };
        Ok(Trial(Arc::new(Inner { backend, held: Mutex::new(Some(held)) })))
    }

    /// Ends the trial: makes the changes held so far, and all later ones at once. If that fails the trial goes on, so
    /// that redb, which believes them made, cannot build on them.
    pub(crate) fn accept(&self) -> io::Result<()> {
        let mut held = self.0.held.lock();
        for change in held.iter().flat_map(|held| &held.changes) {
            match change {
                Change::Write(offset, data) => self.0.backend.write(*offset, data)?,
                Change::Resize(length) => self.0.backend.set_len(*length)?,
                Change::Sync => self.0.backend.sync_data()?,
            }
        }
        *held = None;
        Ok(())
    }

    /// Whether the change is held back; if not, the caller makes it.
    fn holds(&self, change: impl FnOnce() -> Change) -> bool {
        self.0.held.lock().as_mut().map(|held| held.push(change())).is_some()
    }
}

impl Held {
    fn push(&mut self, change: Change) {
        match &change {
            Change::Write(offset, data) => self.length = self.length.max(offset + data.len() as u64),
            Change::Resize(length) => self.length = *length,
            Change::Sync => {}
        }
        self.changes.push(change);
    }

    /// What redb would find in `out` if the changes had been made to `backend`.
    fn read(&self, backend: &dyn StorageBackend, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset + out.len() as u64;
        if end > self.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let stored = usize::try_from(backend.len()?.clamp(offset, end) - offset).expect("at most as long as `out`");
        out[stored..].fill(0);
        if stored > 0 {
            backend.read(offset, &mut out[..stored])?;
        }
        for change in &self.changes {
            match change {
                Change::Write(at, data) => overlay(out, offset, *at, data),
                Change::Resize(length) if *length < end => {
                    let kept = usize::try_from(length.saturating_sub(offset)).expect("less than `out` is long");
                    out[kept..].fill(0);
                }
                Change::Resize(_) | Change::Sync => {}
            }
        }
        Ok(())
    }
}

/// Copies the part of `data`, which starts at `at`, that falls into `out`, which starts at `offset`.
fn overlay(out: &mut [u8], offset: u64, at: u64, data: &[u8]) {
    let start = at.max(offset);
    let end = (at + data.len() as u64).min(offset + out.len() as u64);
    if start < end {
        let within = |origin: u64| usize::try_from(start - origin).expect("inside a slice");
        let length = usize::try_from(end - start).expect("inside a slice");
        out[within(offset)..][..length].copy_from_slice(&data[within(at)..][..length]);
    }
}

impl StorageBackend for Trial {
    fn len(&self) -> io::Result<u64> {
        match &*self.0.held.lock() {
            Some(held) => Ok(held.length),
            None => self.0.backend.len(),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if let Some(held) = &*self.0.held.lock() {
            return held.read(&*self.0.backend, offset, out);
        }
        self.0.backend.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        if self.holds(|| Change::Resize(length)) { Ok(()) } else { self.0.backend.set_len(length) }
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.holds(|| Change::Sync) { Ok(()) } else { self.0.backend.sync_data() }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.holds(|| Change::Write(offset, data.to_vec())) { Ok(()) } else { self.0.backend.write(offset, data) }
    }

    fn close(&self) -> io::Result<()> {
        self.0.backend.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.backend.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.backend.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.backend.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.backend.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.backend.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.backend.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use redb::backends::InMemoryBackend;

    #[derive(Debug, Clone)]
    enum Step {
        Write(u64, Vec<u8>),
        Resize(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u64..64, proptest::collection::vec(any::<u8>(), 0..32)).prop_map(|(at, data)| Step::Write(at, data)),
            (0u64..96).prop_map(Step::Resize),
        ]
    }

    fn make(backend: &dyn StorageBackend, step: &Step) {
        match step {
            // redb never writes past the end.
            Step::Write(at, data) if at + data.len() as u64 <= backend.len().unwrap() => {
                backend.write(*at, data).unwrap();
            }
            Step::Write(..) => {}
            Step::Resize(length) => backend.set_len(*length).unwrap(),
        }
    }

    fn content(backend: &dyn StorageBackend) -> Vec<u8> {
        let mut content = vec![0xEE; usize::try_from(backend.len().unwrap()).unwrap()];
        backend.read(0, &mut content).unwrap();
        content
    }

    proptest! {
        #[test]
        fn reads_as_if_changed_and_becomes_so_when_accepted(
            before in proptest::collection::vec(step(), 0..8),
            during in proptest::collection::vec(step(), 0..16),
            from in 0u64..64,
        ) {
            let (plain, tried) = (InMemoryBackend::default(), InMemoryBackend::default());
            for step in &before {
                make(&plain, step);
                make(&tried, step);
            }
            let trial = Trial::new(Box::new(tried)).unwrap();
            let untouched = content(&*trial.0.backend);
            for step in &during {
                make(&plain, step);
                make(&trial, step);
            }
            let expected = content(&plain);
            prop_assert_eq!(&content(&trial), &expected);
            prop_assert_eq!(content(&*trial.0.backend), untouched);
            let from = from.min(expected.len() as u64);
            let mut part = vec![0xEE; expected.len() - usize::try_from(from).unwrap()];
            trial.read(from, &mut part).unwrap();
            prop_assert_eq!(&part[..], &expected[usize::try_from(from).unwrap()..]);
            trial.accept().unwrap();
            prop_assert_eq!(&content(&*trial.0.backend), &expected);
            prop_assert_eq!(content(&trial), expected);
        }
    }
}
