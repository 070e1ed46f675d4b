//! Temporary folders whose owner was killed. Each says in its name whose it is, from the moment it exists.
//!
//! A folder goes only when both say that its owner is dead: no process has this pid and started at this time, and nobody holds the lock
//! inside. The name alone would be wrong for an owner in another container that shares the folder, the lock alone for one that has
//! not come to take it yet.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use tracing::{info, warn};
use underpass_operator::start_of;

const PREFIX: &str = "underpass-ephemeral-";

/// Who made a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    pid: u32,
    /// In ticks since the machine started, so that a later process with the same pid is another owner.
    started: u64,
}

/// How the name of a folder of this process begins.
pub(crate) fn prefix() -> String {
    let pid = std::process::id();
    format!("{PREFIX}{pid}-{}-", start_of(pid).unwrap_or_default())
}

/// Removes the folders of dead owners. A courtesy: what cannot be read or removed stays.
pub(crate) fn remove(place: &Path) {
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let Some(owner) = name.to_str().and_then(Owner::of) else { continue };
        if !entry.metadata().is_ok_and(|metadata| is_our_folder(&metadata)) || owner.lives() || is_locked(&path) {
            continue;
        }
        match std::fs::remove_dir_all(&path) {
            Ok(()) => info!(path = %path.display(), pid = owner.pid, "removed what a killed process had left"),
            // Another start may be at it just now.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => warn!(path = %path.display(), %error, "what a killed process has left cannot be removed"),
        }
    }
}

impl Owner {
    fn of(folder: &str) -> Option<Self> {
        let mut parts = folder.strip_prefix(PREFIX)?.splitn(3, '-');
        Some(Self { pid: parts.next()?.parse().ok()?, started: parts.next()?.parse().ok()? })
    }

    fn lives(self) -> bool {
        start_of(self.pid) == Some(self.started)
    }
}

/// Not a link, and not another user's.
fn is_our_folder(metadata: &Metadata) -> bool {
    metadata.is_dir() && metadata.uid() == geteuid().as_raw()
}

fn is_locked(folder: &Path) -> bool {
    let Ok(lock) = File::open(folder.join("lock")) else { return false };
    flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_whose_it_is() {
        let own = Owner::of(&format!("{}abc", prefix())).unwrap();
        assert!(own.pid == std::process::id() && own.lives(), "{own:?}");
        assert!(!Owner { started: own.started + 1, ..own }.lives(), "a later process with the same pid");
        for other in ["underpass-abc", "underpass-ephemeral-", "underpass-ephemeral-7", "underpass-ephemeral-7-x-abc"] {
            assert_eq!(Owner::of(other), None, "{other}");
        }
    }

    #[test]
    fn only_folders_of_dead_owners_go() {
        let place = tempfile::tempdir().unwrap();
        let make = |name: String| {
            let path = place.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("lock"), "").unwrap();
            path
        };
        let dead = make(format!("{PREFIX}{}-0-dead", u32::MAX));
        let live = make(format!("{}live", prefix()));
        let foreign = make("underpass-notes".to_owned());
        let elsewhere = make(format!("{PREFIX}{}-0-elsewhere", u32::MAX));
        let held = File::open(elsewhere.join("lock")).unwrap();
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        remove(place.path());
        let there = [&dead, &live, &foreign, &elsewhere].map(|path| path.exists());
        assert_eq!(there, [false, true, true, true]);
        drop(held);
        remove(place.path());
        assert!(!elsewhere.exists(), "once its lock is let go");
    }
}
