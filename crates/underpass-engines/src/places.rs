//! Where the engines' own clients look for an engine.

use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

use crate::engine::EngineKind;
use crate::{connections, contexts};

/// A place where an engine may listen, and who says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub source: String,
    pub address: String,
    /// Why nothing can be there, where that is known from who named it; the address is where its own was looked for then.
    unusable: Option<Refusal>,
}

/// An address that only the engine's own client can use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "ssh:// is not supported; forward the socket (ssh -L ./engine.sock:/var/run/docker.sock HOST) and name that"
    )]
    Ssh,
    #[error("npipe:// exists on Windows only")]
    NamedPipe,
    #[error(
        "TLS is asked for, which is not supported; use a socket of this host, or tcp:// without TLS on a network that you trust"
    )]
    Tls,
    #[error("there is no such socket")]
    NoSocket,
    #[error(
        "no such context can be read there; name one that `docker context ls` shows (DOCKER_CONTEXT, `docker context use`)"
    )]
    NoContext,
    #[error(
        "no such connection can be read there; name one that `podman system connection list` shows, or a socket with CONTAINER_HOST"
    )]
    NoConnection,
    #[error("it is neither unix:// nor tcp://")]
    Unknown,
}

/// In the order in which the first that works is taken. What the user named is the only place then: an engine that was not meant would
/// get networks and containers that nobody finds again. Without a name: Podman's default connection, then rootless before rootful.
pub fn candidates(forced: Option<EngineKind>, variable: impl Fn(&str) -> Option<String>) -> Vec<Candidate> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let named: Vec<Candidate> = [EngineKind::Docker, EngineKind::Podman]
        .into_iter()
        .filter(|kind| forced.is_none_or(|forced| forced == *kind))
        .filter_map(|kind| named(kind, &set))
        .collect();
    if !named.is_empty() {
        return named;
    }
    let connection = connections::default(&set).filter(|_| forced != Some(EngineKind::Docker));
    let runtime = set("XDG_RUNTIME_DIR");
    let rootless = |path: &str| runtime.as_ref().map(|folder| format!("{folder}/{path}"));
    let defaults = [
        (EngineKind::Docker, "rootless Docker", rootless("docker.sock")),
        (EngineKind::Podman, "rootless Podman", rootless("podman/podman.sock")),
        (EngineKind::Docker, "Docker", Some("/var/run/docker.sock".to_owned())),
        (EngineKind::Podman, "Podman", Some("/run/podman/podman.sock".to_owned())),
    ];
    let wanted = defaults.into_iter().filter(|(kind, ..)| forced.is_none_or(|forced| forced == *kind));
    let defaults = wanted.filter_map(|(_, source, path)| Some(Candidate::new(source, format!("unix://{}", path?))));
    connection.into_iter().chain(defaults).collect()
}

fn named(kind: EngineKind, set: &impl Fn(&str) -> Option<String>) -> Option<Candidate> {
    match kind {
        EngineKind::Docker => by_variable("DOCKER_HOST", set).or_else(|| contexts::current(set)),
        EngineKind::Podman => by_variable("CONTAINER_HOST", set).or_else(|| connections::named(set)),
    }
}

fn by_variable(name: &str, set: &impl Fn(&str) -> Option<String>) -> Option<Candidate> {
    set(name).map(|address| Candidate::new(name, address))
}

impl Candidate {
    pub fn new(source: impl Into<String>, address: impl Into<String>) -> Self {
        Self { source: source.into(), address: address.into(), unusable: None }
    }

    pub(crate) fn unusable(source: String, address: String, why: Refusal) -> Self {
        Self { source, address, unusable: Some(why) }
    }

    /// Whether a connection can be tried at all.
    pub fn check(&self, tls: bool) -> Result<(), Refusal> {
        if let Some(why) = &self.unusable {
            return Err(why.clone());
        }
        if let Some(path) = self.path() {
            let socket = std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
            return if socket { Ok(()) } else { Err(Refusal::NoSocket) };
        }
        match self.address.split_once("://") {
            Some(("tcp" | "http", _)) if !tls => Ok(()),
            Some(("tcp" | "http" | "https", _)) => Err(Refusal::Tls),
            Some(("ssh", _)) => Err(Refusal::Ssh),
            Some(("npipe", _)) => Err(Refusal::NamedPipe),
            _ => Err(Refusal::Unknown),
        }
    }

    /// Host and port of tcp://.
    pub fn authority(&self) -> &str {
        let rest = self.address.split_once("://").map_or(self.address.as_str(), |(_, rest)| rest);
        rest.trim_end_matches('/')
    }

