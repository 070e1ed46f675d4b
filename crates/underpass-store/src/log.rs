//! The log in its database: two tables, appended to and compacted in transactions that are durable when they return.

use std::sync::Arc;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, TableError};

use crate::entry::Event;
use crate::row::Row;
use crate::state::{Accepted, Rebuild, State};

/// One row per write, under its revision.
const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

/// Which rows and which keys of `meta` there are; raised when an older program could not read a file any more.
const FORMAT: &str = "format";
const KNOWN_FORMAT: u64 = 1;

/// History before this revision is gone. All rows after it exist, without a gap, so this key and the last row together
/// tell the highest revision ever given out, even after everything was deleted and compacted.
const COMPACTED: &str = "compacted";

/// The file is rewritten when it is larger than this and less than half of it is in use.
const WORTH_SHRINKING: u64 = 8 << 20;

pub(crate) struct Log {
    database: Database,
    row: Vec<u8>,
}

/// Why the content of a database is not a log that can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Flaw {
    #[error("{0}")]
    Damaged(String),
    #[error("format {found} instead of {KNOWN_FORMAT}")]
    Newer { found: u64, known: u64 },
    #[error(transparent)]
    Database(Box<redb::Error>),
}

impl<E: Into<redb::Error>> From<E> for Flaw {
    fn from(error: E) -> Flaw {
        Flaw::Database(Box::new(error.into()))
    }
}

/// Makes an empty database a log.
pub(crate) fn initialise(database: &Database) -> Result<(), Flaw> {
    let transaction = database.begin_write()?;
    transaction.open_table(LOG)?;
    transaction.open_table(META)?.insert(FORMAT, KNOWN_FORMAT)?;
    Ok(transaction.commit()?)
}

impl Log {
    /// Reads and checks everything. `history` is told each event that can still be watched.
    pub(crate) fn read(mut database: Database, history: &mut dyn FnMut(&Event)) -> Result<(Log, State), Flaw> {
        // Page checksums are otherwise only looked at after a crash.
        if !database.check_integrity()? {
            return Err(Flaw::Damaged("its pages do not match their checksums".to_owned()));
        }
        let state = rebuild(&database, history)?;
        Ok((Log { database, row: Vec::new() }, state))
    }

    /// Returns when all of the batch is on disk, or none of it counts.
    pub(crate) fn append(&mut self, batch: &[Accepted]) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        let mut table = transaction.open_table(LOG)?;
        for Accepted { bucket, entry, event } in batch {
            let row = Row {
                change: event.change,
                bucket: &bucket.name,
                name: &entry.name,
                created: entry.created,
                value: &entry.value,
            };
            row.encode(entry.revision, &mut self.row);
            table.insert(entry.revision, &*self.row)?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    pub(crate) fn compact(&mut self, upto: u64, rows: &[u64]) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        let mut table = transaction.open_table(LOG)?;
        for row in rows {
            table.remove(row)?;
        }
        drop(table);
        transaction.open_table(META)?.insert(COMPACTED, upto)?;
        Ok(transaction.commit()?)
    }

    /// Gives the space of deleted rows back if that is most of a file of `length` bytes.
    pub(crate) fn shrink(&mut self, length: u64) -> Result<(), Flaw> {
        if length < WORTH_SHRINKING {
            return Ok(());
        }
        let transaction = self.database.begin_write()?;
        let stats = transaction.stats()?;
        transaction.abort()?;
        if stats.allocated_pages() * (stats.page_size() as u64) < length / 2 {
            self.database.compact()?;
        }
        Ok(())
    }
}

fn rebuild(database: &Database, history: &mut dyn FnMut(&Event)) -> Result<State, Flaw> {
    let transaction = database.begin_read()?;
    let meta = match transaction.open_table(META) {
        Ok(meta) => meta,
        Err(TableError::Storage(error)) => return Err(error.into()),
        Err(_) => return Err(Flaw::Damaged("it is not a store of this program".to_owned())),
    };
    match meta.get(FORMAT)?.map(|found| found.value()) {
        Some(KNOWN_FORMAT) => {}
        Some(found) if found > KNOWN_FORMAT => return Err(Flaw::Newer { found, known: KNOWN_FORMAT }),
        _ => return Err(Flaw::Damaged("it does not say which format it has".to_owned())),
    }
    let mut rebuild = Rebuild::new(meta.get(COMPACTED)?.map_or(0, |revision| revision.value()));
    for row in transaction.open_table(LOG)?.iter()? {
        let (revision, bytes) = row?;
        let event = take_row(&mut rebuild, revision.value(), bytes.value())?;
        event.iter().for_each(|event| history(event));
    }
    Ok(rebuild.finish())
}

fn take_row(rebuild: &mut Rebuild, revision: u64, bytes: &[u8]) -> Result<Option<Arc<Event>>, Flaw> {
    let row = Row::decode(revision, bytes).ok_or("does not match its checksum");
    row.and_then(|row| rebuild.take(revision, &row)).map_err(|why| Flaw::Damaged(format!("its row {revision} {why}")))
}
