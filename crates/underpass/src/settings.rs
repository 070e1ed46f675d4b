//! What the words on the command line mean, given the environment.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;

use underpass_engines::EngineKind;

use crate::args::{ClientFlags, ContainerRuntime, EngineFlags, ServerFlags, TextOrJson};

/// An embedded API server, decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerSettings {
    pub(crate) place: Place,
    /// Whether objects outlive the process.
    pub(crate) durable: bool,
    /// How many events watches can resume over, where not as many as by default.
    pub(crate) keep_events: Option<usize>,
    /// Where the kubeconfig goes, when it does not go into the data directory.
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) listen: SocketAddr,
    pub(crate) output: TextOrJson,
}

/// Where the lock, the kubeconfig and (of a durable server) keys and objects are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Folder(PathBuf),
    Temporary,
}

impl ServerSettings {
    pub(crate) fn resolve(flags: ServerFlags) -> anyhow::Result<Self> {
        let place = match flags.data_dir {
            Some(folder) => Place::Folder(std::path::absolute(folder)?),
            None if flags.ephemeral => Place::Temporary,
            None => Place::Folder(default_data_dir()?),
        };
        let kubeconfig = flags.kubeconfig.map(std::path::absolute).transpose()?;
        Ok(Self {
            place,
            durable: !flags.ephemeral,
            keep_events: flags.keep_events,
            kubeconfig,
            listen: flags.listen,
            output: flags.output,
        })
    }
}

impl EngineFlags {
    /// The engine that was asked for; `None`: whichever is found first.
    pub(crate) fn kind(&self) -> Option<EngineKind> {
        self.container_runtime.map(|runtime| match runtime {
            ContainerRuntime::Docker => EngineKind::Docker,
            ContainerRuntime::Podman => EngineKind::Podman,
        })
    }
}

pub(crate) fn default_data_dir() -> anyhow::Result<PathBuf> {
    data_dir_from(|name| std::env::var_os(name).map(PathBuf::from))
        .context("neither XDG_STATE_HOME nor HOME is set: say with --data-dir where to keep objects and keys")
}

/// Where controllers keep what they need for tunnels, when there is no embedded server beside them.
pub(crate) fn controllers_folder(said: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    match said {
        Some(folder) => Ok(std::path::absolute(folder)?),
        None => Ok(default_data_dir()?.join("controllers")),
    }
}

/// Which kubeconfig names the server to talk to: the one that was said, else the environment's, else that of an `up` on the default
/// data directory.
pub(crate) fn kubeconfig(flags: ClientFlags) -> anyhow::Result<PathBuf> {
    kubeconfig_from(flags, |name| std::env::var_os(name).map(PathBuf::from))
        .context("neither KUBECONFIG nor XDG_STATE_HOME nor HOME is set: say with --kubeconfig which server to ask")
}

fn kubeconfig_from(flags: ClientFlags, variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let said = flags.kubeconfig.or_else(|| variable("KUBECONFIG").filter(|path| !path.as_os_str().is_empty()));
    said.or_else(|| data_dir_from(variable).map(|folder| kubeconfig_in(&folder)))
}

/// Which kubeconfig names the cluster to install on: found as kubectl finds it. An embedded server's is none of these.
pub(crate) fn cluster_kubeconfig(said: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| !path.as_os_str().is_empty());
    let found = said.or_else(|| variable("KUBECONFIG")).or_else(|| Some(variable("HOME")?.join(".kube/config")));
    found.context("neither KUBECONFIG nor HOME is set: say with --kubeconfig which cluster is meant")
}

pub(crate) fn kubeconfig_in(folder: &Path) -> PathBuf {
    folder.join("kubeconfig")
}

/// As the XDG base directory specification says: a relative path there is to be ignored.
fn data_dir_from(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |name| variable(name).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("underpass"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(variables: &[(&str, &str)]) -> Option<PathBuf> {
        data_dir_from(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| PathBuf::from(value)))
    }

    #[test]
    fn the_data_dir_follows_the_xdg_rules() {
        assert_eq!(folder(&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")]), Some("/s/underpass".into()));
        assert_eq!(folder(&[("HOME", "/h")]), Some("/h/.local/state/underpass".into()));
        assert_eq!(folder(&[("XDG_STATE_HOME", "relative"), ("HOME", "/h")]), Some("/h/.local/state/underpass".into()));
        assert_eq!(folder(&[]), None);
    }

    #[test]
    fn the_kubeconfig_is_the_one_that_was_said_most_clearly() {
        let found = |flag: Option<&str>, variable: &str| {
            let flags = ClientFlags { kubeconfig: flag.map(PathBuf::from) };
            kubeconfig_from(flags, |name| match name {
                "KUBECONFIG" => Some(variable.into()),
                "HOME" => Some("/h".into()),
                _ => None,
            })
        };
        assert_eq!(found(Some("/flag"), "/variable"), Some("/flag".into()));
        assert_eq!(found(None, "/variable"), Some("/variable".into()));
        assert_eq!(found(None, ""), Some("/h/.local/state/underpass/kubeconfig".into()));
        let nothing = ClientFlags { kubeconfig: None };
        assert_eq!(kubeconfig_from(nothing, |_| None), None);
    }

    #[test]
    fn an_ephemeral_server_has_a_folder_of_its_own_unless_told() {
        let flags = |data_dir: Option<&str>| ServerFlags {
            data_dir: data_dir.map(PathBuf::from),
            kubeconfig: None,
            listen: ([127, 0, 0, 1], 0).into(),
            ephemeral: true,
            keep_events: None,
            output: TextOrJson::Text,
        };
        assert_eq!(ServerSettings::resolve(flags(None)).unwrap().place, Place::Temporary);
        let told = ServerSettings::resolve(flags(Some("/d"))).unwrap();
        assert_eq!((told.place, told.durable), (Place::Folder("/d".into()), false));
    }
}
