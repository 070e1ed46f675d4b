//! Where the engines' own clients look for an engine.

use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

/// A place where an engine may listen, and who says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub source: &'static str,
    pub address: String,
}

/// What stands at a candidate's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    Socket,
    /// Not a path of this host (tcp://, ssh://): only a connection could tell.
    Elsewhere,
    Nothing,
}

/// In the order in which the first that works is taken: what the user named, then rootless, then rootful defaults.
pub fn candidates(variable: impl Fn(&str) -> Option<String>) -> Vec<Candidate> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let mut list = Vec::new();
    let mut add = |source, address: Option<String>| list.extend(address.map(|address| Candidate { source, address }));
    add("DOCKER_HOST", set("DOCKER_HOST"));
    add("CONTAINER_HOST", set("CONTAINER_HOST"));
    add("rootless Podman", set("XDG_RUNTIME_DIR").map(|folder| format!("unix://{folder}/podman/podman.sock")));
    add("Podman", Some("unix:///run/podman/podman.sock".to_owned()));
    add("Docker", Some("unix:///var/run/docker.sock".to_owned()));
    list
}

impl Candidate {
    pub fn look(&self) -> Found {
        match self.path() {
            None => Found::Elsewhere,
            Some(path) if std::fs::metadata(&path).is_ok_and(|meta| meta.file_type().is_socket()) => Found::Socket,
            Some(_) => Found::Nothing,
        }
    }

    fn path(&self) -> Option<PathBuf> {
        match self.address.strip_prefix("unix://") {
            Some(path) => Some(PathBuf::from(path)),
            None => self.address.starts_with('/').then(|| PathBuf::from(&self.address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn addresses(variables: &[(&str, &str)]) -> Vec<String> {
        let lookup = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        candidates(lookup).into_iter().map(|candidate| candidate.address).collect()
    }

    #[test]
    fn what_the_user_named_comes_first() {
        assert_eq!(
            addresses(&[
                ("CONTAINER_HOST", "unix:///c"),
                ("DOCKER_HOST", "tcp://d:1"),
                ("XDG_RUNTIME_DIR", "/run/user/7")
            ]),
            [
                "tcp://d:1",
                "unix:///c",
                "unix:///run/user/7/podman/podman.sock",
                "unix:///run/podman/podman.sock",
                "unix:///var/run/docker.sock",
            ]
        );
    }

    #[test]
    fn an_empty_variable_is_no_variable() {
        assert_eq!(addresses(&[("DOCKER_HOST", "")]).len(), 2);
    }

    #[test]
    fn only_a_socket_counts_as_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("engine.sock");
        let candidate = Candidate { source: "test", address: format!("unix://{}", path.display()) };
        assert_eq!(candidate.look(), Found::Nothing);
        std::fs::write(&path, "a file").unwrap();
        assert_eq!(candidate.look(), Found::Nothing);
        std::fs::remove_file(&path).unwrap();
        let _listener = UnixListener::bind(&path).unwrap();
        assert_eq!(candidate.look(), Found::Socket);
        assert_eq!(Candidate { source: "test", address: "ssh://host".into() }.look(), Found::Elsewhere);
    }
}
