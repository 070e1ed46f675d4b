//! A real Envoy, which is told by somebody else's bootstrap configuration where to ask for the rest.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::http;
use crate::process::Process;
use crate::wait::{PATIENCE, wait_until};

/// An Envoy that runs. It ends with this value.
pub struct Envoy {
    /// Before the folder, so that it ends before it goes.
    process: Process,
    admin: SocketAddr,
    _folder: TempDir,
}

impl Envoy {
    /// Starts it, and waits until its admin port is open; it may have been told nothing yet.
    #[track_caller]
    pub fn start(bootstrap: &Path) -> Self {
        Self::start_with(bootstrap, &[])
    }

    /// With more on its command line.
    #[track_caller]
    pub fn start_with(bootstrap: &Path, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let address = folder.path().join("admin");
        let mut command = Command::new(program());
        command.arg("-c").arg(bootstrap).arg("--admin-address-path").arg(&address);
        command.args(["--disable-hot-restart", "--concurrency", "2", "--log-level", "warning"]).args(more);
        let mut process = Process::start(&mut command);
        let admin = wait_until("Envoy to open its admin port", PATIENCE, || {
            assert!(process.is_running(), "Envoy ended:\n{}", process.stderr());
            std::fs::read_to_string(&address).ok()?.parse().ok()
        });
        Self { process, admin, _folder: folder }
    }

    pub fn kill(self) {
        self.process.signal(Signal::KILL);
        self.process.wait();
    }

    /// A page of its admin port, which has to wait while it takes in much that is new.
    #[track_caller]
    pub fn page(&self, path: &str) -> String {
        let (status, body) = wait_until(path, PATIENCE, || http::get(self.admin, path).ok());
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    #[track_caller]
    pub fn json(&self, path: &str) -> Value {
        let text = self.page(path);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
    }

    /// What it counts under this name; None: it does not know it.
    #[track_caller]
    pub fn stat(&self, name: &str) -> Option<u64> {
        let text = self.page(&format!("/stats?filter=^{name}$"));
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(": ")?.trim().parse().ok();
        text.lines().find_map(value)
    }
}

/// As scripts/test says it.
pub(crate) fn program() -> PathBuf {
    let program = std::env::var_os("UNDERPASS_TEST_ENVOY");
    program.expect("UNDERPASS_TEST_ENVOY says where Envoy is: run tests by `make test`").into()
}
