//! A real Kubernetes API server for one test: etcd, kube-apiserver and kube-controller-manager, without nodes.
//!
//! What every such server begins with (namespaces and what each of them has, our definitions, established) takes several seconds to come
//! about, so it is made once and copied: a start is that of the two programs and nothing else. It is kept where the caller says, under
//! a name that changes with whatever it was made from.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use kube::Client;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::kubectl::Kubectl;
use crate::lab::checkout;
use crate::process::Process;
use crate::underpass::client_of;
use crate::wait::{PATIENCE, wait_until};

/// Its only user, who may do everything; named as the embedded server names its own.
const USER: &str = "underpass-admin";
/// Opens nothing but servers of tests, on this machine.
const TOKEN: &str = "for-tests-on-this-machine";
/// What the embedded server does by itself, and nothing that makes objects of objects.
const CONTROLLERS: &str = "serviceaccount-controller,root-ca-certificate-publisher-controller,namespace-controller,\
                           garbage-collector-controller";
/// How much of it may lie around: a server that lives for seconds need not tidy up, which takes a quarter of its start.
const GARBAGE: &str = "400";
/// Of etcd, in bytes: a benchmark stores more than it takes by default.
const QUOTA: &str = "8000000000";
/// Each gets a ServiceAccount and a ConfigMap.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// It ends at once when this value goes.
pub struct ControlPlane {
    /// In the order in which they end: kube-apiserver would wait for an etcd that is gone.
    processes: Vec<Process>,
    api: String,
    folder: TempDir,
}

struct Programs {
    etcd: PathBuf,
    api: PathBuf,
    controllers: PathBuf,
}

impl ControlPlane {
    /// One that serves the definitions in a folder; what is made for it once is kept in the folder `kept`.
    #[track_caller]
    pub fn start(definitions: &Path, kept: &Path) -> Self {
        let programs = Programs::built();
        let prepared = prepared(&programs, definitions, kept);
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        // etcd reserves far more than it uses.
        let mut copy = Command::new("cp");
        copy.args(["--recursive", "--sparse=always"]).arg(prepared.join(".")).arg(folder.path());
        Process::start(&mut copy).wait().ok();
        Self::start_in(folder, &programs)
    }

    pub fn api(&self) -> &str {
        &self.api
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(&self.kubeconfig())
    }

    /// A client with all rights.
    pub async fn client(&self) -> Client {
        client_of(&self.kubeconfig()).await
    }

    /// With the state and the authority that are in the folder.
    #[track_caller]
    fn start_in(folder: TempDir, programs: &Programs) -> Self {
        let address = own_address();
        let [client, peer, api] = free_ports(address);
        let (etcd, peer) = (format!("http://{address}:{client}"), format!("http://{address}:{peer}"));
        certify(folder.path(), address);
        let server = format!("https://{address}:{api}");
        fs::write(folder.path().join("kubeconfig"), kubeconfig(&server)).expect("the kubeconfig can be written");
        let store = Process::start(&mut programs.etcd(folder.path(), &etcd, &peer));
        let api = Process::start(&mut programs.api(folder.path(), &etcd, address, api));
        let mut plane = Self { processes: vec![api, store], api: server, folder };
        plane.wait_until_ready();
        plane.processes.insert(0, Process::start(&mut programs.controllers(plane.folder.path())));
        plane
    }

