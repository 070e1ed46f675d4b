//! The current context of Docker's command line: which engine its user has chosen.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::places::{Candidate, Refusal};

/// The place that the current context names; `None` when it is Docker's own default. One that leads nowhere is a place, too: Docker's
/// command line refuses it, and another engine than the one that was chosen is never taken.
pub(crate) fn current(set: &impl Fn(&str) -> Option<String>) -> Option<Candidate> {
    let folder = set("DOCKER_CONFIG").map(PathBuf::from).or_else(|| Some(Path::new(&set("HOME")?).join(".docker")))?;
    let name = set("DOCKER_CONTEXT")
        .or_else(|| Some(read(&folder.join("config.json"))?["currentContext"].as_str()?.to_owned()))?;
    if name.is_empty() || name == "default" {
        return None;
    }
    let (source, metas) = (format!("Docker context {name}"), folder.join("contexts/meta"));
    Some(match address(&metas, &name) {
        Some(address) => Candidate::new(source, address),
        None => Candidate::unusable(source, metas.display().to_string(), Refusal::NoContext),
    })
}

/// Folders are named by a hash of the context's name; the name inside is as good and needs no hash.
fn address(metas: &Path, name: &str) -> Option<String> {
    let metas = fs::read_dir(metas).ok()?.filter_map(|entry| read(&entry.ok()?.path().join("meta.json")));
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

    fn current_of(home: &Path, more: &[(&str, &str)]) -> Option<Candidate> {
        current(&|name: &str| {
            let more = more.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            more.or_else(|| (name == "HOME").then(|| home.display().to_string()))
        })
    }

    #[test]
    fn the_current_context_names_the_place() {
        let mine = Some(Candidate::new("Docker context mine", "unix:///m.sock"));
        assert_eq!(current_of(home("mine").path(), &[]), mine);
        let default = home("default");
        assert_eq!(current_of(default.path(), &[]), None);
        assert_eq!(current_of(default.path(), &[("DOCKER_CONTEXT", "mine")]), mine);
        let config = default.path().join(".docker").display().to_string();
        assert_eq!(current_of(Path::new("/nowhere"), &[("DOCKER_CONFIG", &config), ("DOCKER_CONTEXT", "mine")]), mine);
    }

    #[test]
    fn a_context_that_leads_nowhere_says_so() {
        let home = home("gone");
        let refused = |place: Option<Candidate>| {
            let place = place.unwrap();
            assert!(place.source.starts_with("Docker context "), "{place:?}");
            place.check(false)
        };
        assert_eq!(refused(current_of(home.path(), &[])), Err(Refusal::NoContext));
        assert_eq!(refused(current_of(Path::new("/nowhere"), &[("DOCKER_CONTEXT", "mine")])), Err(Refusal::NoContext));
        fs::write(home.path().join(".docker/contexts/meta/a1b2/meta.json"), "{").unwrap();
        assert_eq!(refused(current_of(home.path(), &[("DOCKER_CONTEXT", "mine")])), Err(Refusal::NoContext));
    }

    /// As for Docker's command line, which says so and goes on.
    #[test]
    fn a_broken_configuration_names_no_context() {
        let home = home("mine");
        fs::write(home.path().join(".docker/config.json"), "{").unwrap();
        assert_eq!(current_of(home.path(), &[]), None);
    }
}
