//! Who may make images in an engine, and who still uses one: files that are locked, and a name that one process of this host can have.
//!
//! The kernel drops a lock when its owner ends, however it ends, so that no owner's liveness has to be guessed. Files are taken away
//! with the last lock; a file that was taken away while somebody waited for it is no longer the one with that name, which is checked.
//!
//! Files are a user's own. Processes of several users, or of one whose folder went with his login, who make images in one engine meet at
//! the abstract address of a Unix socket: it needs no folder that all may write to, and nothing of it is left. Everybody may take it who
//! shares this network namespace, so nobody waits for it without end: an image that two make at once is made twice, and no more.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use tracing::warn;

use crate::image_archive::hex;

/// How often a lock that somebody else has is tried again: a load takes a second.
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// For those of other users. A load takes a second, a build on a base a little more: who has it longer hangs, or wants to be in the way.
const PATIENCE: Duration = Duration::from_secs(60);

/// The locks that concern one engine.
pub(super) struct Locks {
    folder: PathBuf,
    engine: String,
}

/// Nobody else has it.
#[derive(Debug)]
pub(super) struct Exclusive {
    _file: File,
    path: PathBuf,
    _of_host: Option<UnixDatagram>,
}

/// Others may have it, too; nobody can have it exclusively.
#[derive(Debug)]
pub(super) struct InUse {
    file: File,
    path: PathBuf,
}

impl Locks {
    /// `address` is how the engine is reached; two ways to one socket are one engine.
    pub(super) fn of(address: &str) -> Self {
        Self::in_folder(folder(), address)
    }

    fn in_folder(folder: PathBuf, address: &str) -> Self {
        let path = address.strip_prefix("unix://").unwrap_or(address);
        let one = fs::canonicalize(path).map_or_else(|_| address.to_owned(), |path| path.display().to_string());
        Self { folder, engine: hex(&Sha256::digest(one))[..16].to_owned() }
    }

    /// The right to make an image, waited for.
    pub(super) async fn exclusive(&self) -> io::Result<Exclusive> {
        let (file, path) = loop {
            match self.try_lock("making", FlockOperation::NonBlockingLockExclusive) {
                Ok(locked) => break locked,
                Err(error) if is_taken(&error) => tokio::time::sleep(TRY_AGAIN).await,
                Err(error) => return Err(error),
            }
        };
        let mut exclusive = Exclusive { _file: file, path, _of_host: None };
        exclusive._of_host = self.alone_on_host().await;
        Ok(exclusive)
    }

