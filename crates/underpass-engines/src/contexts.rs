//! The current context of Docker's command line: which engine its user has chosen.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The name and the address of the current context; `None` when it is Docker's own default, or nothing that can be read.
pub(crate) fn current(set: &impl Fn(&str) -> Option<String>) -> Option<(String, String)> {
    let folder = set("DOCKER_CONFIG").map(PathBuf::from).or_else(|| Some(Path::new(&set("HOME")?).join(".docker")))?;
    let name = set("DOCKER_CONTEXT")
        .or_else(|| Some(read(&folder.join("config.json"))?["currentContext"].as_str()?.to_owned()))?;
    if name.is_empty() || name == "default" {
        return None;
    }
    let address = address(&folder, &name)?;
    Some((name, address))
}

/// Folders are named by a hash of the context's name; the name inside is as good and needs no hash.
fn address(folder: &Path, name: &str) -> Option<String> {
    let entries = fs::read_dir(folder.join("contexts/meta")).ok()?;
    let metas = entries.filter_map(|entry| read(&entry.ok()?.path().join("meta.json")));
    let meta = metas.into_iter().find(|meta| meta["Name"] == name)?;
    Some(meta["Endpoints"]["docker"]["Host"].as_str()?.to_owned())
}

fn read(path: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(current: &str) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        let meta = home.path().join(".docker/contexts/meta/a1b2");
        fs::create_dir_all(&meta).unwrap();
        fs::write(home.path().join(".docker/config.json"), format!(r#"{{"currentContext":"{current}"}}"#)).unwrap();
        let context =
            r#"{"Name":"mine","Metadata":{},"Endpoints":{"docker":{"Host":"unix:///m.sock","SkipTLSVerify":false}}}"#;
        fs::write(meta.join("meta.json"), context).unwrap();
        home
    }

    fn current_of(home: &Path, more: &[(&str, &str)]) -> Option<(String, String)> {
        current(&|name: &str| {
            let more = more.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            more.or_else(|| (name == "HOME").then(|| home.display().to_string()))
        })
    }

    #[test]
    fn the_current_context_names_the_place() {
        let mine = Some(("mine".to_owned(), "unix:///m.sock".to_owned()));
        assert_eq!(current_of(home("mine").path(), &[]), mine);
        let default = home("default");
        assert_eq!(current_of(default.path(), &[]), None);
        assert_eq!(current_of(default.path(), &[("DOCKER_CONTEXT", "mine")]), mine);
        assert_eq!(current_of(home("gone").path(), &[]), None);
        let config = default.path().join(".docker").display().to_string();
        assert_eq!(current_of(Path::new("/nowhere"), &[("DOCKER_CONFIG", &config), ("DOCKER_CONTEXT", "mine")]), mine);
    }

    #[test]
    fn a_broken_file_is_no_context() {
        let home = home("mine");
        fs::write(home.path().join(".docker/config.json"), "{").unwrap();
        assert_eq!(current_of(home.path(), &[]), None);
    }
}
