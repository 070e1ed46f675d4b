//! From where people say it to where it is in effect: our own program, told by a file or by objects of an API server. Nothing stands
//! beside it: what others would have here is not a part of go-control-plane.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client as Kubernetes};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use underpass_testbed::report::Contender as _;
use underpass_testbed::{Launch, Process, Underpass, interrupt};
use underpass_xds::Kind;

use crate::backends::PER_LISTENER;
use crate::client::Sign;
use crate::clients::Clients;
use crate::measure::{Amounts, Measure, at_share};
use crate::planes::Plane;
use crate::report::Results;
use crate::wire::Dialect;

pub(crate) const IN_FILES: [usize; 4] = [10, 1_000, 10_000, 50_000];
/// An API server takes at most 256 in one object.
pub(crate) const IN_CLUSTER: usize = 250;
pub(crate) const CHANGES: usize = 20;
const NAMESPACE: &str = "tenants";
const PROXY: &str = "edge";

pub(crate) fn measure(runtime: &Runtime, program: &Path, amounts: &Amounts, results: &mut Results) {
    let cluster = std::iter::once(Measure::FromCluster(IN_CLUSTER));
    for measure in IN_FILES.into_iter().map(Measure::FromFile).chain(cluster) {
        for _ in 0..amounts.repeats {
            if interrupt::came() {
                return;
            }
            let sample = match measure {
                Measure::FromFile(backends) => from_file(runtime, program, backends),
                _ => from_cluster(runtime, program),
            };
            match sample {
                Ok(time) => results.add(Plane::OURS, vec![(measure, time)]),
                Err(error) => results.note(Plane::OURS, &format!("{measure:?}: {error:#}")),
            }
        }
    }
}

/// From the moment at which a changed file is in place.
fn from_file(runtime: &Runtime, program: &Path, backends: usize) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("edge.yaml");
    let mut documents: Vec<String> = documents(backends).iter().map(Value::to_string).collect();
    std::fs::write(&path, documents.join("\n---\n"))?;
    let proxy = Fed::start(Launch::command(text(program)?, "proxy").file(&path))?;
    let changed = backends / 2;
    let place = documents.len() - backends + changed;
    proxy.changes(runtime, backends, |number| {
        documents[place] = slice(changed, &host(number)).to_string();
        let new = folder.path().join("new");
        std::fs::write(&new, documents.join("\n---\n"))?;
        let at = Instant::now();
        std::fs::rename(&new, &path)?;
        Ok(at)
    })
}

/// From the moment at which the write is sent.
fn from_cluster(runtime: &Runtime, program: &Path) -> anyhow::Result<f64> {
    let server = Launch::apiserver(text(program)?).apart().start();
    let kubernetes = fill(runtime, &server)?;
    let launch = Launch::command(text(program)?, "proxy").args(["--proxy-name", PROXY, "--namespace", NAMESPACE]);
    let proxy = Fed::start(launch.arg("--kubeconfig").arg(server.kubeconfig()))?;
    let changed = IN_CLUSTER / 2;
    let slices: Api<EndpointSlice> = Api::namespaced(kubernetes, NAMESPACE);
    proxy.changes(runtime, IN_CLUSTER, |number| {
        let patch = json!({ "endpoints": slice(changed, &host(number))["endpoints"] });
        let at = Instant::now();
        runtime.block_on(slices.patch(&name(changed), &PatchParams::default(), &Patch::Merge(patch)))?;
        Ok(at)
    })
}

fn fill(runtime: &Runtime, server: &Underpass) -> anyhow::Result<Kubernetes> {
    let file = tempfile::NamedTempFile::new()?;
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    let all: Vec<Value> = std::iter::once(namespace).chain(documents(IN_CLUSTER)).collect();
    std::fs::write(&file, json!({ "apiVersion": "v1", "kind": "List", "items": all }).to_string())?;
    server.kubectl().ok(&format!("apply -f {}", file.path().display()));
    Ok(runtime.block_on(server.client()))
}

/// `underpass proxy` that feeds others. It ends with this value.
struct Fed {
    _process: Process,
    _home: TempDir,
    address: SocketAddr,
}

impl Fed {
    fn start(launch: Launch) -> anyhow::Result<Self> {
        let launch = launch.args(["--xds-port", "0", "--admin", "127.0.0.1:0", "--output", "json"]).apart();
        let (mut process, home) = launch.env("RUST_LOG", "warn").spawn();
        let line = process.wait_for_stdout("where xDS is served", |text| text.lines().next().map(str::to_owned));
        let said: Value = serde_json::from_str(&line)?;
        let address = said["xds"].as_str().context("it does not say where xDS is served")?.parse()?;
        Ok(Self { _process: process, _home: home, address })
    }

    /// The median time, in milliseconds, until one client knows of a change.
    fn changes(
        &self,
        runtime: &Runtime,
        backends: usize,
        mut change: impl FnMut(usize) -> anyhow::Result<Instant>,
    ) -> anyhow::Result<f64> {
        let loaded = [Sign::Count(Kind::Cluster, backends), Sign::Count(Kind::Endpoints, backends)];
        let loaded = [loaded.as_slice(), &[Sign::Count(Kind::Listener, backends.div_ceil(PER_LISTENER))]].concat();
        let node = |_| format!("{NAMESPACE}/{PROXY}");
        let mut clients = Clients::connect(runtime, self.address, (Dialect::Delta, 1), node, &loaded)?;
        let mut times: Vec<Duration> = Vec::new();
        for number in 0..CHANGES {
            clients.expect(&[Sign::Text(Kind::Endpoints, host(number))])?;
            let at = change(number)?;
            times.push(clients.wait()?.saturating_duration_since(at));
        }
        times.sort();
        Ok(at_share(&times, 0.5))
    }
}

/// The object, its Services, and at the end their endpoints.
fn documents(backends: usize) -> Vec<Value> {
    let all: Vec<Value> = (0..backends).map(backend).collect();
    let proxy = json!({
        "apiVersion": "hostedcluster.densityops.com/v1alpha1",
        "kind": "ProxyServer",
        "metadata": { "name": PROXY, "namespace": NAMESPACE },
        "spec": { "dataPlane": "Envoy", "networkConfig": { "serverIP": "127.0.0.1" }, "backends": all },
    });
    let services = (0..backends).map(service);
    let slices = (0..backends).map(|number| slice(number, "192.0.2.1"));
    std::iter::once(proxy).chain(services).chain(slices).collect()
}

fn backend(number: usize) -> Value {
    json!({
        "name": name(number),
        "hostname": format!("{}.example.com", name(number)),
        "port": 10_000 + number / PER_LISTENER,
        "targetService": name(number),
        "targetNamespace": NAMESPACE,
        "targetPort": 443,
        "protocol": "TLS",
    })
}

fn service(number: usize) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": name(number), "namespace": NAMESPACE },
        "spec": { "ports": [{ "name": "tls", "port": 443, "protocol": "TCP" }] },
    })
}

fn slice(number: usize, host: &str) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name(number),
            "namespace": NAMESPACE,
            "labels": { "kubernetes.io/service-name": name(number) },
        },
        "addressType": "IPv4",
        "ports": [{ "name": "tls", "port": 8443, "protocol": "TCP" }],
        "endpoints": [{ "addresses": [host], "conditions": { "ready": true } }],
    })
}

fn name(number: usize) -> String {
    format!("backend-{number:05}")
}

/// None of which is a part of another.
fn host(number: usize) -> String {
    format!("198.51.100.{}", 100 + number)
}

fn text(program: &Path) -> anyhow::Result<&str> {
    program.to_str().context("the path of the program is no text")
}
