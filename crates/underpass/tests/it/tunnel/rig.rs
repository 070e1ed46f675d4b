//! `underpass up` beside a real engine, and a look at both.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use underpass_engines::labels::{INSTANCE, Maker, UID};
use underpass_engines::{Candidate, Container, ContainerEngine, EngineKind, LocalEngine};
use underpass_testbed::{Kubectl, Launch, PATIENCE, Process, TestEngine, Underpass, look_until, wait_until};

use super::guest::Guest;
use crate::{BINARY, process_where};

/// The first start of a process on an engine loads the image, which is large without optimisation.
const PATIENT: Duration = Duration::from_secs(120);

pub(super) struct Rig {
    /// First, so that it ends before the engine's connection does.
    pub(super) up: Option<Underpass>,
    pub(super) engine: TestEngine,
    pub(super) runtime: Runtime,
    folder: TempDir,
    instance: String,
}

impl Rig {
    pub(super) fn start(kind: EngineKind) -> Self {
        Self::on(TestEngine::shared(kind))
    }

    pub(super) fn on(engine: TestEngine) -> Self {
        Self::of(BINARY, engine)
    }

    /// With another file than all others have.
    pub(super) fn of(program: &str, engine: TestEngine) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let up = launch_of(program, &engine, folder.path()).start();
        let instance = identity(&up.kubectl());
        let runtime = Runtime::new().unwrap();
        Self { up: Some(up), engine, runtime, folder, instance }
    }

    /// As after `Ctrl-C`: everything of ours has to be gone.
    pub(super) fn end(mut self) {
        let ended = self.up.take().unwrap().stop();
        assert_eq!(ended.code, Some(0), "{ended}");
        self.assert_nothing_is_left();
        assert!(!self.data_dir().join("engine.json").exists(), "nothing stands in any engine");
    }

    pub(super) fn assert_nothing_is_left(&self) {
        let mine = [(INSTANCE, self.instance.as_str())];
        let containers = self.wait_for(self.engine.engine.list_containers(&mine)).unwrap();
        assert_eq!(containers.iter().map(|one| &one.name).collect::<Vec<_>>(), Vec::<&String>::new());
        let networks = self.wait_for(self.engine.engine.list_networks(&mine)).unwrap();
        assert_eq!(networks.iter().map(|one| &one.name).collect::<Vec<_>>(), Vec::<&String>::new());
        assert_eq!(self.volumes(), Vec::<String>::new());
        let folders = std::fs::read_dir(self.data_dir().join("tunnels")).into_iter().flatten();
        assert_eq!(folders.count(), 0, "the pairs' folders are gone");
    }

    /// Ends the process as a crash would, and waits for its watchdog.
    pub(super) fn kill(&mut self) {
        self.up.take().unwrap().kill();
    }

    /// On the same data directory and engine.
    pub(super) fn start_again(&mut self) {
        self.up = Some(self.launch_again().start());
    }

    pub(super) fn launch_again(&self) -> Launch {
        launch(&self.engine, self.folder.path())
    }

    pub(super) fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(super) fn kubectl(&self) -> Kubectl {
        self.up.as_ref().unwrap().kubectl()
    }

    pub(super) fn apply(&self, yaml: &str) {
        self.kubectl().ok_with("apply -f -", yaml);
    }

    /// A network and a proxy on it, both called `name`, with these lines in the proxy's spec.
    pub(super) fn apply_proxy(&self, name: &str, spec: &str) {
        self.apply(&format!("{}---\n{}", crate::network(name), proxy(name, spec)));
    }

    pub(super) fn proxy(&self, name: &str) -> Value {
        self.kubectl().json(&format!("get cntp {name}"))
    }

    pub(super) fn status(&self, name: &str) -> Value {
        self.proxy(name)["status"].clone()
    }

    /// Waits until the proxy's status is as wanted, and gives it.
    #[track_caller]
    pub(super) fn until(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let seen = look_until(PATIENT, || {
            last = self.status(name);
            wanted(&last).then(|| last.clone())
        });
        seen.unwrap_or_else(|| panic!("{what} never came: {last:#}"))
    }

    #[track_caller]
    pub(super) fn until_state(&self, name: &str, state: &str) -> Value {
        self.until(name, state, |status| status["state"] == state)
    }

    /// Running, and everything that was asked for is proven.
    #[track_caller]
    pub(super) fn until_ready(&self, name: &str) -> Value {
        self.until(name, "Ready", |status| status["state"] == "Running" && is_ready(status) && is_current(status))
    }

    pub(super) fn network_id(&self, name: &str) -> String {
        self.kubectl().ok(&format!("get ctrnet {name} -o jsonpath={{.status.id}}"))
    }

    /// A client on the network of this ContainerNetwork.
    pub(super) fn guest(&self, network: &str) -> Guest<'_> {
        Guest { runtime: &self.runtime, engine: &self.engine, network: self.network_id(network) }
    }

    /// The client proxies of an object, running or not.
    pub(super) fn containers(&self, name: &str) -> Vec<Container> {
        let uid = self.kubectl().ok(&format!("get cntp {name} -o jsonpath={{.metadata.uid}}"));
        self.containers_of(&uid)
    }

    pub(super) fn containers_of(&self, uid: &str) -> Vec<Container> {
        self.wait_for(self.engine.engine.list_containers(&[(UID, uid)])).unwrap()
    }

    pub(super) fn volumes(&self) -> Vec<String> {
        let listed = self.wait_for(self.engine.engine.list_volumes(&[(INSTANCE, self.instance.as_str())])).unwrap();
        listed.into_iter().map(|one| one.name).collect()
    }

    /// The engine as a process of this instance has it: what is made there carries its label.
    pub(super) fn engine_of_instance(&self) -> LocalEngine {
        let place = vec![Candidate::new("test", &self.engine.address)];
        LocalEngine::new(place, Some(self.engine.kind), Maker::this_process(&self.instance).unwrap())
    }

    /// What the engine answers to a call of Docker's API.
    #[track_caller]
    pub(super) fn ask_engine(&self, method: &str, path: &str, body: &str) -> String {
        let (socket, url) = (self.socket(), format!("http://engine/{path}"));
        let curl = ["-fsS", "--unix-socket", socket, "-X", method, "-H", "Content-Type: application/json", "-d", body];
        let done = Command::new("curl").args(curl).arg(url).output().unwrap();
        assert!(done.status.success(), "{path}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    }

    /// What the engine tells from now on of containers of this instance, a line each.
    pub(super) fn events(&self) -> Process {
        let filters = format!(r#"filters={{"type":["container"],"label":["{INSTANCE}={}"]}}"#, self.instance);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let mut curl = Command::new("curl");
        curl.args(["-fsSNG", "--unix-socket", self.socket(), "--data-urlencode", &filters]);
        Process::start(curl.args(["-d", &format!("since={now}"), "http://engine/events"]))
    }

    fn socket(&self) -> &str {
        self.engine.address.strip_prefix("unix://").unwrap()
    }

    pub(super) fn wait_for<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }
}

/// `underpass up` that finds this engine and keeps its objects in `folder`.
pub(super) fn launch(engine: &TestEngine, folder: &Path) -> Launch {
    launch_of(BINARY, engine, folder)
}

fn launch_of(program: &str, engine: &TestEngine, folder: &Path) -> Launch {
    let (variable, address) = engine.variable();
    Launch::up(program).env(variable, address).data_dir(&folder.join("data"))
}

/// What the things of a server's objects are labelled with.
pub(super) fn identity(kubectl: &Kubectl) -> String {
    kubectl.ok("get namespace kube-system -o jsonpath={.metadata.uid}")
}

pub(super) fn proxy(name: &str, spec: &str) -> String {
    let spec: String = spec.lines().map(|line| format!("  {line}\n")).collect();
    format!(
        "apiVersion: underpass.dev/v1alpha1\nkind: ContainerNetworkTunnelProxy\nmetadata: {{name: {name}}}\n\
         spec:\n  containerNetworkName: {name}\n{spec}"
    )
}

/// A line of `tunnels:`.
pub(super) fn tunnel(name: &str, port: u16) -> String {
    format!("- {{name: {name}, serverAddress: 127.0.0.1, serverPort: {port}}}")
}

pub(super) fn is_ready(status: &Value) -> bool {
    condition(status, "Ready")["status"] == "True"
}

/// Whether it tells of the spec as it is now.
fn is_current(status: &Value) -> bool {
    condition(status, "Ready")["observedGeneration"] == status["observedGeneration"]
}

pub(super) fn condition<'a>(status: &'a Value, name: &str) -> &'a Value {
    let conditions = status["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == name).unwrap_or(&Value::Null)
}

