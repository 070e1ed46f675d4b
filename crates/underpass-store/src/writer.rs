//! The one thread that writes: takes all that waits, makes it durable with one commit, shows it, answers.
//!
//! Nobody learns of a write, not even by a conflict with it, before it is durable. After the first failed commit nothing
//! is written any more, because what is on disk is not known for certain until the file is opened again; reads go on.

use std::io::ErrorKind::{QuotaExceeded, StorageFull};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::batch::Batch;
use crate::entry::{Entry, Write, WriteError};
use crate::log::Log;
use crate::queue::{Answer, Request};
use crate::retention::Retention;
use crate::state::Accepted;
use crate::store::Shared;

pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) log: Log,
    pub(crate) path: PathBuf,
    pub(crate) retention: Retention,
    /// The sentence for whoever wants to write after storage failed.
    pub(crate) failure: Option<Arc<str>>,
}

impl Writer {
    /// Ends when the queue is closed and empty; the file is closed then.
    pub(crate) fn run(mut self) {
        while let Some(requests) = self.shared.queue.take(self.due()) {
            self.serve(requests);
            self.let_go_of_history();
        }
        let Writer { shared, log, .. } = self;
        // Closing writes, and redb may panic when that fails; all that was acknowledged is durable already.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(log)));
        shared.closed.send_replace(true);
    }

    fn due(&self) -> Option<Instant> {
        if self.failure.is_some() { None } else { self.retention.due() }
    }

    fn serve(&mut self, requests: Vec<Request>) {
        let (mut writes, mut compactions) = (Vec::new(), Vec::new());
        for request in requests {
            match request {
                Request::Write(write, answer) => writes.push((write, answer)),
                Request::Compact(upto, answer) => compactions.push((upto, answer)),
            }
        }
        self.write(writes);
        for (upto, answer) in compactions {
            answer.send(self.compact(upto).map_err(WriteError::Storage));
        }
    }

    fn write(&mut self, writes: Vec<(Write, Answer<Arc<Entry>>)>) {
        let shared = Arc::clone(&self.shared);
        let mut batch = Batch::new(&shared.state);
        let decided: Vec<_> = writes.into_iter().map(|(write, answer)| (batch.decide(write), answer)).collect();
        let committed = self.commit(batch.into_accepted());
        for (result, answer) in decided {
            answer.send(committed.clone().map_err(WriteError::Storage).and(result));
        }
    }

    fn commit(&mut self, accepted: Vec<Accepted>) -> Result<(), Arc<str>> {
        if accepted.is_empty() {
            return self.failure.clone().map_or(Ok(()), Err);
        }
        self.durably(|log| log.append(&accepted))?;
        let now = Instant::now();
        for Accepted { event, .. } in &accepted {
            self.retention.note(now, event.revision, event.superseded_bytes());
        }
        self.shared.state.publish(accepted);
        Ok(())
    }

    fn compact(&mut self, upto: u64) -> Result<(), Arc<str>> {
        let shared = Arc::clone(&self.shared);
        let upto = upto.min(shared.state.revision());
        if upto <= shared.state.compacted() {
            return self.failure.clone().map_or(Ok(()), Err);
        }
        let rows = shared.state.superseded_rows(upto);
        self.durably(|log| log.compact(upto, &rows))?;
        let bytes = shared.state.trim(upto);
        self.retention.compacted(upto, bytes);
        tracing::debug!(upto, rows = rows.len(), "compacted the store");
        Ok(())
    }

    fn let_go_of_history(&mut self) {
        if let Some(upto) = self.retention.cut(Instant::now()) {
            // A failure is told to everybody who writes or waits for `Store::failed`.
            let _ = self.compact(upto);
        }
    }

    /// Runs one transaction. The first that fails is the last.
    fn durably(&mut self, transaction: impl FnOnce(&mut Log) -> Result<(), redb::Error>) -> Result<(), Arc<str>> {
        if let Some(failure) = &self.failure {
            return Err(Arc::clone(failure));
        }
        let log = AssertUnwindSafe(&mut self.log);
        let failure: Arc<str> = match catch_unwind(AssertUnwindSafe(|| transaction({ log }.0))) {
            Ok(Ok(())) => {
                self.shared.commits.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            Ok(Err(error)) => sentence(&self.path, &error).into(),
            Err(_) => format!("cannot write {}: the database gave up; start again", self.path.display()).into(),
        };
        self.failure = Some(Arc::clone(&failure));
        self.shared.failure.send_replace(Some(Arc::clone(&failure)));
        Err(failure)
    }
}

fn sentence(path: &Path, error: &redb::Error) -> String {
    let path = path.display();
    match error {
        redb::Error::Io(error) if matches!(error.kind(), StorageFull | QuotaExceeded) => {
            format!("cannot write {path}: the disk is full; free some space and start again")
        }
        redb::Error::Io(error) => format!("cannot write {path}: {error}; check the disk and start again"),
        error => format!("cannot write {path}: {error}; start again"),
    }
}
