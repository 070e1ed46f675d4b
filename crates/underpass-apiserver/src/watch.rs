//! WATCH: what happened to a collection, event by event, from a revision on.
//!
//! A watch is a cursor into the store's log and holds no queue: a client that does not read costs nobody anything, and when
//! the log is compacted past it, it is told to list again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::future;
use futures::stream::{self, Stream, StreamExt};
use rand::RngExt;
use serde_json::{Value, json};
use tokio::time::{Instant, Interval};
use tokio_util::sync::CancellationToken;
use underpass_store::{At, Changed, Entry, Event, ReadError, Watcher};

use crate::api::Api;
use crate::object;
use crate::registry::Resource;
use crate::request::{ListOptions, Target};
use crate::serve::present;
use crate::status::ApiError;
use crate::table::{self, IncludeObject, Representation};
use crate::write::Call;

/// How often a quiet watch says how far it has seen.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Watches without a time-out end after this and a random part of it, so that clients spread.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Longer than anybody waits, short enough to add to a clock.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
/// A piece of the stream is flushed when it is this large, or when nothing more is there.
const PIECE: usize = 64 * 1024;

pub(crate) struct Watch {
    api: Arc<Api>,
    resource: Arc<Resource>,
    target: Target,
    options: ListOptions,
    representation: Representation,
    include: IncludeObject,
    watcher: Watcher,
    /// Nothing is told up to this revision, which the client claims to know; it may be in the future.
    known: u64,
    /// What existed at the beginning and stands before the log.
    initial: VecDeque<Arc<Entry>>,
    /// The revision of the bookmark that ends the initial events, where one was asked for.
    initial_end: Option<u64>,
    bookmarks: Interval,
    deadline: Instant,
    stop: CancellationToken,
    ended: bool,
}

impl Call<'_> {
    pub(crate) fn watch(
        &self,
        api: Arc<Api>,
        options: ListOptions,
        representation: Representation,
        include: IncludeObject,
        stop: CancellationToken,
    ) -> Result<impl Stream<Item = Bytes> + Send + use<>, ApiError> {
        options.fields.check(&self.resource)?;
        let newest = self.api.store.revision();
        let from = options.resource_version.unwrap_or(0);
        let with_initial = options.send_initial_events.unwrap_or(from == 0);
        if with_initial && from > newest {
            return Ok(only(&ApiError::future_revision(from, newest)).left_stream());
        }
        let (after, entries) = if with_initial {
            let prefix = self.resource.prefix(&self.target.namespace);
            let listing =
                self.api.store.list(&self.resource.bucket, &prefix, None, At::Now).map_err(|e| expired(from, &e))?;
            (listing.revision, listing.entries)
        } else if from == 0 {
            (newest, Vec::new())
        } else {
            (from.min(newest), Vec::new())
        };
        let watcher = match self.api.store.watch(&self.resource.bucket, after) {
            Ok(watcher) => watcher,
            Err(error @ ReadError::Future { .. }) => return Err(expired(from, &error)),
            // As an event and not as an answer's status: clients list again when they read it there, kube-rs only then.
            Err(error @ ReadError::Compacted { .. }) => {
                return Ok(only(&expired(from, &error)).left_stream());
            }
        };
        let timeout = options.timeout_seconds.map_or_else(
            || DEFAULT_TIMEOUT.mul_f64(1.0 + rand::rng().random::<f64>()),
            |seconds| Duration::from_secs(seconds).min(LONGEST),
        );
        let watch = Watch {
            api,
            resource: self.resource.clone(),
            target: self.target.clone(),
            representation,
            include,
            watcher,
            known: if with_initial { 0 } else { from },
            initial: entries.into(),
            initial_end: (options.send_initial_events == Some(true) && options.bookmarks).then_some(after),
            bookmarks: tokio::time::interval_at(Instant::now() + BOOKMARK_EVERY, BOOKMARK_EVERY),
            deadline: Instant::now() + timeout,
            stop,
            ended: false,
            options,
        };
        let pieces =
            stream::unfold(watch, |mut watch| async move { watch.next_piece().await.map(|piece| (piece, watch)) });
        Ok(pieces.right_stream())
    }
}

impl Watch {
    /// Waits for something to tell, then takes along what else is there already.
    async fn next_piece(&mut self) -> Option<Bytes> {
        let mut piece = BytesMut::new();
        while let Some(entry) = self.initial.pop_front() {
            if self.selects(&entry.value, entry.revision) {
                piece.put(self.line("ADDED", &entry.value, entry.revision));
            }
            if piece.len() >= PIECE {
                return Some(piece.freeze());
            }
        }
        if let Some(revision) = self.initial_end.take() {
            piece.put(self.bookmark(revision, true));
        }
        while piece.len() < PIECE && !self.ended {
            let line = if piece.is_empty() { self.wait().await } else { self.ready() };
            match line {
                Some(line) => piece.put(line),
                None => break,
            }
        }
        (!piece.is_empty()).then(|| piece.freeze())
    }

