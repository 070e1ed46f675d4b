//! Our own tunnel, as people run it: `underpass up`, and a ContainerNetwork with a ContainerNetworkTunnelProxy that are applied.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::{Value, json};
use underpass_testbed::load::client;
use underpass_testbed::{Kubectl, Launch, PATIENCE, Signal, Underpass, look_until};

use super::{Bed, Running};
use crate::site::Site;

const NAME: &str = "bench";
/// How often the status is looked at while a time is taken.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// `underpass up` that runs. It is asked once to end when this value goes, and takes everything with it.
pub(crate) struct Ours<'a> {
    site: &'a Site,
    up: Underpass,
    kubectl: Kubectl,
    proxies: Api<DynamicObject>,
    servers: super::Services<SocketAddr>,
}

/// How a tunnel proxy came up.
pub(crate) struct Started {
    /// From the start of `kubectl apply` to the first byte from the server.
    pub(crate) first_byte: Duration,
    /// The image of the half in the network.
    pub(crate) image: String,
}

pub(super) fn start<'a>(bed: &Bed<'a>) -> anyhow::Result<Running<'a>> {
    let ours = Ours::up(bed)?;
    ours.kubectl.ok_with("apply -f -", &ours.objects());
    let reached = ours.servers.map(|name, _| ours.reached(name));
    let services =
        super::Services { greet: reached.greet?, hold: reached.hold?, echo: reached.echo?, bulk: reached.bulk? };
    let pids = ours.pids()?;
    bed.site.forget_at_the_end(bed.program, ours.image()?);
    let folder = tempfile::tempdir()?;
    Ok(Running { services, pids, host: Vec::new(), _guest: None, _ours: Some(ours), _folder: folder })
}

impl<'a> Ours<'a> {
    pub(crate) fn up(bed: &Bed<'a>) -> anyhow::Result<Self> {
        let program = bed.program.to_str().context("the path of underpass is no text")?;
        let (variable, address) = bed.site.engine.variable();
        let up = Launch::up(program).apart().durable().env(variable, address).start();
        let kind = GroupVersionKind::gvk("underpass.dev", "v1alpha1", "ContainerNetworkTunnelProxy");
        let resource = ApiResource::from_gvk_with_plural(&kind, "containernetworktunnelproxies");
        let proxies = Api::all_with(bed.site.runtime.block_on(up.client()), &resource);
        let kubectl = up.kubectl();
        // What kinds there are is asked once a day, not once an apply.
        kubectl.ok("get cntp");
        Ok(Self { site: bed.site, up, kubectl, proxies, servers: bed.servers })
    }

    /// Applies everything, and takes the time until a server has answered through it.
    pub(crate) fn first_byte(&self) -> anyhow::Result<Started> {
        let (kubectl, objects) = (&self.kubectl, self.objects());
        std::thread::scope(|scope| {
            let began = Instant::now();
            let applying = scope.spawn(|| kubectl.run_with("apply -f -", &objects));
            let address = self.reached("greet")?;
            client::greeted(address, NAME)?;
            let first_byte = began.elapsed();
            let applied = applying.join().ok().filter(|ended| ended.code == Some(0));
            applied.context("kubectl apply failed")?;
            Ok(Started { first_byte, image: self.image()? })
        })
    }

    /// From the write that adds one tunnel until it is Ready.
    pub(crate) fn add_tunnel(&self) -> anyhow::Result<Duration> {
        let mut tunnels = self.tunnels();
        tunnels.push(tunnel("added", self.servers.greet));
        let patch = Patch::Merge(json!({ "spec": { "tunnels": tunnels } }));
        let began = Instant::now();
        self.site.runtime.block_on(self.proxies.patch(NAME, &PatchParams::default(), &patch))?;
        self.reached("added")?;
        Ok(began.elapsed())
    }

    /// Where clients reach a service, as soon as its tunnel is Ready.
    fn reached(&self, name: &str) -> anyhow::Result<SocketAddr> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            if let Some(address) = reached_at(&status, name) {
                return Ok(address);
            }
            if Instant::now() > deadline || status["state"] == "Failed" {
                bail!("the tunnel to {name} does not come: {status:#}");
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Nothing as long as there is none.
    fn status(&self) -> Value {
        let object = self.site.runtime.block_on(self.proxies.get_opt(NAME)).ok().flatten();
        object.map(|mut object| object.data["status"].take()).unwrap_or_default()
    }

    /// Of the half in the network.
    fn image(&self) -> anyhow::Result<String> {
        let image = self.status()["clientProxyContainerImage"].as_str().map(str::to_owned);
        image.context("the status names no image")
    }

    /// Of the half on the host and the half in the container.
    fn pids(&self) -> anyhow::Result<Vec<u32>> {
        let status = self.status();
        let server = status["serverProxyProcessId"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        let container = status["clientProxyContainerId"].as_str().context("the status names no container")?;
        Ok(vec![server.context("the status names no process")?, self.site.pid(container)?])
    }

    fn tunnels(&self) -> Vec<Value> {
        self.servers.each().map(|(name, server)| tunnel(name, server)).to_vec()
    }

    fn objects(&self) -> String {
        let object = |kind: &str, spec: Value| json!({ "apiVersion": "underpass.dev/v1alpha1", "kind": kind, "metadata": { "name": NAME }, "spec": spec });
        let network = object("ContainerNetwork", json!({}));
        let proxy =
            object("ContainerNetworkTunnelProxy", json!({ "containerNetworkName": NAME, "tunnels": self.tunnels() }));
        format!("{network}\n{proxy}\n")
    }
}

fn tunnel(name: &str, server: SocketAddr) -> Value {
    json!({ "name": name, "serverAddress": server.ip().to_string(), "serverPort": server.port() })
}

fn reached_at(status: &Value, name: &str) -> Option<SocketAddr> {
    let tunnels = status["tunnelStatuses"].as_array()?;
    let tunnel = tunnels.iter().find(|tunnel| tunnel["name"] == name && tunnel["state"] == "Ready")?;
    let addresses = tunnel["clientProxyAddresses"].as_array()?.iter();
    let address: IpAddr = addresses.filter_map(|address| address.as_str()?.parse().ok()).find(IpAddr::is_ipv4)?;
    Some(SocketAddr::new(address, tunnel["clientProxyPort"].as_u64()?.try_into().ok()?))
}

/// A second signal would be an order to leave everything behind.
impl Drop for Ours<'_> {
    fn drop(&mut self) {
        let process = self.up.process();
        if process.is_running() {
            process.signal(Signal::INT);
            look_until(PATIENCE, || (!process.is_running()).then_some(()));
        }
    }
}
