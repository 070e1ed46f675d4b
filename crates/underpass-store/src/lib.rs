//! One monotonic log of revisions, durable before it is visible: get, list at a revision, watch from one, compact.
//!
//! The log is the store: each write is one row under its own revision, and everything held in memory is rebuilt from the
//! rows on open. The store knows buckets, names and bytes, and no kinds.
//!
//! The path of a write, one file per step: [`Store::write`] queues it (`queue`), the one writer thread takes all that
//! wait (`writer`), checks each against the state and those before it (`batch`), makes them durable with one fsync
//! (`log`, rows in `row`), then shows them to readers and watchers (`state`, `bucket`, `watcher`). History that nobody
//! needs any more is let go by `retention`. Opening (`open`) judges a file without changing it (`trial`).
//!
//! Rejected: a queue per watcher (a slow one grows without bound or blocks the writer); reading from the database
//! (values are needed in memory anyway, to serve lists and watches without copying); one lock around everything (a long
//! list of one bucket would hold up all others). Why redb: `docs/decisions/0001-storage.md`.

mod batch;
mod bucket;
mod entry;
mod log;
mod open;
mod queue;
mod retention;
mod row;
mod state;
mod store;
mod trial;
mod watcher;
mod writer;

pub use entry::{At, Change, Changed, Entry, Event, Expect, Listing, ReadError, Template, Write, WriteError};
pub use open::OpenError;
pub use retention::Options;
pub use store::Store;
pub use watcher::Watcher;
