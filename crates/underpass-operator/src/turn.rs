//! Whose turn it is in a folder: that of controllers that work there, or that of a watchdog that cleans up after some that were killed.
//!
//! A file says who was the last to take it. Controllers write themselves in before they look at anything; a watchdog cleans up only while
//! the process that it has watched stands there, and nobody writes meanwhile: a lock is held for that long. So either all is removed
//! before the next ones look, or they were first, and everything is theirs, however late the watchdog comes.
//!
//! A lock that controllers hold while they work was rejected: some that hang would keep those from working that have the lease after them.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio::time::Instant;
use tracing::info;

use crate::pairs::start_of;

const FILE: &str = "turn";
const TRY_AGAIN: Duration = Duration::from_millis(50);
/// Whoever watches wonders why nothing happens.
const WORD: Duration = Duration::from_secs(1);
/// An engine needs seconds for a stubborn container, and a watchdog tries several times.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, thiserror::Error)]
pub enum TurnError {
    #[error("cannot write down in {0} who works there")]
    File(PathBuf, #[source] io::Error),
    #[error(
        "{who} has not removed within {} seconds what was made in {folder}: see that the container engine answers, and start again; \
         what is left then is found", PATIENCE.as_secs()
    )]
    TooLong { who: String, folder: PathBuf },
}

/// That of a watchdog, until this value goes.
#[derive(Debug)]
pub struct Turn {
    _file: Option<File>,
}

/// For this process, as soon as no watchdog cleans up there.
pub async fn take(folder: &Path) -> Result<(), TurnError> {
    let cannot = |error| TurnError::File(folder.to_owned(), error);
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(cannot)?;
    let mut file = locked(folder, open(folder).map_err(cannot)?).await?;
    write(&mut file, &this_process()).map_err(cannot)
}

/// For who cleans up after this process; `None` when another has had its turn since. A folder that is gone is nobody's.
pub async fn after(folder: &Path, pid: u32, start: u64) -> Result<Option<Turn>, TurnError> {
    let cannot = |error| TurnError::File(folder.to_owned(), error);
    let file = match open(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Turn { _file: None })),
        file => file.map_err(cannot)?,
    };
    let mut file = locked(folder, file).await?;
    let last = read(&mut file).map_err(cannot)?;
    if !last.is_empty() && last != line(pid, start) {
        return Ok(None);
    }
    write(&mut file, &this_process()).map_err(cannot)?;
    Ok(Some(Turn { _file: Some(file) }))
}

/// Once more, for a watchdog that let others come first; `None` when another has had its turn since.
pub async fn again(folder: &Path) -> Result<Option<Turn>, TurnError> {
    let pid = std::process::id();
    after(folder, pid, start_of(pid).unwrap_or_default()).await
}

fn open(folder: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(folder.join(FILE))
}

async fn locked(folder: &Path, mut file: File) -> Result<File, TurnError> {
    let (began, mut told) = (Instant::now(), false);
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) => {}
            Err(error) => return Err(TurnError::File(folder.to_owned(), error.into())),
        }
        if began.elapsed() > PATIENCE {
            return Err(TurnError::TooLong { who: holder(&mut file), folder: folder.to_owned() });
        }
        if began.elapsed() > WORD && !std::mem::replace(&mut told, true) {
            info!("waiting until {} has removed what that one had made", holder(&mut file));
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

fn holder(file: &mut File) -> String {
    let text = read(file).unwrap_or_default();
    let pid = text.split(' ').next().filter(|pid| !pid.is_empty());
    let pid = pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
    format!("the watchdog{pid} of an underpass that was killed")
}

fn this_process() -> String {
    let pid = std::process::id();
    line(pid, start_of(pid).unwrap_or_default())
}

fn line(pid: u32, start: u64) -> String {
    format!("{pid} {start}\n")
}

fn read(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

fn write(file: &mut File, line: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEAD: (u32, u64) = (1, 7);

    fn dead_in(folder: &Path) {
        std::fs::write(folder.join(FILE), line(DEAD.0, DEAD.1)).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_next_waits_until_all_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        dead_in(folder.path());
        let turn = after(folder.path(), DEAD.0, DEAD.1).await.unwrap().expect("nobody else has come");
        let next = take(folder.path());
        tokio::pin!(next);
        assert!(tokio::time::timeout(WORD * 2, &mut next).await.is_err());
        drop(turn);
        next.await.unwrap();
        let late = after(folder.path(), DEAD.0, DEAD.1).await.unwrap();
        assert!(late.is_none(), "what stands there now is another's");
    }

    #[tokio::test(start_paused = true)]
    async fn who_lets_others_come_first_goes_on_only_when_nobody_came() {
        let folder = tempfile::tempdir().unwrap();
        dead_in(folder.path());
        drop(after(folder.path(), DEAD.0, DEAD.1).await.unwrap().expect("nobody else has come"));
        drop(again(folder.path()).await.unwrap().expect("still nobody"));
        dead_in(folder.path());
        assert!(again(folder.path()).await.unwrap().is_none(), "somebody came");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let _turn = after(folder.path(), DEAD.0, DEAD.1).await.unwrap().expect("nobody has been there");
        let error = take(folder.path()).await.unwrap_err().to_string();
        let pid = format!("process {}", std::process::id());
        assert!(error.contains(&pid) && error.contains("120 seconds"), "{error}");
    }

    #[tokio::test]
    async fn a_folder_that_is_gone_is_nobodys() {
        let folder = tempfile::tempdir().unwrap().path().join("gone");
        assert!(after(&folder, DEAD.0, DEAD.1).await.unwrap().is_some());
        assert!(!folder.exists(), "nothing is made anew for the dead");
    }
}
