//! A reader of one bucket's events: a cursor, not a queue.

use std::sync::Arc;

use crate::bucket::Bucket;
use crate::entry::{Event, ReadError};
use crate::state::State;

pub struct Watcher {
    state: Arc<State>,
    bucket: Arc<Bucket>,
    /// Every event of the bucket up to this revision was returned.
    cursor: u64,
}

impl Watcher {
    pub(crate) fn new(state: &Arc<State>, bucket: &str, after: u64) -> Result<Watcher, ReadError> {
        let bucket = state.bucket_or_new(bucket);
        let content = bucket.content.read();
        state.readable(after)?;
        drop(content);
        Ok(Watcher { state: Arc::clone(state), bucket, cursor: after })
    }

    /// Waits for the next event. Nothing is lost if the future is dropped. Waits forever once the store is closed.
    pub async fn next(&mut self) -> Result<Arc<Event>, ReadError> {
        let bucket = Arc::clone(&self.bucket);
        loop {
            let mut changed = std::pin::pin!(bucket.changed.notified());
            // Before looking: an event that comes between the look and the wait must wake us.
            changed.as_mut().enable();
            if let Some(event) = self.try_next()? {
                return Ok(event);
            }
            changed.await;
        }
    }

    /// The next event if there is one already.
    pub fn try_next(&mut self) -> Result<Option<Arc<Event>>, ReadError> {
        let content = self.bucket.content.read();
        // Not the store's compacted revision: a cursor in a quiet bucket may lag behind that and has missed nothing.
        if self.cursor < content.trimmed() {
            return Err(ReadError::Compacted { oldest: self.state.compacted() });
        }
        let event = content.first_after(self.cursor).map(Arc::clone);
        self.cursor = event.as_ref().map_or_else(|| self.state.revision(), |event| event.revision);
        Ok(event)
    }

    /// Every event of the bucket up to this revision of the store was returned. Advances with the store while the bucket
    /// is quiet.
    pub fn seen(&self) -> u64 {
        let content = self.bucket.content.read();
        let up_to_date = self.cursor >= content.trimmed() && content.first_after(self.cursor).is_none();
        if up_to_date { self.state.revision() } else { self.cursor }
    }
}