    #[track_caller]
    fn wait_until_ready(&mut self) {
        let kubeconfig = self.kubeconfig();
        let api = &mut self.processes[0];
        // The caller may be inside a runtime, in which nothing may be waited for.
        std::thread::scope(|scope| {
            let ready = scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let runtime = runtime.expect("a runtime can be made");
                let client = runtime.block_on(client_of(&kubeconfig));
                wait_until("kube-apiserver is ready", PATIENCE, || {
                    assert!(api.is_running(), "kube-apiserver ended:\n{}", api.stderr());
                    let request = http::Request::get("/readyz").body(Vec::new()).expect("the request is complete");
                    runtime.block_on(client.request_text(request)).ok()
                });
            });
            ready.join().expect("kube-apiserver gets ready");
        });
    }

    /// Ends everything in order, and returns the folder with what was stored.
    fn stop(mut self) -> PathBuf {
        for process in self.processes.drain(..) {
            process.signal(Signal::TERM);
            process.wait();
        }
        self.folder.disable_cleanup(true);
        self.folder.path().to_owned()
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        for process in &mut self.processes {
            if process.is_running() {
                process.signal(Signal::KILL);
            }
        }
    }
}

/// The folder that a new server begins with.
fn prepared(programs: &Programs, definitions: &Path, kept: &Path) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let target = kept.join(format!("control-plane-{:016x}", origin(programs, definitions)));
    if !target.exists() {
        let folder = prepare(programs, definitions, kept);
        // Another process may have been faster: then what it made is as good.
        if fs::rename(&folder, &target).is_err() {
            fs::remove_dir_all(&folder).expect("a folder that is not needed can be removed");
        }
    }
    target
}

/// Changes with everything that the prepared folder is made from.
fn origin(programs: &Programs, definitions: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    include_str!("control_plane.rs").hash(&mut hasher);
    (&programs.etcd, &programs.api).hash(&mut hasher);
    let entries = fs::read_dir(definitions).expect("the folder of definitions can be read");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("the folder can be read").path()).collect();
    files.sort();
    for file in files {
        fs::read(&file).expect("a definition can be read").hash(&mut hasher);
    }
    hasher.finish()
}

fn prepare(programs: &Programs, definitions: &Path, kept: &Path) -> PathBuf {
    let folder = TempDir::new_in(kept).expect("a folder can be made where it is kept");
    found_authority(folder.path());
    let plane = ControlPlane::start_in(folder, programs);
    let kubectl = plane.kubectl();
    kubectl.ok(&format!("apply --server-side -f {}", definitions.display()));
    kubectl.ok(&format!("wait --for=condition=Established -f {} --timeout=110s", definitions.display()));
    for namespace in NAMESPACES {
        kubectl.ok(&format!("wait --for=create sa/default cm/kube-root-ca.crt -n {namespace} --timeout=110s"));
    }
    let folder = plane.stop();
    // Reserved for what was not written.
    for reserved in ["0.tmp", "1.tmp"] {
        let _ = fs::remove_file(folder.join("etcd/member/wal").join(reserved));
    }
    folder
}

impl Programs {
    #[track_caller]
    fn built() -> Self {
        let [etcd, api, controllers] = ["etcd", "kube-apiserver", "kube-controller-manager"].map(program);
        Self { etcd, api, controllers }
    }

    fn etcd(&self, folder: &Path, client: &str, peer: &str) -> Command {
        let mut command = Command::new(&self.etcd);
        command.current_dir(folder).args(["--data-dir", "etcd", "--unsafe-no-fsync", "--log-level", "warn"]);
        command.args(["--quota-backend-bytes", QUOTA]);
        command.args(["--listen-client-urls", client, "--advertise-client-urls", client]);
        command.args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]);
        command.args(["--initial-cluster", &format!("default={peer}")]);
        command
    }

    /// With its defaults, but for what the embedded server does not have: a judgement of who may do what, and of whose turn it is. History
    /// is kept for as long as it runs.
    fn api(&self, folder: &Path, etcd: &str, address: Ipv4Addr, port: u16) -> Command {
        let mut command = Command::new(&self.api);
        command.current_dir(folder).env("GOGC", GARBAGE).args(["--etcd-servers", etcd]);
        command.args(["--etcd-compaction-interval", "0"]);
        command.args(["--bind-address", &address.to_string(), "--secure-port", &port.to_string()]);
        // Nobody asks for this address, but it may not be one of loopback.
        command.args(["--advertise-address", "192.0.2.1", "--endpoint-reconciler-type", "none"]);
        command.args(["--service-cluster-ip-range", "10.96.0.0/16"]);
        command.args(["--tls-cert-file", "server.pem", "--tls-private-key-file", "server.key"]);
        command.args(["--token-auth-file", "tokens.csv", "--authorization-mode", "AlwaysAllow"]);
        command.arg("--enable-priority-and-fairness=false");
        command.args(["--service-account-issuer", "https://kubernetes.default.svc"]);
        command.args([
            "--service-account-key-file",
            "accounts.pub",
            "--service-account-signing-key-file",
            "accounts.key",
        ]);
        command
    }

    fn controllers(&self, folder: &Path) -> Command {
        let mut command = Command::new(&self.controllers);
        command.current_dir(folder).args(["--kubeconfig", "kubeconfig", "--secure-port", "0", "--leader-elect=false"]);
        command.args(["--service-account-private-key-file", "accounts.key", "--root-ca-file", "ca.pem"]);
        command.args(["--controllers", CONTROLLERS, "--kube-api-qps", "500", "--kube-api-burst", "1000"]);
        command
    }
}

