//! A running `underpass up` or `underpass apiserver`, or any other command of it, in a folder of its own.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::kubectl::Kubectl;
use crate::process::{Ended, Process};

/// What to start, and how. The binary is the caller's: `env!("CARGO_BIN_EXE_underpass")`.
pub struct Launch {
    command: Command,
    folder: TempDir,
    data_dir: Option<PathBuf>,
    ephemeral: bool,
}

/// What the ready line says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    pub api: String,
    pub kubeconfig: PathBuf,
    pub pid: u32,
}

/// A server that is ready. It gets a SIGINT when this value goes, and SIGKILL if that does not help.
pub struct Underpass {
    /// First, so that it ends before its folder goes.
    process: Process,
    ready: Ready,
    data_dir: PathBuf,
    _folder: TempDir,
}

impl Launch {
    /// `underpass up`, with its objects in memory unless a data directory is named.
    pub fn up(binary: &str) -> Self {
        Self::command(binary, "up")
    }

    /// `underpass apiserver`, with its objects in memory unless a data directory is named.
    pub fn apiserver(binary: &str) -> Self {
        Self::command(binary, "apiserver")
    }

    /// Any command, in an environment in which it finds nothing of this machine's user and no container engine.
    pub fn command(binary: &str, name: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let mut command = Command::new(binary);
        command.arg(name).env("HOME", folder.path());
        for variable in ["KUBECONFIG", "RUST_LOG", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "DOCKER_HOST"] {
            command.env_remove(variable);
        }
        command.env("CONTAINER_HOST", format!("unix://{}/no-engine.sock", folder.path().display()));
        Self { command, folder, data_dir: None, ephemeral: true }
    }

    /// Keeps its objects there; the folder is the caller's.
    pub fn data_dir(mut self, folder: &Path) -> Self {
        self.data_dir = Some(folder.to_owned());
        self.ephemeral = false;
        self
    }

    /// Keeps its objects on disk, in a folder that goes with the server.
    pub fn durable(mut self) -> Self {
        self.ephemeral = false;
        self
    }

    /// `-f FILE`.
    pub fn file(self, path: &Path) -> Self {
        self.arg("-f").arg(path)
    }

    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.command.args(arguments);
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// In a process group of its own: a Ctrl-C in the terminal is for the caller, who ends it in order.
    pub fn apart(mut self) -> Self {
        self.command.process_group(0);
        self
    }

    /// Starts a server and waits until it says that it is ready.
    #[track_caller]
    pub fn start(mut self) -> Underpass {
        let data_dir = self.with_server_flags();
        self.command.args(["--output", "json"]);
        let mut process = Process::start(&mut self.command);
        let line = process.wait_for_stdout("the ready line", |text| text.lines().next().map(str::to_owned));
        Underpass { process, ready: Ready::parse(&line), data_dir, _folder: self.folder }
    }

    /// Starts a server and does not wait; for those that are not expected to get ready, and for text output.
    pub fn spawn_server(mut self) -> (Process, TempDir) {
        self.with_server_flags();
        self.spawn()
    }

    /// Starts any command as it is, and leaves it running. The folder is its home.
    pub fn spawn(mut self) -> (Process, TempDir) {
        (Process::start(&mut self.command), self.folder)
    }

    /// Runs any command as it is to its end.
    #[track_caller]
    pub fn run(self) -> Ended {
        self.run_with("")
    }

    #[track_caller]
    pub fn run_with(mut self, input: &str) -> Ended {
        Process::start_with(&mut self.command, input).wait()
    }

    fn with_server_flags(&mut self) -> PathBuf {
        let data_dir = self.data_dir.clone().unwrap_or_else(|| self.folder.path().join("data"));
        self.command.arg("--data-dir").arg(&data_dir);
        if self.ephemeral {
            self.command.arg("--ephemeral");
        }
        data_dir
    }
}

impl Ready {
    #[track_caller]
    fn parse(line: &str) -> Self {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("the ready line {line}: {error}"));
        let text = |name: &str| value[name].as_str().unwrap_or_else(|| panic!("{name} is missing: {line}"));
        let pid = value["pid"].as_u64().and_then(|pid| pid.try_into().ok());
        Self {
            api: text("api").to_owned(),
            kubeconfig: text("kubeconfig").into(),
            pid: pid.unwrap_or_else(|| panic!("pid is missing: {line}")),
        }
    }
}

impl Underpass {
    /// `underpass up` that keeps nothing.
    #[track_caller]
    pub fn start(binary: &str) -> Self {
        Launch::up(binary).start()
    }

    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.ready.kubeconfig
    }

    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    pub fn into_process(self) -> Process {
        self.process
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(&self.ready.kubeconfig)
    }

    /// A client with all rights.
    pub async fn client(&self) -> Client {
        client_of(&self.ready.kubeconfig).await
    }

    /// Asks it to end, and waits until it has.
    #[track_caller]
    pub fn stop(self) -> Ended {
        self.end(Signal::INT)
    }

    /// Ends it at once, as a crash would.
    #[track_caller]
    pub fn kill(self) {
        self.end(Signal::KILL);
    }

    #[track_caller]
    pub fn end(self, signal: Signal) -> Ended {
        self.process.signal(signal);
        self.wait()
    }

    /// Waits for its end, which somebody else has seen to.
    #[track_caller]
    pub fn wait(self) -> Ended {
        self.process.wait()
    }
}

/// A client of the server that a kubeconfig names.
pub(crate) async fn client_of(kubeconfig: &Path) -> Client {
    // An error means that another test has done it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("the kubeconfig can be read");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("the kubeconfig is complete")).expect("the kubeconfig can be used")
}
