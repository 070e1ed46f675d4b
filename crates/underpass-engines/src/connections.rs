//! The connections of Podman's command line, as `podman system connection` keeps them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::places::{Candidate, Refusal};

/// The one that `CONTAINER_CONNECTION` names. One that is not there is a place, too, as in [`crate::contexts`].
pub(crate) fn named(set: &impl Fn(&str) -> Option<String>) -> Option<Candidate> {
    let name = set("CONTAINER_CONNECTION")?;
    let file = file(set);
    let known = file.as_deref().and_then(read);
    let there = known.and_then(|known| address(&known, &name));
    let (source, file) = (format!("CONTAINER_CONNECTION {name}"), file.unwrap_or_default());
    Some(match there {
        Some(address) => Candidate::new(source, address),
        None => Candidate::unusable(source, file.display().to_string(), Refusal::NoConnection),
    })
}

/// The default one. Podman itself uses it only where it is remote, so that it is the first place of several and not the only one.
pub(crate) fn default(set: &impl Fn(&str) -> Option<String>) -> Option<Candidate> {
    let known = read(&file(set)?)?;
    let name = known["Connection"]["Default"].as_str().filter(|name| !name.is_empty())?;
    Some(Candidate::new(format!("Podman's default connection {name}"), address(&known, name)?))
}

fn file(set: &impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let folder = set("XDG_CONFIG_HOME").map(PathBuf::from);
    let folder = folder.or_else(|| Some(Path::new(&set("HOME")?).join(".config")))?;
    Some(folder.join("containers/podman-connections.json"))
}

fn address(known: &Value, name: &str) -> Option<String> {
    Some(known["Connection"]["Connections"][name]["URI"].as_str()?.to_owned())
}

fn read(path: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &str = r#"{"Connection":{"Default":"far","Connections":{
        "far":{"URI":"ssh://core@host:22/run/podman/podman.sock","Identity":"/k"},
        "near":{"URI":"unix:///run/near.sock"}}},"Farm":{}}"#;

    fn config(known: &str) -> tempfile::TempDir {
        let config = tempfile::tempdir().unwrap();
        fs::create_dir(config.path().join("containers")).unwrap();
        fs::write(config.path().join("containers/podman-connections.json"), known).unwrap();
        config
    }

    fn variables<'a>(config: &'a Path, connection: Option<&'a str>) -> impl Fn(&str) -> Option<String> + 'a {
        move |name| match name {
            "XDG_CONFIG_HOME" => Some(config.display().to_string()),
            "CONTAINER_CONNECTION" => connection.map(str::to_owned),
            _ => None,
        }
    }

    #[test]
    fn the_variable_names_one_of_them() {
        let config = config(KNOWN);
        assert_eq!(named(&variables(config.path(), None)), None);
        let near = named(&variables(config.path(), Some("near")));
        assert_eq!(near, Some(Candidate::new("CONTAINER_CONNECTION near", "unix:///run/near.sock")));
        let far = named(&variables(config.path(), Some("far"))).unwrap();
        assert_eq!(far.check(false), Err(Refusal::Ssh));
        for config in [config.path(), Path::new("/nowhere")] {
            let gone = named(&variables(config, Some("gone"))).unwrap();
            assert_eq!(gone.check(false), Err(Refusal::NoConnection));
        }
    }

    #[test]
    fn the_default_is_a_place_if_there_is_one() {
        let there = config(KNOWN);
        let far = default(&variables(there.path(), None)).unwrap();
        assert_eq!(far.source, "Podman's default connection far");
        assert_eq!(far.check(false), Err(Refusal::Ssh));
        let none = config(r#"{"Connection":{"Default":"","Connections":{}},"Farm":{}}"#);
        assert_eq!(default(&variables(none.path(), None)), None);
        assert_eq!(default(&variables(config("{").path(), None)), None);
        assert_eq!(default(&variables(Path::new("/nowhere"), None)), None);
    }

    #[test]
    fn without_a_folder_of_its_own_the_configuration_is_at_home() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join(".config/containers")).unwrap();
        fs::write(home.path().join(".config/containers/podman-connections.json"), KNOWN).unwrap();
        let set = |name: &str| (name == "HOME").then(|| home.path().display().to_string());
        assert!(default(&set).is_some());
    }
}
