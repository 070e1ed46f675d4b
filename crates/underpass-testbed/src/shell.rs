//! A shell as people have one: a folder to work in, the tests' kubectl on its path, and what a test puts beside it.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::process::{Ended, Process};
use crate::program::write_program;

/// Its folder goes with it.
pub struct Shell {
    folder: TempDir,
    environment: Vec<(String, String)>,
}

impl Shell {
    pub fn new(environment: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        std::fs::create_dir(folder.path().join("bin")).expect("a folder can be made");
        let path = format!("{}:{}", folder.path().join("bin").display(), std::env::var("PATH").unwrap_or_default());
        let own = [("PATH", path), ("HOME", folder.path().display().to_string())];
        let all = own.into_iter().chain(environment.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let shell = Self { environment: all.map(|(name, value)| (name.to_owned(), value)).collect(), folder };
        if let Ok(kubectl) = std::env::var("KUBECTL") {
            shell.provide("kubectl", &format!("#!/bin/sh\nexec {kubectl} \"$@\"\n"));
        }
        shell
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Puts a script onto its path.
    pub fn provide(&self, name: &str, script: &str) {
        write_program(&self.folder().join("bin").join(name), &[script.as_bytes()]);
    }

    /// What another shell has to be told to be as this one is.
    pub fn preamble(&self) -> String {
        let exports = self.environment.iter().map(|(name, value)| format!("export {name}='{value}'\n"));
        format!("{}cd '{}'\n", exports.collect::<String>(), self.folder().display())
    }

    #[track_caller]
    pub fn run(&self, script: &str) -> Ended {
        self.run_with(script, "")
    }

    /// The same, with something to read.
    #[track_caller]
    pub fn run_with(&self, script: &str, input: &str) -> Ended {
        self.start_with(script, input).wait()
    }

    pub fn start(&self, script: &str) -> Process {
        self.start_with(script, "")
    }

    fn start_with(&self, script: &str, input: &str) -> Process {
        let mut command = Command::new("bash");
        command.args(["-c", script]).current_dir(self.folder());
        for variable in ["RUST_LOG", "http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env_remove(variable);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Process::start_with(&mut command, input)
    }
}
