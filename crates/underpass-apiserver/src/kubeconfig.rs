//! The file by which kubectl and every other client finds this server.
//!
//! It is written when the server can be used and taken away at the end. A file that holds anything else than our one cluster is
//! somebody's own kubeconfig: it is never replaced. The check reads the names in it and not a comment of ours, since
//! `kubectl config` rewrites the file and drops comments.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::private_file;

/// The name of our cluster, user and context in a kubeconfig.
const NAME: &str = "underpass";

#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    #[error("cannot look at the kubeconfig {}", path.display())]
    Inspect { path: PathBuf, source: io::Error },
    #[error("the kubeconfig {} is not a regular file: name another path", path.display())]
    NotAFile { path: PathBuf },
    #[error(
        "the kubeconfig {} exists and describes other clusters: name another path, nothing was changed", path.display()
    )]
    Foreign { path: PathBuf },
    #[error("cannot write the kubeconfig {}; see to its folder, or name another path", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot remove the kubeconfig {}", path.display())]
    Remove { path: PathBuf, source: io::Error },
}

/// The text of a kubeconfig for one server; `server` is its URL.
pub fn render(server: &str, ca_pem: &str, token: &str) -> String {
    let authority = STANDARD.encode(ca_pem);
    let server = serde_json::Value::from(server);
    let token = serde_json::Value::from(token);
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: {NAME}
  cluster:
    server: {server}
    certificate-authority-data: {authority}
users:
- name: {NAME}
  user:
    token: {token}
contexts:
- name: {NAME}
  context:
    cluster: {NAME}
    user: {NAME}
current-context: {NAME}
"
    )
}

/// Writes the file whole, durably and for its owner only; it takes the place of an older one of ours and of nothing else.
pub fn write(path: &Path, text: &str) -> Result<(), KubeconfigError> {
    if let Some(present) = read_regular(path)?
        && !is_ours(&present)
    {
        return Err(KubeconfigError::Foreign { path: path.into() });
    }
    private_file::write(path, text).map_err(|source| KubeconfigError::Write { path: path.into(), source })
}

/// Removes the file if it still says what was written; otherwise it belongs to somebody else now. Says whether it did.
pub fn remove(path: &Path, text: &str) -> Result<bool, KubeconfigError> {
    if read_regular(path)?.as_deref() != Some(text) {
        return Ok(false);
    }
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(KubeconfigError::Remove { path: path.into(), source }),
    }
}

#[derive(Deserialize)]
struct Names {
    clusters: Vec<Named>,
    users: Vec<Named>,
    contexts: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

fn is_ours(text: &str) -> bool {
    let only_ours = |entries: &[Named]| entries.iter().all(|entry| entry.name == NAME);
    text.trim().is_empty()
        || serde_saphyr::from_str::<Names>(text)
            .is_ok_and(|names| only_ours(&names.clusters) && only_ours(&names.users) && only_ours(&names.contexts))
}

/// The text of a regular file, `None` if there is nothing; symbolic links are not followed.
fn read_regular(path: &Path) -> Result<Option<String>, KubeconfigError> {
    let inspect = |source| KubeconfigError::Inspect { path: path.into(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(inspect(error)),
        Ok(metadata) if !metadata.is_file() => return Err(KubeconfigError::NotAFile { path: path.into() }),
        Ok(_) => {}
    }
    fs::read(path).map(|bytes| Some(String::from_utf8_lossy(&bytes).into_owned())).map_err(inspect)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_rendered_is_a_kubeconfig_of_ours() {
        let text = render("https://127.0.0.1:6443", "-----BEGIN", "abc\"def");
        let parsed: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(parsed["clusters"][0]["cluster"]["server"], "https://127.0.0.1:6443");
        assert_eq!(parsed["clusters"][0]["cluster"]["certificate-authority-data"], STANDARD.encode("-----BEGIN"));
        assert_eq!(parsed["users"][0]["user"]["token"], "abc\"def");
        assert_eq!(parsed["current-context"], parsed["contexts"][0]["name"]);
        assert!(is_ours(&text));
    }

    #[test]
    fn written_private_replaced_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let (first, second) = (render("https://a", "", "1"), render("https://b", "", "2"));
        write(&path, &first).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        write(&path, &second).unwrap();
        assert!(!remove(&path, &first).unwrap(), "a newer server owns the file now");
        assert!(remove(&path, &second).unwrap());
        assert!(!remove(&path, &second).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_kubeconfig_with_other_clusters_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let merged = render("https://a", "", "1").replace("users:", "- name: work\n  cluster: {}\nusers:");
        for foreign in [merged.as_str(), "not: a kubeconfig", "# notes\n- to self"] {
            fs::write(&path, foreign).unwrap();
            assert!(matches!(write(&path, "ours"), Err(KubeconfigError::Foreign { .. })), "{foreign}");
            assert_eq!(fs::read_to_string(&path).unwrap(), foreign);
        }
    }

    #[test]
    fn ours_is_recognised_after_kubectl_rewrote_it() {
        let rewritten = "apiVersion: v1\nclusters:\n- cluster: {server: 'https://a'}\n  name: underpass\ncontexts:\n\
                         - context: {cluster: underpass, namespace: x, user: underpass}\n  name: underpass\n\
                         current-context: underpass\nkind: Config\nusers:\n- name: underpass\n  user: {token: abc}\n";
        assert!(is_ours(rewritten));
        assert!(is_ours("\n"), "an empty file was made for us");
    }

    #[test]
    fn links_and_folders_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        fs::write(&target, "").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        for path in [link.as_path(), folder.path(), Path::new("/dev/null")] {
            assert!(matches!(write(path, "text"), Err(KubeconfigError::NotAFile { .. })));
            assert!(matches!(remove(path, "text"), Err(KubeconfigError::NotAFile { .. })));
        }
        assert_eq!(fs::read_to_string(&target).unwrap(), "");
    }
}
