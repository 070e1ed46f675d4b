//! The real kubectl, with a home and a cache of its own.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Ended, Process};

/// Runs kubectl against one server: `$KUBECTL`, else the one on the PATH.
pub struct Kubectl {
    program: OsString,
    kubeconfig: PathBuf,
    /// Holds kubectl's cache, which would otherwise be shared by servers that got the same port one after another.
    home: TempDir,
    editor: Option<String>,
}

impl Kubectl {
    pub fn new(kubeconfig: &Path) -> Self {
        let home = tempfile::tempdir().expect("a temporary folder can be made");
        let program = std::env::var_os("KUBECTL").unwrap_or_else(|| "kubectl".into());
        Self { program, kubeconfig: kubeconfig.to_owned(), home, editor: None }
    }

    /// The command that `kubectl edit` opens a file with.
    pub fn with_editor(mut self, command: &str) -> Self {
        self.editor = Some(command.to_owned());
        self
    }

    /// Its stdout; panics when it fails. Words stand apart, and one with blanks inside is 'quoted'.
    #[track_caller]
    pub fn ok(&self, line: &str) -> String {
        self.run(line).ok()
    }

    /// The same, with something to read for `-f -`.
    #[track_caller]
    pub fn ok_with(&self, line: &str, input: &str) -> String {
        self.run_with(line, input).ok()
    }

    /// Its stderr; panics when it succeeds.
    #[track_caller]
    pub fn fails(&self, line: &str) -> String {
        self.run(line).failed()
    }

    #[track_caller]
    pub fn fails_with(&self, line: &str, input: &str) -> String {
        self.run_with(line, input).failed()
    }

    /// The object or list that `get ... -o json` prints.
    #[track_caller]
    pub fn json(&self, line: &str) -> Value {
        let text = self.ok(&format!("{line} -o json"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("kubectl {line}: {error}\n{text}"))
    }

    /// The version of a collection, which is given as a path of the API.
    #[track_caller]
    pub fn version_of(&self, path: &str) -> String {
        let list: Value = self.ok(&format!("get --raw {path}?limit=1")).parse().expect("a list is JSON");
        list["metadata"]["resourceVersion"].as_str().expect("a list has a version").to_owned()
    }

    /// How often each object of a collection was changed since that version, as the server's own history has it.
    #[track_caller]
    pub fn changes(&self, path: &str, since: &str) -> BTreeMap<String, usize> {
        let mut counted = BTreeMap::new();
        for event in self.history(path, since).iter().filter(|event| event["type"] == "MODIFIED") {
            let name = event["object"]["metadata"]["name"].as_str().expect("an object has a name");
            *counted.entry(name.to_owned()).or_default() += 1;
        }
        counted
    }

    /// What has happened in a collection since that version: the events of a watch.
    #[track_caller]
    pub fn history(&self, path: &str, since: &str) -> Vec<Value> {
        // The server ends this watch after its time.
        let watch = format!("get --raw {path}?watch=true&timeoutSeconds=2&resourceVersion={since}");
        self.ok(&watch).lines().map(|line| line.parse().expect("an event is JSON")).collect()
    }

    #[track_caller]
    pub fn run(&self, line: &str) -> Ended {
        self.run_with(line, "")
    }

    #[track_caller]
    pub fn run_with(&self, line: &str, input: &str) -> Ended {
        Process::start_with(&mut self.command(line), input).wait()
    }

    /// Leaves it running, for `--watch` and the like.
    pub fn start(&self, line: &str) -> Process {
        Process::start(&mut self.command(line))
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words(line));
        command.env("KUBECONFIG", &self.kubeconfig).env("HOME", self.home.path()).current_dir(self.home.path());
        command.env("KUBECACHEDIR", self.home.path().join("cache")).env_remove("KUBECTL_EXTERNAL_DIFF");
        if let Some(editor) = &self.editor {
            command.env("KUBE_EDITOR", editor);
        }
        command
    }
}

/// Splits at blanks, except between single quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quoted, mut begun) = (String::new(), false, false);
    for character in line.chars() {
        match character {
            '\'' => (quoted, begun) = (!quoted, true),
            ' ' if !quoted => {
                if std::mem::take(&mut begun) {
                    words.push(std::mem::take(&mut word));
                }
            }
            other => {
                word.push(other);
                begun = true;
            }
        }
    }
    assert!(!quoted, "an open quote in: {line}");
    words.extend(begun.then_some(word));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_apart_unless_quoted() {
        assert_eq!(words("get  cm -o jsonpath='{.data.a b}' ''"), ["get", "cm", "-o", "jsonpath={.data.a b}", ""]);
        assert_eq!(words(" "), [""; 0]);
    }
}
