//! The lab: a real Kubernetes that `make lab-up` has started, and a namespace of it for each test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use tempfile::{NamedTempFile, TempDir};

use crate::kubectl::Kubectl;
use crate::process::{Ended, Process};
use crate::underpass::client_of;
use crate::unique::unique;
use crate::wait::{PATIENCE, wait_until};

/// On a machine that does not have that version of Envoy yet.
const AN_INSTALLATION: Duration = Duration::from_secs(300);

/// The lab that runs: `$UNDERPASS_LAB`, else the checkout's `.lab`.
#[derive(Clone)]
pub struct Lab {
    folder: PathBuf,
}

/// A namespace of one test. It is deleted when this value goes, and nobody waits for that, unless others use the same name.
pub struct LabNamespace {
    pub name: String,
    /// Works in this namespace unless told otherwise.
    pub kubectl: Kubectl,
    kubeconfig: TempDir,
    is_shared: bool,
}

impl Lab {
    /// What images of tests are made of, on every node: busybox as `/busybox`, which sleeps unless it is told otherwise.
    pub const BUSYBOX: &str = "lab.local/busybox:1";

    /// Panics when it does not run: a test that is not run is not a test.
    pub fn running() -> Self {
        let folder = std::env::var_os("UNDERPASS_LAB").map_or_else(|| checkout().join(".lab"), PathBuf::from);
        assert!(folder.join("kubeconfig").exists(), "no lab runs in {}: run `make lab-up`", folder.display());
        Self { folder }
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// The same cluster for somebody else: whoever the token belongs to.
    pub fn kubeconfig_with_token(&self, token: &str) -> NamedTempFile {
        let file = NamedTempFile::new().expect("a temporary file can be made");
        std::fs::copy(self.kubeconfig(), file.path()).expect("the lab's kubeconfig can be copied");
        let kubectl = Kubectl::new(file.path());
        kubectl.ok(&format!("config set-credentials other --token {token}"));
        kubectl.ok("config set-context --current --user other");
        file
    }

    /// Works in the namespace `default` unless told otherwise.
    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(&self.kubeconfig())
    }

    /// A client with an administrator's rights.
    pub async fn client(&self) -> kube::Client {
        client_of(&self.kubeconfig()).await
    }

    /// One that pods can be made in.
    #[track_caller]
    pub fn namespace(&self, what: &str) -> LabNamespace {
        self.make_namespace(unique(what), false)
    }

    /// One of this very name, for documents that say it; whoever has it has it alone, and it is gone when this value is.
    #[track_caller]
    pub fn namespace_called(&self, name: &str) -> LabNamespace {
        self.make_namespace(name.to_owned(), true)
    }

    #[track_caller]
    fn make_namespace(&self, name: String, is_shared: bool) -> LabNamespace {
        let kubeconfig = tempfile::tempdir().expect("a temporary folder can be made");
        let copy = kubeconfig.path().join("kubeconfig");
        std::fs::copy(self.kubeconfig(), &copy).expect("the lab's kubeconfig can be copied");
        let kubectl = Kubectl::new(&copy);
        kubectl.ok(&format!("config set-context --current --namespace {name}"));
        kubectl.ok(&format!("create namespace {name}"));
        wait_until("the service account of a new namespace", PATIENCE, || {
            (kubectl.run("get serviceaccount default").code == Some(0)).then_some(())
        });
        LabNamespace { name, kubectl, kubeconfig, is_shared }
    }

    /// Runs a shell on a node: its network, its mounts, its processes.
    #[track_caller]
    pub fn on(&self, node: &str, script: &str) -> Ended {
        self.script(&["on", node, "sh", "-euc", script])
    }

    /// `scripts/lab load`.
    #[track_caller]
    pub fn load(&self, archive: &Path) -> Ended {
        self.script(&["load", &archive.display().to_string()])
    }

    /// The image of the Envoy that a ProxyServer has unless it says otherwise; when this returns, every node has it.
    #[track_caller]
    pub fn envoy_image(&self) -> &'static str {
        static IMAGE: OnceLock<String> = OnceLock::new();
        IMAGE.get_or_init(|| self.envoy(&["envoy"]))
    }

    /// The same of the newest Envoy.
    #[track_caller]
    pub fn newest_envoy_image(&self) -> &'static str {
        static IMAGE: OnceLock<String> = OnceLock::new();
        IMAGE.get_or_init(|| self.envoy(&["envoy", "newest"]))
    }

    /// Has the lab answer `kubectl top`; when this returns, it is asked.
    #[track_caller]
    pub fn metrics(&self) {
        static STARTED: OnceLock<()> = OnceLock::new();
        STARTED.get_or_init(|| {
            self.start(&["metrics"]).wait_within(AN_INSTALLATION).ok();
        });
    }

    #[track_caller]
    fn envoy(&self, arguments: &[&str]) -> String {
        self.start(arguments).wait_within(AN_INSTALLATION).ok().trim().to_owned()
    }

    #[track_caller]
    pub(crate) fn script(&self, arguments: &[&str]) -> Ended {
        self.start(arguments).wait()
    }

    /// `scripts/lab` with these words.
    pub(crate) fn start(&self, arguments: &[&str]) -> Process {
        Process::start(&mut self.command(arguments))
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(checkout().join("scripts/lab"));
        command.args(arguments).env("UNDERPASS_LAB", &self.folder);
        command
    }
}

impl LabNamespace {
    /// Of somebody who works in this namespace.
    pub fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig.path().join("kubeconfig")
    }
}

impl Drop for LabNamespace {
    #[allow(clippy::print_stderr, reason = "why a test failed is told by the cluster, and only now")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seen = self.kubectl.run("get pods,events -o wide --sort-by=.metadata.creationTimestamp");
            eprintln!("what there was in {}:\n{}", self.name, seen.stdout);
        }
        self.kubectl.run(&format!("delete namespace {} --wait={} --timeout=110s", self.name, self.is_shared));
    }
}

/// The folder of the whole project.
pub(crate) fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("this crate lies in its workspace")
}
