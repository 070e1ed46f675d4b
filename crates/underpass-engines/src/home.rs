//! The engine that the things of a data directory stand in, written down before the first of them is made: another engine knows nothing
//! of them, and would say that they are gone.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::engine::{Description, EngineKind};
use crate::places::Candidate;

const FILE: &str = "engine.json";

/// Where it is written down.
#[derive(Debug, Clone)]
pub struct Home {
    file: PathBuf,
}

/// An engine, as it was written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub kind: EngineKind,
    pub address: String,
}

/// The engine that is found is not the one that the things stand in.
#[derive(Debug, thiserror::Error)]
#[error(
    "what was made for the objects of this data directory is in {first}{unseen}, and the engine that is found now is {found}: nothing is \
     touched, because this one cannot tell what became of it. Go on with the first one: {how}. If that engine is gone for good, \
     remove {file}, which remembers it"
)]
pub struct Elsewhere {
    first: Place,
    found: Description,
    how: String,
    /// Why it cannot be asked, if so.
    unseen: String,
    file: String,
}

impl Home {
    pub fn in_folder(folder: &Path) -> Self {
        Self { file: folder.join(FILE) }
    }

    /// The engine in which something may stand. A file that cannot be read tells of none.
    pub fn place(&self) -> Option<Place> {
        serde_json::from_slice(&fs::read(&self.file).ok()?).ok()
    }

    /// Whether nothing was ever made in an engine, or everything is gone again. What cannot be known is not so.
    pub fn is_nowhere(&self) -> bool {
        self.file.try_exists().is_ok_and(|exists| !exists)
    }

    /// Nothing stands anywhere any more.
    pub fn forget(&self) -> io::Result<()> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// All at once or not at all, and before anything is made.
    pub(crate) fn write(&self, engine: &Description) -> io::Result<()> {
        let place = Place { kind: engine.kind, address: engine.address.clone() };
        if self.place().as_ref() == Some(&place) {
            return Ok(());
        }
        if let Some(folder) = self.file.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let new = self.file.with_extension("json.new");
        fs::write(&new, serde_json::to_vec(&place)?)?;
        fs::rename(new, &self.file)
    }

    pub(crate) fn elsewhere(&self, first: Place, found: &Description, unseen: Option<String>) -> Elsewhere {
        let (word, variable) = match first.kind {
            EngineKind::Docker => ("docker", "DOCKER_HOST"),
            EngineKind::Podman => ("podman", "CONTAINER_HOST"),
        };
        Elsewhere {
            how: format!("{variable}={} and --container-runtime {word}", first.address),
            unseen: unseen.map(|why| format!(" (which cannot be asked now: {why})")).unwrap_or_default(),
            file: self.file.display().to_string(),
            found: found.clone(),
            first,
        }
    }
}

impl Place {
    /// One socket may have two names.
    pub(crate) fn is(&self, found: &Description) -> bool {
        let socket = |address: &str| Candidate::new("", address).path().and_then(|path| path.canonicalize().ok());
        let same_socket = || socket(&self.address).is_some_and(|own| socket(&found.address) == Some(own));
        self.kind == found.kind && (self.address == found.address || same_socket())
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}", self.kind, self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(kind: EngineKind, address: String) -> Description {
        Description { kind, version: "1".into(), address, because: "test".into() }
    }

    #[test]
    fn an_engine_is_known_again_by_every_name_of_its_socket() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, link) = (folder.path().join("e.sock"), folder.path().join("link"));
        fs::write(&socket, "").unwrap();
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        let address = |path: &Path| format!("unix://{}", path.display());
        let home = Home::in_folder(&folder.path().join("data"));
        assert_eq!((home.place(), home.is_nowhere()), (None, true));
        home.write(&engine(EngineKind::Docker, address(&socket))).unwrap();
        assert!(!home.is_nowhere());
        let place = home.place().unwrap();
        assert!(place.is(&engine(EngineKind::Docker, address(&link))));
        assert!(!place.is(&engine(EngineKind::Podman, address(&socket))));
        assert!(!place.is(&engine(EngineKind::Docker, address(folder.path()))));
        home.forget().unwrap();
        home.forget().unwrap();
        assert_eq!((home.place(), home.is_nowhere()), (None, true));
        fs::write(folder.path().join("data").join(FILE), "half of i").unwrap();
        assert_eq!((home.place(), home.is_nowhere()), (None, false));
    }
}
