//! Files with secrets: readable by their owner only, and either whole or not there.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const OWNER_READ_WRITE: u32 = 0o600;
const OWNER_ALL: u32 = 0o700;

/// Makes a folder, and those above it, that only its owner enters; an existing one loses what others may do there.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(OWNER_ALL).create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(OWNER_ALL))
}

/// Replaces the file as a whole and durably: a reader, or the next start after a crash, sees the old text or the new one.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    let folder = folder_of(path);
    let draft = draft_beside(path)?;
    let written = write_new(&draft, text).and_then(|()| fs::rename(&draft, path));
    if let Err(error) = written {
        // The first error matters; a draft that cannot be removed either is private and harmless.
        let _ = fs::remove_file(&draft);
        return Err(error);
    }
    File::open(folder)?.sync_all()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn draft_beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file"))?;
    Ok(folder_of(path).join(format!(".{}.{:016x}", name.to_string_lossy(), rand::random::<u64>())))
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(OWNER_READ_WRITE).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_replaced_file_is_private_and_leaves_no_draft() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        write(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(mode(&path), 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_leaves_no_draft() {
        let folder = tempfile::tempdir().unwrap();
        let occupied = folder.path().join("folder");
        fs::create_dir(&occupied).unwrap();
        assert!(write(&occupied, "text").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_is_closed_to_others() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("pki");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        make_folder(&folder).unwrap();
        assert_eq!(mode(&folder), 0o700);
    }
}