pub(super) fn tunnel_status<'a>(status: &'a Value, name: &str) -> &'a Value {
    let tunnels = status["tunnelStatuses"].as_array();
    tunnels.into_iter().flatten().find(|tunnel| tunnel["name"] == name).unwrap_or(&Value::Null)
}

pub(super) fn is_alive(pid: &Value) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[track_caller]
pub(super) fn until_dead(pid: &Value) {
    wait_until(&format!("the end of {pid}"), PATIENCE, || (!is_alive(pid)).then_some(()));
}

/// The only process of a client proxy's container, as this host sees it.
pub(super) fn client_process(container: &str) -> i32 {
    let found = process_where(|file| file("cmdline").contains("tunnel-client") && file("cgroup").contains(container));
    found.unwrap_or_else(|| panic!("no process of the container {container}"))
}

impl Rig {
    /// What the pairs have said, for whoever has to find out why a test failed.
    #[expect(clippy::print_stdout, reason = "the harness shows it beside the failure")]
    fn tell(&self) {
        let mine = [(INSTANCE, self.instance.as_str())];
        for container in self.wait_for(self.engine.engine.list_containers(&mine)).unwrap_or_default() {
            let logs = self.wait_for(self.engine.engine.container_logs(&container.id, 100));
            println!("{} says:\n{}", container.name, logs.unwrap_or_else(|error| error.to_string()));
        }
        for folder in std::fs::read_dir(self.data_dir().join("tunnels")).into_iter().flatten().flatten() {
            let logs = std::fs::read_to_string(folder.path().join("server.err"));
            println!("{} says:\n{}", folder.path().display(), logs.unwrap_or_else(|error| error.to_string()));
        }
    }
}

impl Drop for Rig {
    /// A test that failed leaves the engine as clean as one that did not.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.tell();
        }
        drop(self.up.take());
        let mine = [(INSTANCE, self.instance.as_str())];
        for container in self.wait_for(self.engine.engine.list_containers(&mine)).unwrap_or_default() {
            let _ = self.wait_for(self.engine.engine.remove_container(&container.id));
        }
        for network in self.wait_for(self.engine.engine.list_networks(&mine)).unwrap_or_default() {
            let _ = self.wait_for(self.engine.engine.remove_network(&network.id));
        }
    }
}
