//! What a pod of a ProxyServer tells the cluster of itself: what its data plane runs, what it refused, and whether connections cross it.
//!
//! It stands in the ProxyServer's status, where every pod has an entry of its own; the operator makes conditions of it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http_body_util::{BodyExt, Collected, Empty, Limited};
use hyper_util::rt::TokioIo;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tracing::warn;
use underpass_operator::Answer;
use underpass_plan::proxy_deployment::report_writer;
use underpass_plan::proxy_server::{backends, crossings};
use underpass_resources::proxy_server::{MANAGER_PORT, METRICS_PORT, PodReport};
use underpass_resources::{HOSTED_CLUSTER_GROUP, ProxyServer, VERSION};
use underpass_tables::RelayTable;

use super::crossing;

/// However much happens, the cluster hears of it no more often.
const BETWEEN_REPORTS: Duration = Duration::from_secs(1);
/// How soon is tried again what did not work, and what did.
const TRY_AGAIN: Duration = Duration::from_secs(5);
const TRY_FOR_EVER: Duration = Duration::from_secs(30);
/// What the data plane says about its endpoints.
const ADMIN_TIME: Duration = Duration::from_secs(2);
const ADMIN_BYTES: usize = 32 * 1024 * 1024;

/// Where this process runs, in a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(crate) name: String,
    /// On the pod network, where others may look; not on the network of the clients.
    pub(crate) address: IpAddr,
}

impl Pod {
    pub(crate) fn metrics(&self) -> SocketAddr {
        (self.address, METRICS_PORT).into()
    }

    pub(crate) fn pages(&self) -> SocketAddr {
        (self.address, MANAGER_PORT).into()
    }
}

/// What the data plane was told last, and what it made of it.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) proxy: Arc<ProxyServer>,
    pub(crate) table: Arc<RelayTable>,
    /// None: it does not run it yet.
    pub(crate) version: Option<String>,
    pub(crate) refusal: Option<String>,
}

pub(crate) struct Reporter {
    objects: Api<ProxyServer>,
    pod: String,
    admin: SocketAddr,
    tls: TlsConnector,
    newest: watch::Receiver<Option<Told>>,
    /// Backends that were tried in vain, and why; None: nothing was tried yet.
    failed: Option<BTreeMap<String, String>>,
    /// What the cluster knows.
    said: Option<PodReport>,
}

impl Reporter {
    pub(crate) fn new(
        client: Client,
        namespace: &str,
        pod: &Pod,
        admin: SocketAddr,
        newest: watch::Receiver<Option<Told>>,
    ) -> Self {
        Self {
            objects: Api::namespaced(client, namespace),
            pod: pod.name.clone(),
            admin,
            tls: underpass_relay::any_certificate(),
            newest,
            failed: None,
            said: None,
        }
    }

    /// Reports until nobody says anything any more.
    pub(crate) async fn run(mut self) {
        loop {
            let Some(told) = self.newest.borrow_and_update().clone() else {
                if self.newest.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let begun = Instant::now();
            // What was refused is told without waiting for proofs.
            self.say(&told).await;
            if told.version.is_some() {
                self.failed = Some(crossing::failed(crossings(&told.proxy, &told.table), &self.tls).await);
                self.say(&told).await;
            }
            sleep_until(begun + BETWEEN_REPORTS).await;
            let all_well = self.said.as_ref().is_some_and(|said| said.backends.iter().all(|backend| backend.ready));
            tokio::select! {
                changed = self.newest.changed() => if changed.is_err() { return },
                () = sleep(if all_well { TRY_FOR_EVER } else { TRY_AGAIN }) => {}
            }
        }
    }

    async fn say(&mut self, told: &Told) {
        let report = self.report(told).await;
        if self.said.as_ref() == Some(&report) {
            return;
        }
        let name = told.proxy.metadata.name.as_deref().unwrap_or_default();
        let body = json!({
            "apiVersion": format!("{HOSTED_CLUSTER_GROUP}/{VERSION}"),
            "kind": "ProxyServer",
            "metadata": { "name": name },
            "status": { "pods": [report] },
        });
        let params = PatchParams::apply(&report_writer(&self.pod)).force();
        match self.objects.patch_status(name, &params, &Patch::Apply(&body)).await {
            Ok(_) => self.said = Some(report),
            Err(error) => {
                warn!(why = %Answer::from(error), "the ProxyServer cannot be told what became of it; trying again");
            }
        }
    }

    async fn report(&self, told: &Told) -> PodReport {
        let healthy = match timeout(ADMIN_TIME, healthy(self.admin)).await {
            Ok(Ok(healthy)) => healthy,
            // It has not begun, or has no time: its own probes tell that.
            Ok(Err(_)) | Err(_) => BTreeMap::new(),
        };
        PodReport {
            name: self.pod.clone(),
            observed_generation: told.proxy.metadata.generation,
            configuration_version: told.version.clone(),
            rejected: told.refusal.clone(),
            backends: backends(&told.proxy, &told.table, self.failed.as_ref(), &healthy),
        }
    }
}

/// The page that both data planes have.
#[derive(Deserialize)]
struct Clusters {
    #[serde(default)]
    cluster_statuses: Vec<Cluster>,
}

#[derive(Deserialize)]
struct Cluster {
    name: String,
    #[serde(default)]
    host_statuses: Vec<Host>,
}

#[derive(Deserialize)]
struct Host {
    #[serde(default)]
    health_status: Health,
}

#[derive(Default, Deserialize)]
struct Health {
    #[serde(default)]
    failed_active_health_check: bool,
    #[serde(default)]
    failed_outlier_check: bool,
}

/// How many endpoints of each route take connections.
async fn healthy(admin: SocketAddr) -> anyhow::Result<BTreeMap<String, usize>> {
    let stream = TcpStream::connect(admin).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = http::Request::get("/clusters?format=json").header(http::header::HOST, "localhost");
    let asking = async {
        let answer = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
        let body = Limited::new(answer.into_body(), ADMIN_BYTES).collect().await;
        body.map(Collected::to_bytes).map_err(|error| anyhow::anyhow!("{error}"))
    };
    let text = tokio::select! {
        text = asking => text?,
        ended = connection => { ended?; anyhow::bail!("the admin port hung up") }
    };
    let clusters: Clusters = serde_json::from_slice(&text).context("the admin port's page has another form")?;
    let is_well = |host: &&Host| {
        let Health { failed_active_health_check, failed_outlier_check } = host.health_status;
        !failed_active_health_check && !failed_outlier_check
    };
    let count = |cluster: Cluster| {
        let healthy = cluster.host_statuses.iter().filter(is_well).count();
        (cluster.name, healthy)
    };
    Ok(clusters.cluster_statuses.into_iter().map(count).collect())
}
