//! The data directory: private to its owner, used by one process at a time.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::leftovers;
use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Held for as long as this value lives, and let go by the system however the process ends.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: File,
    /// Removes the folder of an ephemeral server when dropped.
    _temporary: Option<tempfile::TempDir>,
}

impl DataDir {
    /// Makes the folder if need be and takes it for this process.
    pub(crate) fn take(path: &Path) -> anyhow::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path).with_context(|| cannot_use(path))?;
        Ok(Self { path: path.to_owned(), _lock: lock(path)?, _temporary: None })
    }

    /// A folder of its own that goes with this value. When the process is killed it stays, until the next one is made.
    pub(crate) fn temporary() -> anyhow::Result<Self> {
        let place = std::env::temp_dir();
        leftovers::remove(&place);
        let folder = tempfile::Builder::new()
            .prefix(&leftovers::prefix())
            .tempdir_in(&place)
            .with_context(|| format!("cannot create a folder in {}", place.display()))?;
        Ok(Self { path: folder.path().to_owned(), _lock: lock(folder.path())?, _temporary: Some(folder) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// The process that has taken a folder, if one has.
pub(crate) fn owner(folder: &Path) -> anyhow::Result<Option<u32>> {
    let mut file = match File::open(folder.join("lock")) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| cannot_use(folder)),
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => return Ok(None),
        Err(Errno::WOULDBLOCK) => {}
        Err(error) => return Err(error).with_context(|| cannot_use(folder)),
    }
    let mut text = String::new();
    file.read_to_string(&mut text).with_context(|| cannot_use(folder))?;
    let pid = text.trim().parse().with_context(|| format!("{} does not say who holds it", folder.display()))?;
    Ok(Some(pid))
}

/// The file is never deleted: whoever deleted it could let a third process lock a new one while the second waits on the old.
fn lock(folder: &Path) -> anyhow::Result<File> {
    let path = folder.join("lock");
    let cannot = || cannot_use(folder);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .with_context(cannot)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => bail!("{}", taken(&mut file, folder)),
        Err(error) => return Err(error).with_context(cannot),
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).with_context(cannot)?;
    Ok(file)
}

fn cannot_use(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "cannot use {folder} as the data directory; see that it is a folder with free space that this user may write to, or choose another with --data-dir"
    )
}

fn taken(file: &mut File, folder: &Path) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
    let who = match read {
        Ok(_) if !text.trim().is_empty() => format!("another underpass (pid {})", text.trim()),
        _ => "another underpass".to_owned(),
    };
    format!("{who} is using the data directory {}: stop it, or choose another with --data-dir", folder.display())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_second_is_refused_and_told_who_is_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        let first = DataDir::take(&path).unwrap();
        let refused = DataDir::take(&path).unwrap_err().to_string();
        assert!(refused.contains(&format!("pid {}", std::process::id())), "{refused}");
        assert_eq!(owner(&path).unwrap(), Some(std::process::id()));
        drop(first);
        assert_eq!(owner(&path).unwrap(), None);
        DataDir::take(&path).unwrap();
    }

    #[test]
    fn nobody_else_can_look_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let taken = DataDir::take(&path).unwrap();
        assert_eq!(std::fs::metadata(taken.path()).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(std::fs::metadata(path.join("lock")).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_temporary_one_leaves_nothing() {
        let temporary = DataDir::temporary().unwrap();
        let path = temporary.path().to_owned();
        assert!(path.exists());
        drop(temporary);
        assert!(!path.exists());
    }
}