    /// The next line, however long it takes; `None` when the watch is over.
    async fn wait(&mut self) -> Option<Bytes> {
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return self.end(),
                event = self.watcher.next() => match event {
                    Ok(event) => {
                        if let Some(line) = self.tell(&event) {
                            return Some(line);
                        }
                    }
                    Err(error) => return Some(self.fail(&error)),
                },
                () = tokio::time::sleep_until(self.deadline) => return self.end(),
                _ = self.bookmarks.tick(), if self.options.bookmarks && self.watcher.seen() >= self.known => return Some(self.bookmark(self.watcher.seen(), false)),
            }
        }
    }

    /// The next line that is there already.
    fn ready(&mut self) -> Option<Bytes> {
        loop {
            match self.watcher.try_next() {
                Ok(Some(event)) => {
                    if let Some(line) = self.tell(&event) {
                        return Some(line);
                    }
                }
                Ok(None) => return None,
                Err(error) => return Some(self.fail(&error)),
            }
        }
    }

    fn end(&mut self) -> Option<Bytes> {
        self.ended = true;
        None
    }

    fn fail(&mut self, error: &ReadError) -> Bytes {
        self.ended = true;
        error_line(&expired(self.watcher.seen(), error))
    }

    fn selects(&self, value: &Bytes, revision: u64) -> bool {
        let call = Call { api: &self.api, resource: self.resource.clone(), target: &self.target };
        call.matches(&self.options, value, revision)
    }

    /// An event as this watch sees it: an object that comes to match is added, one that ceases to match is deleted.
    fn tell(&self, event: &Event) -> Option<Bytes> {
        if event.revision <= self.known || !event.name.starts_with(&self.resource.prefix(&self.target.namespace)) {
            return None;
        }
        let before = event.previous.as_ref().filter(|p| self.selects(&p.value, p.revision));
        match event.change {
            Changed::Deleted => before.map(|_| self.line("DELETED", &event.value, event.revision)),
            Changed::Put => match (before, self.selects(&event.value, event.revision)) {
                (None, true) => Some(self.line("ADDED", &event.value, event.revision)),
                (Some(_), true) => Some(self.line("MODIFIED", &event.value, event.revision)),
                (Some(previous), false) => Some(self.left(&previous.value, previous.revision, event.revision)),
                (None, false) => None,
            },
        }
    }

    /// An object that left the selection is shown as it was when it last matched, at the revision of its leaving.
    fn left(&self, value: &Bytes, written: u64, revision: u64) -> Bytes {
        let mut object = self.resource.object_of(value, written);
        object::metadata_mut(&mut object).insert("resourceVersion".to_owned(), json!(revision.to_string()));
        self.line_of("DELETED", &object)
    }

    fn line(&self, kind: &str, value: &Bytes, revision: u64) -> Bytes {
        if !matches!(self.representation, Representation::Json) {
            return self.line_of(kind, &self.resource.object_of(value, revision));
        }
        let text = self.resource.text_of(value, revision);
        let mut line = BytesMut::with_capacity(text.len() + 40);
        line.put(&b"{\"type\":\""[..]);
        line.put(kind.as_bytes());
        line.put(&b"\",\"object\":"[..]);
        line.put(text);
        line.put(&b"}\n"[..]);
        line.freeze()
    }

    fn line_of(&self, kind: &str, object: &Value) -> Bytes {
        let shown = present(&self.resource, object, self.representation, self.include);
        format!("{{\"type\":\"{kind}\",\"object\":{shown}}}\n").into()
    }

    fn bookmark(&self, revision: u64, initial_end: bool) -> Bytes {
        let mut metadata = json!({ "resourceVersion": revision.to_string(), "creationTimestamp": null });
        if initial_end {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let object = json!({ "kind": self.resource.kind, "apiVersion": self.resource.api_version(), "metadata": metadata.clone() });
        let shown = match self.representation {
            // A bookmark is no row.
            Representation::Table(version) => {
                table::table(&self.resource, &[], metadata, version, self.include, jiff::Timestamp::now())
            }
            other => present(&self.resource, &object, other, self.include),
        };
        format!("{{\"type\":\"BOOKMARK\",\"object\":{shown}}}\n").into()
    }
}

/// A watch that says why there is none.
fn only(error: &ApiError) -> impl Stream<Item = Bytes> + Send + use<> {
    stream::once(future::ready(error_line(error)))
}

fn error_line(error: &ApiError) -> Bytes {
    format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", error.to_json()).into()
}

/// What a client is told whose revision is no longer, or not yet, known.
fn expired(asked: u64, error: &ReadError) -> ApiError {
    match error {
        ReadError::Compacted { oldest } => ApiError::expired(format!("too old resource version: {asked} ({oldest})")),
        ReadError::Future { newest } => ApiError::future_revision(asked, *newest),
    }
}
