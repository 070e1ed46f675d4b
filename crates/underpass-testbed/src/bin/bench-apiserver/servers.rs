//! The two servers, each on a fixed port and with its data in a folder, so that it can be started again on the same data.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use kube::Client;
use serde_json::Value;

use crate::client;
use crate::process::Spawned;

/// How often a starting server is asked; short beside the shortest start.
const ASK_AGAIN: Duration = Duration::from_millis(2);
const TOKEN: &str = "bench-token";

pub(crate) trait Server {
    fn name(&self) -> &'static str;
    /// Starts its processes; the first one is what the start is measured from.
    fn spawn(&self) -> anyhow::Result<Vec<Spawned>>;
    /// Its kubeconfig, once it has written what is needed for one.
    fn kubeconfig(&self) -> anyhow::Result<String>;
}

pub(crate) struct Running {
    pub(crate) processes: Vec<Spawned>,
    pub(crate) client: Client,
    pub(crate) kubeconfig: String,
    /// From exec to the first good answer of /readyz.
    pub(crate) took: Duration,
}

pub(crate) async fn start(server: &impl Server, patience: Duration) -> anyhow::Result<Running> {
    let started = Instant::now();
    let mut processes = server.spawn()?;
    let mut connected = None;
    while started.elapsed() < patience {
        processes.iter_mut().try_for_each(Spawned::still_runs)?;
        if connected.is_none() {
            connected = match server.kubeconfig() {
                Ok(kubeconfig) => Some((client::connect(&kubeconfig).await?, kubeconfig)),
                Err(_) => None,
            };
        }
        if let Some((client, kubeconfig)) = &connected
            && client::is_ready(client).await
        {
            let took = started.elapsed();
            return Ok(Running { processes, client: client.clone(), kubeconfig: kubeconfig.clone(), took });
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
    bail!("{} is not ready after {patience:?}", server.name())
}

/// The definitions of all our kinds.
pub(crate) fn definitions(underpass: &Path) -> anyhow::Result<Vec<Value>> {
    let output = Command::new(underpass).args(["crds", "-o", "json"]).output().context("cannot run underpass crds")?;
    let list: Value =
        serde_json::from_slice(&output.stdout).context("underpass crds printed something else than JSON")?;
    Ok(list["items"].as_array().context("underpass crds printed no list")?.clone())
}

/// Makes sure that all definitions are there: the embedded server brings them along.
pub(crate) async fn install(client: &Client, crds: &[Value]) -> anyhow::Result<()> {
    for crd in crds {
        let made =
            client::post(client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd.to_string()).await;
        let exists = |error: &anyhow::Error| matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 409);
        if let Err(error) = made
            && !exists(&error)
        {
            return Err(error);
        }
    }
    Ok(())
}

pub(crate) struct Underpass {
    program: PathBuf,
    folder: PathBuf,
    port: u16,
}

impl Underpass {
    pub(crate) fn new(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        Ok(Self { program: program.to_owned(), folder: folder.to_owned(), port: free_port()? })
    }
}

impl Server for Underpass {
    fn name(&self) -> &'static str {
        "underpass"
    }

    fn spawn(&self) -> anyhow::Result<Vec<Spawned>> {
        let mut command = Command::new(&self.program);
        command.arg("apiserver").args(["--listen", &format!("127.0.0.1:{}", self.port)]);
        command.arg("--data-dir").arg(self.folder.join("data"));
        Ok(vec![Spawned::start(&mut command, &self.folder.join("underpass.log"))?])
    }

    fn kubeconfig(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(self.folder.join("data/kubeconfig"))?)
    }
}

pub(crate) struct Kubernetes {
    api: PathBuf,
    etcd: PathBuf,
    folder: PathBuf,
    port: u16,
    etcd_client: String,
    etcd_peer: String,
}

impl Kubernetes {
    pub(crate) fn new(api: &Path, etcd: &Path, folder: &Path) -> anyhow::Result<Self> {
        let key = rcgen::KeyPair::generate()?;
        std::fs::write(folder.join("accounts.key"), key.serialize_pem())?;
        std::fs::write(folder.join("accounts.pub"), key.public_key_pem())?;
        std::fs::write(folder.join("tokens.csv"), format!("{TOKEN},admin,1,\"system:masters\"\n"))?;
        let local = |port: u16| format!("http://127.0.0.1:{port}");
        Ok(Self {
            // kube-apiserver runs in its folder.
            api: std::path::absolute(api)?,
            etcd: etcd.to_owned(),
            folder: folder.to_owned(),
            port: free_port()?,
            etcd_client: local(free_port()?),
            etcd_peer: local(free_port()?),
        })
    }

    /// As it comes: every write is synced to disk.
    fn etcd(&self) -> Command {
        let mut command = Command::new(&self.etcd);
        command.arg("--data-dir").arg(self.folder.join("etcd"));
        command.args(["--listen-client-urls", &self.etcd_client, "--advertise-client-urls", &self.etcd_client]);
        command.args(["--listen-peer-urls", &self.etcd_peer, "--initial-advertise-peer-urls", &self.etcd_peer]);
        command.args(["--initial-cluster", &format!("default={}", self.etcd_peer), "--log-level", "warn"]);
        command
    }

    /// With its defaults, but without a judgement of who may do what: ours has none either.
    fn api(&self) -> Command {
        let mut command = Command::new(&self.api);
        command.current_dir(&self.folder).args(["--etcd-servers", &self.etcd_client]);
        command.args(["--bind-address", "127.0.0.1", "--secure-port", &self.port.to_string(), "--cert-dir", "pki"]);
        command.args(["--token-auth-file", "tokens.csv", "--authorization-mode", "AlwaysAllow"]);
        command.args([
            "--service-account-key-file",
            "accounts.pub",
            "--service-account-signing-key-file",
            "accounts.key",
        ]);
        command.args(["--service-account-issuer", "https://kubernetes.default.svc"]);
        command.args(["--service-cluster-ip-range", "10.96.0.0/16"]);
        command
    }
}

impl Server for Kubernetes {
    fn name(&self) -> &'static str {
        "kube-apiserver + etcd"
    }

    fn spawn(&self) -> anyhow::Result<Vec<Spawned>> {
        let etcd = Spawned::start(&mut self.etcd(), &self.folder.join("etcd.log"))?;
        let api = Spawned::start(&mut self.api(), &self.folder.join("kube-apiserver.log"))?;
        // In the order in which they are to end: kube-apiserver waits for an etcd that is gone.
        Ok(vec![api, etcd])
    }

    /// Its certificate names its own CA behind it, in the file that it makes at its first start.
    fn kubeconfig(&self) -> anyhow::Result<String> {
        let certificate = self.folder.join("pki/apiserver.crt");
        anyhow::ensure!(certificate.exists(), "kube-apiserver has not written its certificate yet");
        let (port, certificate) = (self.port, certificate.display());
        Ok(format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: bench\n\
             clusters: [{{name: bench, cluster: {{server: 'https://127.0.0.1:{port}', certificate-authority: '{certificate}'}}}}]\n\
             users: [{{name: bench, user: {{token: {TOKEN}}}}}]\n\
             contexts: [{{name: bench, context: {{cluster: bench, user: bench}}}}]\n"
        ))
    }
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