    /// `None` when another user does not let go of it, or this system has no such addresses: that costs a second load at the most.
    async fn alone_on_host(&self) -> Option<UnixDatagram> {
        let began = Instant::now();
        loop {
            let address = SocketAddr::from_abstract_name(self.name_on_host());
            match address.and_then(|address| UnixDatagram::bind_addr(&address)) {
                Ok(bound) => return Some(bound),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && began.elapsed() < PATIENCE => {
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                Err(error) => {
                    warn!(%error, "processes of other users cannot be kept from making the same image");
                    return None;
                }
            }
        }
    }

    fn name_on_host(&self) -> String {
        format!("underpass/making/{}", self.engine)
    }

    /// Says that this process uses an image. Waits only for somebody who is removing it.
    pub(super) async fn in_use(&self, tag: &str) -> io::Result<InUse> {
        loop {
            match self.try_lock(tag, FlockOperation::NonBlockingLockShared) {
                Ok((file, path)) => return Ok(InUse { file, path }),
                Err(error) if is_taken(&error) => tokio::time::sleep(TRY_AGAIN).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// The right to remove an image, if no process uses it.
    pub(super) fn claim(&self, tag: &str) -> io::Result<Exclusive> {
        let (file, path) = self.try_lock(tag, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Exclusive { _file: file, path, _of_host: None })
    }

    fn try_lock(&self, name: &str, how: FlockOperation) -> io::Result<(File, PathBuf)> {
        let path = self.folder.join(format!("{}-{name}.lock", self.engine));
        loop {
            let Some(file) = self.open(&path)? else { continue };
            flock(&file, how)?;
            if is_at(&file, &path)? {
                return Ok((file, path));
            }
        }
    }

    /// `None` when the folder went away just now: its last user takes it along.
    fn open(&self, path: &Path) -> io::Result<Option<File>> {
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let is_ours = match is_folder_of_ours(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            is_ours => is_ours?,
        };
        if !is_ours {
            let why = format!("{} is not a folder of this user; remove it", self.folder.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        match File::options().create(true).truncate(false).write(true).mode(0o600).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    }
}

/// Takes away the files that nobody holds: those of processes that were killed, of whichever engine.
pub fn remove_stale_locks() {
    remove_stale(&folder());
}

fn remove_stale(folder: &Path) {
    if !is_folder_of_ours(folder).unwrap_or_default() {
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "lock") {
            continue;
        }
        let Ok(file) = File::open(&path) else { continue };
        // Whoever waits for it meanwhile sees that it is no longer the one with that name.
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() && is_at(&file, &path).unwrap_or_default() {
            remove(&path);
        }
    }
}

/// Follows from the user alone, never from the environment: two processes that see different variables (one without XDG_RUNTIME_DIR, as
/// under sudo or cron) must meet here. Below /tmp only where the system gives its users no folder.
fn folder() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    let own = PathBuf::from(format!("/run/user/{user}"));
    match fs::metadata(&own) {
        Ok(meta) if meta.uid() == user => own.join("underpass"),
        _ => PathBuf::from(format!("/tmp/underpass-{user}")),
    }
}

fn is_folder_of_ours(folder: &Path) -> io::Result<bool> {
    let meta = fs::symlink_metadata(folder)?;
    Ok(meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw())
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_taken(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::WOULDBLOCK.raw_os_error())
}

/// Takes the file away while it is locked, and the folder when it was the last. What cannot be taken away does no harm.
fn remove(path: &Path) {
    let _ = fs::remove_file(path);
    if let Some(folder) = path.parent() {
        let _ = fs::remove_dir(folder);
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            remove(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn locks(folder: &tempfile::TempDir) -> Locks {
        Locks::in_folder(folder.path().join("locks"), "unix:///engine.sock")
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_at_a_time_and_nothing_left() {
        let folder = tempfile::tempdir().unwrap();
        let inside = Arc::new(AtomicUsize::new(0));
        let locks = Arc::new(locks(&folder));
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let (locks, inside) = (Arc::clone(&locks), Arc::clone(&inside));
                tokio::spawn(async move {
                    let alone = locks.exclusive().await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(alone);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    /// As two users have them.
    #[tokio::test]
    async fn one_at_a_time_on_the_host() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let engine = format!("unix://{}/engine.sock", folders[0].path().display());
        let [one, two] = folders.each_ref().map(|folder| Locks::in_folder(folder.path().join("locks"), &engine));
        let alone = one.exclusive().await.unwrap();
        let waits = two.exclusive();
        tokio::pin!(waits);
        assert!(tokio::time::timeout(TRY_AGAIN * 5, &mut waits).await.is_err(), "the other one makes an image");
        drop(alone);
        drop(waits.await.unwrap());
        let elsewhere = Locks::in_folder(folders[1].path().join("locks"), "unix:///another.sock");
        let _alone = one.exclusive().await.unwrap();
        drop(elsewhere.exclusive().await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever_for_another_user() {
        let folder = tempfile::tempdir().unwrap();
        let engine = format!("unix://{}/engine.sock", folder.path().display());
        let locks = Locks::in_folder(folder.path().join("locks"), &engine);
        let name = SocketAddr::from_abstract_name(locks.name_on_host()).unwrap();
        let _in_the_way = UnixDatagram::bind_addr(&name).unwrap();
        let began = Instant::now();
        locks.exclusive().await.unwrap();
        assert!(began.elapsed() >= PATIENCE);
    }

    #[tokio::test]
    async fn what_is_in_use_cannot_be_claimed() {
        let folder = tempfile::tempdir().unwrap();
        let locks = locks(&folder);
        let (one, two) = (locks.in_use("t").await.unwrap(), locks.in_use("t").await.unwrap());
        assert!(is_taken(&locks.claim("t").unwrap_err()));
        drop(one);
        assert!(is_taken(&locks.claim("t").unwrap_err()), "the second user is still there");
        drop(two);
        drop(locks.claim("t").unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn what_killed_processes_left_goes_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let locks = locks(&folder);
        let used = locks.in_use("used").await.unwrap();
        let stale = folder.path().join("locks/0123456789abcdef-dead.lock");
        fs::write(&stale, "").unwrap();
        remove_stale(&locks.folder);
        assert!(!stale.exists() && used.path.exists());
        drop(used);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        remove_stale(&locks.folder);
    }

    #[test]
    fn a_folder_of_somebody_else_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/", folder.path().join("locks")).unwrap();
        assert!(locks(&folder).claim("t").is_err());
    }

    #[test]
    fn two_ways_to_one_socket_are_one_engine() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, link) = (folder.path().join("s"), folder.path().join("l"));
        fs::write(&socket, "").unwrap();
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        let engine = |path: &Path| Locks::in_folder(PathBuf::new(), &format!("unix://{}", path.display())).engine;
        assert_eq!(engine(&socket), engine(&link));
        assert_ne!(engine(&socket), engine(folder.path()));
    }
}