    /// The socket, if it is one of this host.
    pub fn path(&self) -> Option<PathBuf> {
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

    fn addresses(forced: Option<EngineKind>, variables: &[(&str, &str)]) -> Vec<String> {
        let lookup = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        candidates(forced, lookup).into_iter().map(|candidate| candidate.address).collect()
    }

    #[test]
    fn what_the_user_named_is_the_only_place() {
        let both = [("CONTAINER_HOST", "unix:///c"), ("DOCKER_HOST", "tcp://d:1"), ("XDG_RUNTIME_DIR", "/run/user/7")];
        assert_eq!(addresses(None, &both), ["tcp://d:1", "unix:///c"]);
        assert_eq!(addresses(Some(EngineKind::Podman), &both), ["unix:///c"]);
        assert_eq!(addresses(Some(EngineKind::Docker), &both), ["tcp://d:1"]);
    }

    #[test]
    fn without_a_name_rootless_comes_before_rootful() {
        let defaults = [
            "unix:///run/user/7/docker.sock",
            "unix:///run/user/7/podman/podman.sock",
            "unix:///var/run/docker.sock",
            "unix:///run/podman/podman.sock",
        ];
        let variables = [("XDG_RUNTIME_DIR", "/run/user/7"), ("DOCKER_HOST", "")];
        assert_eq!(addresses(None, &variables), defaults);
        assert_eq!(addresses(Some(EngineKind::Podman), &variables), [defaults[1], defaults[3]]);
        assert_eq!(addresses(None, &[]).len(), 2);
    }

    #[test]
    fn a_choice_that_leads_nowhere_hides_the_defaults() {
        let choices = [("DOCKER_CONTEXT", "gone"), ("HOME", "/nowhere"), ("XDG_RUNTIME_DIR", "/run/user/7")];
        assert_eq!(addresses(None, &choices), ["/nowhere/.docker/contexts/meta"]);
        let choices = [("CONTAINER_CONNECTION", "gone"), ("HOME", "/nowhere"), ("XDG_RUNTIME_DIR", "/run/user/7")];
        assert_eq!(addresses(None, &choices), ["/nowhere/.config/containers/podman-connections.json"]);
        let named = [("CONTAINER_HOST", "unix:///c"), ("CONTAINER_CONNECTION", "gone")];
        assert_eq!(addresses(None, &named), ["unix:///c"]);
    }

    #[test]
    fn the_default_connection_is_the_first_place_without_a_name() {
        let config = tempfile::tempdir().unwrap();
        std::fs::create_dir(config.path().join("containers")).unwrap();
        let known = r#"{"Connection":{"Default":"near","Connections":{"near":{"URI":"unix:///near"}}}}"#;
        std::fs::write(config.path().join("containers/podman-connections.json"), known).unwrap();
        let variables = [("XDG_CONFIG_HOME", config.path().to_str().unwrap())];
        let defaults = ["unix:///var/run/docker.sock", "unix:///run/podman/podman.sock"];
        assert_eq!(addresses(None, &variables), ["unix:///near", defaults[0], defaults[1]]);
        assert_eq!(addresses(Some(EngineKind::Docker), &variables), [defaults[0]]);
    }

    #[test]
    fn a_variable_of_the_other_engine_does_not_hide_the_forced_one() {
        assert_eq!(
            addresses(Some(EngineKind::Podman), &[("DOCKER_HOST", "unix:///d")]),
            ["unix:///run/podman/podman.sock"]
        );
    }

    #[test]
    fn only_what_can_be_connected_to_is_tried() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("engine.sock");
        let candidate = Candidate::new("test", format!("unix://{}", path.display()));
        assert_eq!(candidate.check(false), Err(Refusal::NoSocket));
        std::fs::write(&path, "a file").unwrap();
        assert_eq!(candidate.check(false), Err(Refusal::NoSocket));
        std::fs::remove_file(&path).unwrap();
        let _listener = UnixListener::bind(&path).unwrap();
        assert_eq!(candidate.check(true), Ok(()), "TLS is a matter of tcp");
        let check = |address: &str, tls| Candidate::new("test", address).check(tls);
        assert_eq!(check("ssh://host", false), Err(Refusal::Ssh));
        assert_eq!(check("npipe:////./pipe/docker_engine", false), Err(Refusal::NamedPipe));
        assert_eq!(check("tcp://host:2375", false), Ok(()));
        assert_eq!(check("tcp://host:2376", true), Err(Refusal::Tls));
        assert_eq!(check("host:2375", false), Err(Refusal::Unknown));
    }
}
