//! What a pair leaves on disk, in `tunnels/UID`: its secrets, what was started, and what its server proxy said.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use underpass_plan::tunnel_proxy::StartedClient;
use underpass_tunnel::PairSecrets;

use crate::last_words::last_words;

const SECRETS: &str = "pair.json";
const RECORD: &str = "record.json";

#[derive(Debug, Clone)]
pub(super) struct Folder {
    path: PathBuf,
}

/// What was started, so that another process of the controllers knows it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    pub(super) client: Option<StartedClient>,
    pub(super) server: Option<ServerRecord>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ServerRecord {
    pub(super) pid: u32,
    /// Ticks since boot: a process id alone comes back.
    pub(super) start: u64,
    pub(super) control_port: u16,
    pub(super) started_at: Timestamp,
}

impl Folder {
    /// `None` for a uid that could lead out of `root`.
    pub(super) fn of(root: &Path, uid: &str) -> Option<Self> {
        let plain = !uid.is_empty() && uid.chars().all(|char| char.is_ascii_alphanumeric() || char == '-');
        plain.then(|| Self { path: root.join(uid) })
    }

    pub(super) fn make(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path)
    }

    pub(super) fn exists(&self) -> bool {
        self.path.exists()
    }

    /// New ones, in place of those of an earlier pair.
    pub(super) fn write_secrets(&self, secrets: &PairSecrets) -> io::Result<()> {
        self.write(SECRETS, &serde_json::to_vec(secrets)?)
    }

    pub(super) fn secrets(&self) -> io::Result<PairSecrets> {
        Ok(serde_json::from_slice(&fs::read(self.path.join(SECRETS))?)?)
    }

    /// A record that cannot be read is no record: what it told of is found by its label, and goes.
    pub(super) fn record(&self) -> Record {
        let bytes = fs::read(self.path.join(RECORD)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    pub(super) fn write_record(&self, record: &Record) -> io::Result<()> {
        self.write(RECORD, &serde_json::to_vec(record)?)
    }

    pub(super) fn stdout(&self) -> PathBuf {
        self.path.join("server.out")
    }

    pub(super) fn stderr(&self) -> PathBuf {
        self.path.join("server.err")
    }

    /// An empty file that nobody else can read.
    pub(super) fn create(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
    }

    /// What the server proxy complained of last.
    pub(super) fn last_words(&self) -> Option<String> {
        let text = fs::read(self.stderr()).ok()?;
        last_words(&String::from_utf8_lossy(&text))
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// All at once or not at all: a reader never sees half of it.
    fn write(&self, name: &str, contents: &[u8]) -> io::Result<()> {
        let new = self.path.join(format!("{name}.new"));
        let mut file = self.create(&new)?;
        file.write_all(contents)?;
        fs::rename(new, self.path.join(name))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn nobody_else_can_read_what_is_kept() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::of(&root.path().join("tunnels"), "u-1").unwrap();
        folder.make().unwrap();
        folder.write_secrets(&PairSecrets::generate().unwrap()).unwrap();
        folder.write_record(&Record::default()).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder.path), 0o700);
        for entry in fs::read_dir(&folder.path).unwrap() {
            assert_eq!(mode(&entry.unwrap().path()), 0o600);
        }
        folder.secrets().unwrap();
        folder.remove().unwrap();
        assert!(!folder.exists());
        folder.remove().unwrap();
    }

    #[test]
    fn a_uid_cannot_lead_elsewhere() {
        for uid in ["", "..", "a/b", "/etc", "."] {
            assert!(Folder::of(Path::new("/r"), uid).is_none(), "{uid}");
        }
    }
}
