//! Opens the file of a store: makes a new one, or judges one that is there. A file that is refused is left as it was.

use std::cell::Cell;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::backends::{FileBackend, InMemoryBackend};
use redb::{Database, StorageBackend};

use crate::entry::Event;
use crate::log::{self, Flaw, Log};
use crate::state::State;
use crate::trial::Trial;

pub(crate) const FILE: &str = "objects.redb";

/// Rows are read once, on open, and appended after that: redb needs room for the pages of a batch and little more.
const CACHE_BYTES: usize = 8 << 20;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot write {}: give this user the right to, or choose another data folder", path.display())]
    NotWritable { path: PathBuf, source: io::Error },
    #[error("{} is in use by another process: stop that one, or choose another data folder", path.display())]
    InUse { path: PathBuf },
    #[error(
        "{} is damaged ({what}): nothing in it was changed; move it away to start empty, or put a good copy in its place",
        path.display()
    )]
    Corrupted { path: PathBuf, what: String },
    #[error(
        "{} was written by a newer version (format {found}, this version knows {known}): use that version, or move the \
         file away to start empty",
        path.display()
    )]
    Newer { path: PathBuf, found: u64, known: u64 },
    #[error("cannot open {}: the disk is full; free some space and start again", path.display())]
    DiskFull { path: PathBuf },
    #[error("cannot open {}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// An open log, what it holds, and how to call it in messages.
pub(crate) struct Opened {
    pub(crate) log: Log,
    pub(crate) state: State,
    pub(crate) path: PathBuf,
}

pub(crate) fn file(folder: &Path, history: &mut dyn FnMut(&Event)) -> Result<Opened, OpenError> {
    let path = folder.join(FILE);
    if !path.try_exists().map_err(|error| explain_io(&path, error))? {
        create(folder, &path)?;
    }
    let file = OpenOptions::new().read(true).write(true).open(&path).map_err(|error| explain_io(&path, error))?;
    let backend = FileBackend::new(file).map_err(|error| explain(&path, error.into()))?;
    opened(path, Box::new(backend), history)
}

pub(crate) fn memory(history: &mut dyn FnMut(&Event)) -> Result<Opened, OpenError> {
    let path = PathBuf::from("the store in memory");
    let database = database(InMemoryBackend::new()).and_then(|database| log::initialise(&database).map(|()| database));
    let read = database.and_then(|database| Log::read(database, history));
    let (log, state) = read.map_err(|flaw| explain(&path, flaw))?;
    Ok(Opened { log, state, path })
}

/// Judges what is in `backend` and lets redb change it only if it is sound.
pub(crate) fn opened(
    path: PathBuf,
    backend: Box<dyn StorageBackend>,
    history: &mut dyn FnMut(&Event),
) -> Result<Opened, OpenError> {
    let refused = |flaw| explain(&path, flaw);
    let length = backend.len().map_err(|error| explain_io(&path, error))?;
    if length == 0 {
        // redb would take it for a new one.
        return Err(refused(Flaw::Damaged("it is empty".to_owned())));
    }
    let trial = Trial::new(backend).map_err(|error| explain_io(&path, error))?;
    let read = || Log::read(database(trial.clone())?, history);
    let (mut log, state) = caught(read).map_err(refused)?;
    trial.accept().map_err(|error| explain_io(&path, error))?;
    log.shrink(length).map_err(refused)?;
    Ok(Opened { log, state, path })
}

/// Makes the new file under another name and gives it its own when it is whole, so that a crash in between leaves no
/// file that looks damaged. Not by renaming: that would replace the file of a process that was a moment faster.
fn create(folder: &Path, path: &Path) -> Result<(), OpenError> {
    let explain_io = |error| explain_io(path, error);
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(explain_io)?;
    let draft = Draft::new(folder);
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).clone();
    let file = options.open(&draft.0).map_err(explain_io)?;
    let backend = FileBackend::new(file).map_err(|error| explain(path, error.into()))?;
    let made = database(backend).and_then(|database| log::initialise(&database));
    made.map_err(|flaw| explain(path, flaw))?;
    match fs::hard_link(&draft.0, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(explain_io(error)),
        _ => drop(draft),
    }
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(explain_io)
}

/// The name of a file that is not a store yet; the name goes away with this.
struct Draft(PathBuf);

impl Draft {
    fn new(folder: &Path) -> Draft {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Draft(folder.join(format!(".{FILE}.{}.{count}", std::process::id())))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Nothing depends on it: a draft that stays is never read.
        let _ = fs::remove_file(&self.0);
    }
}

fn database(backend: impl StorageBackend) -> Result<Database, Flaw> {
    Ok(Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(backend)?)
}

/// redb may panic on pages that make no sense: then the file is damaged, and the process goes on to say so.
fn caught<T>(read: impl FnOnce() -> Result<T, Flaw>) -> Result<T, Flaw> {
    thread_local! { static READING: Cell<bool> = const { Cell::new(false) } }
    static HOOK: Once = Once::new();
    // The user is to read one sentence, not where redb gave up. Panics of other threads are reported as ever.
    HOOK.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !READING.get() {
                report(info);
            }
        }));
    });
    READING.set(true);
    let result = catch_unwind(AssertUnwindSafe(read));
    READING.set(false);
    result.unwrap_or_else(|_| Err(Flaw::Damaged("its pages make no sense".to_owned())))
}

fn explain(path: &Path, flaw: Flaw) -> OpenError {
    let path = path.to_owned();
    match flaw {
        Flaw::Damaged(what) => OpenError::Corrupted { path, what },
        Flaw::Newer { found, known } => OpenError::Newer { path, found, known },
        Flaw::Database(error) => match *error {
            redb::Error::DatabaseAlreadyOpen => OpenError::InUse { path },
            redb::Error::Io(error) => explain_io(&path, error),
            error => OpenError::Corrupted { path, what: error.to_string() },
        },
    }
}

fn explain_io(path: &Path, source: io::Error) -> OpenError {
    use io::ErrorKind::{
        InvalidData, NotADirectory, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull, UnexpectedEof,
    };
    let path = path.to_owned();
    match source.kind() {
        PermissionDenied | ReadOnlyFilesystem | NotADirectory => OpenError::NotWritable { path, source },
        StorageFull | QuotaExceeded => OpenError::DiskFull { path },
        InvalidData | UnexpectedEof => OpenError::Corrupted { path, what: source.to_string() },
        _ => OpenError::Io { path, source },
    }
}
