//! Real Podman and Docker: the shared ones that `scripts/engines up` has started, and private ones that a test may stop.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use rustix::process::Signal;
use rustix::thread::LinkNameSpaceType;
use tempfile::TempDir;
use underpass_engines::labels::{INSTANCE, Maker};
use underpass_engines::{BuildRequest, Candidate, ContainerEngine, EngineKind, LocalEngine, scratch_image};

use crate::process::Process;
use crate::unique::unique;
use crate::wait::{PATIENCE, wait_until};

/// What client containers run: a shell and tools in one static file.
const BUSYBOX: &str = "/bin/busybox";

/// The label on an image that a test has others built on.
const BASE: &str = "dev.underpass.test.base";

/// An engine for one test. What the test makes through it goes with this value.
pub struct TestEngine {
    pub kind: EngineKind,
    pub address: String,
    /// The instance whose labels everything of this test carries.
    pub instance: String,
    pub engine: LocalEngine,
}

/// An engine of one test's own, which it may stop and start; it has room for two networks and no way out.
pub struct PrivateEngine {
    kind: EngineKind,
    process: Option<Process>,
    /// Its network's and its mounts', kept so that it comes back to where it was. Only root can have them.
    namespaces: Option<[File; 2]>,
    folder: TempDir,
}

/// Podman and Docker. Panics when they do not run: a test that is not run is not a test.
pub fn engines() -> [TestEngine; 2] {
    [TestEngine::shared(EngineKind::Podman), TestEngine::shared(EngineKind::Docker)]
}

impl TestEngine {
    /// The one that `scripts/engines up` has started.
    pub fn shared(kind: EngineKind) -> Self {
        let variable = match kind {
            EngineKind::Podman => "UNDERPASS_TEST_PODMAN",
            EngineKind::Docker => "UNDERPASS_TEST_DOCKER",
        };
        Self::at(kind, &told(variable))
    }

    /// Podman of a user without rights; the error is why this machine cannot run it.
    pub fn rootless() -> Result<Self, String> {
        let address = told("UNDERPASS_TEST_ROOTLESS");
        if address.starts_with("unix://") { Ok(Self::at(EngineKind::Podman, &address)) } else { Err(address) }
    }

    pub fn at(kind: EngineKind, address: &str) -> Self {
        let instance = unique("test");
        let engine = connect(kind, address, &instance);
        Self { kind, address: address.to_owned(), instance, engine }
    }

    /// The variable by which a process finds this engine.
    pub fn variable(&self) -> (&'static str, &str) {
        match self.kind {
            EngineKind::Podman => ("CONTAINER_HOST", &self.address),
            EngineKind::Docker => ("DOCKER_HOST", &self.address),
        }
    }

    /// A name that no other test has.
    pub fn name(&self, what: &str) -> String {
        unique(what)
    }

    /// An image with busybox as `/busybox`, its entry point; it stays in the engine for the next test.
    pub async fn busybox(&self) -> String {
        let labels = underpass_engines::labels::labels(&[("dev.underpass.test", "busybox")]);
        let archive = scratch_image("localhost/underpass-test-busybox", Path::new(BUSYBOX), "busybox", &labels)
            .unwrap_or_else(|error| panic!("{BUSYBOX}: {error}: run scripts/setup"));
        let there = self.engine.find_image(&archive.reference).await.expect("the engine answers");
        if there.is_none() {
            self.engine.load_image(archive.bytes).await.expect("the engine loads an image");
        }
        archive.reference
    }
}

impl TestEngine {
    /// An image with these lines in its Dockerfile behind busybox, which the caller removes by this reference.
    pub async fn image_with(&self, lines: &str) -> String {
        let reference = format!("localhost/{}:1", unique("underpass-test-base"));
        let context = dockerfile_context(&format!("FROM {}\n{lines}\n", self.busybox().await));
        let labels = underpass_engines::labels::labels(&[(BASE, &reference)]);
        let request = BuildRequest { reference: reference.clone(), context, labels };
        self.engine.build_image(request).await.expect("the engine builds an image");
        reference
    }