#[track_caller]
fn program(name: &str) -> PathBuf {
    let mut command = Command::new(checkout().join("programs/build"));
    let path = PathBuf::from(Process::start(command.args(["--path", name])).wait().ok().trim());
    assert!(path.exists(), "{name} is not there: run programs/build {name}");
    path
}

/// An authority, the key of service accounts, and the one user.
fn found_authority(folder: &Path) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "authority of a test");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().expect("a key can be made");
    let key_pem = key.serialize_pem();
    let authority = CertifiedIssuer::self_signed(params, key).expect("the authority's certificate is complete");
    let accounts = KeyPair::generate().expect("a key can be made");
    for (name, text) in [
        ("ca.pem", authority.pem()),
        ("ca.key", key_pem),
        ("accounts.key", accounts.serialize_pem()),
        ("accounts.pub", accounts.public_key_pem()),
        ("tokens.csv", format!("{TOKEN},{USER},1,system:masters\n")),
    ] {
        fs::write(folder.join(name), text).expect("the folder can be written to");
    }
}

/// A certificate for a server at this address, from the authority in the folder.
fn certify(folder: &Path, address: Ipv4Addr) {
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect("the authority is in its folder");
    let authority = KeyPair::from_pem(&read("ca.key")).expect("the authority's key can be read");
    let authority = Issuer::from_ca_cert_pem(&read("ca.pem"), authority).expect("the authority can be read");
    let params = CertificateParams::new([address.to_string()]).expect("the address can be named");
    let key = KeyPair::generate().expect("a key can be made");
    let certificate = params.signed_by(&key, &authority).expect("the certificate is complete");
    fs::write(folder.join("server.pem"), certificate.pem()).expect("the folder can be written to");
    fs::write(folder.join("server.key"), key.serialize_pem()).expect("the folder can be written to");
}

/// Names files beside it.
fn kubeconfig(server: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
         clusters: [{{name: test, cluster: {{server: '{server}', certificate-authority: ca.pem}}}}]\n\
         users: [{{name: test, user: {{token: {TOKEN}}}}}]\n\
         contexts: [{{name: test, context: {{cluster: test, user: test}}}}]\n"
    )
}

/// An address of loopback for one server: only whoever listens at every address could be in its way.
fn own_address() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 128 + NEXT.fetch_add(1, Ordering::Relaxed) % 127, high, low.max(1))
}

/// For etcd's clients and peers and for kube-apiserver. Not from the range that the kernel hands out: between this look and their start somebody
/// might be given one of those at every address.
fn free_ports(address: Ipv4Addr) -> [u16; 3] {
    let mut free = (20_000..32_000).filter(|port| TcpListener::bind((address, *port)).is_ok());
    [(); 3].map(|()| free.next().expect("three ports are free"))
}