    /// With what was built on it, which has inherited its label.
    pub async fn remove_image_and_its_children(&self, reference: &str) {
        let mut images = self.engine.list_images(&[(BASE, reference)]).await.expect("the engine answers");
        images.sort_by_key(|image| image.references.iter().any(|one| one == reference));
        for image in images {
            self.engine.remove_image(&image.id).await.expect("the engine removes an image");
        }
    }
}

fn dockerfile_context(dockerfile: &str) -> Bytes {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    std::fs::write(folder.path().join("Dockerfile"), dockerfile).expect("a file can be written");
    let tar = Command::new("tar").arg("-C").arg(folder.path()).args(["-c", "Dockerfile"]).output();
    tar.expect("tar runs").stdout.into()
}

fn told(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run `eval \"$(scripts/engines up)\"`, or all tests with `make test`")
    })
}

fn connect(kind: EngineKind, address: &str, instance: &str) -> LocalEngine {
    let maker = Maker::this_process(instance).expect("/proc can be read");
    LocalEngine::new(vec![Candidate::new("test", address)], Some(kind), maker)
}

/// An engine that was stopped by its test has nothing left to clean, and what fails shows in the test that counts what is left.
async fn clean(engine: LocalEngine, instance: &str) {
    let mine = [(INSTANCE, instance)];
    for container in engine.list_containers(&mine).await.unwrap_or_default() {
        let _ = engine.remove_container(&container.id).await;
    }
    for network in engine.list_networks(&mine).await.unwrap_or_default() {
        let _ = engine.remove_network(&network.id).await;
    }
}

/// On a thread and a connection of its own: the test's runtime is about to end, or is this thread's.
impl Drop for TestEngine {
    fn drop(&mut self) {
        std::thread::scope(|scope| {
            let cleaning = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let engine = connect(self.kind, &self.address, &self.instance);
                runtime.expect("a runtime can be made").block_on(clean(engine, &self.instance));
            });
            let _ = cleaning.join();
        });
    }
}

impl PrivateEngine {
    pub fn start(kind: EngineKind) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let mut engine = Self { kind, process: None, namespaces: None, folder };
        engine.start_again();
        engine
    }

    /// A view of it; the connection finds the engine again after a stop.
    pub fn view(&self) -> TestEngine {
        TestEngine::at(self.kind, &format!("unix://{}", self.socket().display()))
    }

    /// This thread, and every process and thread that it starts from now on, stands where the engine's containers can be reached.
    pub fn enter(&self) {
        let [network, _] = self.namespaces.as_ref().expect("only root may enter an engine's network");
        rustix::thread::move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
            .unwrap_or_else(|error| panic!("the engine's network cannot be entered: {error}"));
    }

    pub fn start_again(&mut self) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/engines");
        let kind = self.kind.to_string().to_lowercase();
        let mut command = Command::new(script);
        let here = std::process::id();
        let namespaces = self.namespaces.iter().flatten().map(|file| format!("/proc/{here}/fd/{}", file.as_raw_fd()));
        let mut process = Process::start(command.arg("private").arg(kind).arg(self.folder.path()).args(namespaces));
        let socket = self.socket();
        wait_until("a private engine that answers", PATIENCE, || {
            assert!(process.is_running(), "the engine has ended: {}", process.stderr());
            std::os::unix::net::UnixStream::connect(&socket).ok()
        });
        let namespace = |name| File::open(format!("/proc/{}/ns/{name}", process.pid())).ok();
        self.namespaces = self.namespaces.take().or_else(|| Some([namespace("net")?, namespace("mnt")?]));
        self.process = Some(process);
    }

    /// Asked once, and waited for: dockerd takes a third signal as an order to leave everything behind.
    pub fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            process.signal(Signal::TERM);
            process.wait();
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("engine.sock")
    }
}

impl Drop for PrivateEngine {
    fn drop(&mut self) {
        self.stop();
    }
}
