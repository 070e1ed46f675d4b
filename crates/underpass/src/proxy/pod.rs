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
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tracing::warn;
use underpass_address::Interface;
use underpass_operator::Answer;
use underpass_plan::proxy_deployment::report_writer;
use underpass_plan::proxy_server::{Proofs, backends, crossings};
use underpass_resources::proxy_server::{MANAGER_PORT, METRICS_PORT, PodReport};
use underpass_resources::{HOSTED_CLUSTER_GROUP, ProxyServer, VERSION};
use underpass_tables::RelayTable;

use super::crossing;

/// However much happens, the cluster hears of it no more often.
const BETWEEN_REPORTS: Duration = Duration::from_secs(1);
/// How soon is tried again what did not work, and what did.
const TRY_AGAIN: Duration = Duration::from_secs(5);
const TRY_FOR_EVER: Duration = Duration::from_secs(30);
/// What is old news to us: somebody may have replaced the status, or restored the object without it.
const SAY_AGAIN: Duration = Duration::from_secs(120);
/// For the API server to take a report.
const SAY_TIME: Duration = Duration::from_secs(10);
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

    /// By which others may come to look, whatever they call it: that of the pod network. A client could name the pod's address too.
    pub(crate) fn device(&self) -> anyhow::Result<String> {
        Interface::holding(self.address).context("--pod-ip must be the pod's own address")
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
    /// None: nothing was tried yet.
    proofs: Option<Proofs>,
    /// What the cluster knows; None: nothing for certain.
    said: Option<PodReport>,
    said_at: Instant,
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
            proofs: None,
            said: None,
            said_at: Instant::now(),
        }
    }

    /// Reports until nobody says anything any more.
    pub(crate) async fn run(mut self) {
        loop {
            let Some(mut told) = self.newest.borrow_and_update().clone() else {
                if self.newest.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let begun = Instant::now();
            // What was refused is told without waiting for proofs.
            self.say(&told).await;
            if told.version.is_some() {
                let proofs = crossing::proofs(crossings(&told.proxy, &told.table), self.tls.clone());
                // On their own: their time goes on while something else is told.
                told = self.wait_for(tokio::spawn(proofs), told).await;
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

    /// Proofs may take long: what is refused meanwhile is told at once. The state that was told last.
    async fn wait_for(&mut self, mut proofs: JoinHandle<Proofs>, mut told: Told) -> Told {
        // `newest` itself is not to have seen what nothing was proven of.
        let mut newest = self.newest.clone();
        loop {
            tokio::select! {
                // However often something else is refused.
                biased;
                proofs = &mut proofs => {
                    self.proofs = proofs.ok();
                    return told;
                }
                newer = with_another_refusal(&mut newest, told.refusal.clone()) => {
                    told = newer;
                    self.say(&told).await;
                    sleep(BETWEEN_REPORTS).await;
                }
            }
        }
    }

    async fn say(&mut self, told: &Told) {
        let report = self.report(told).await;
        if self.said.as_ref() == Some(&report) && self.said_at.elapsed() < SAY_AGAIN {
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
        let patch = Patch::Apply(&body);
        let why = match timeout(SAY_TIME, self.objects.patch_status(name, &params, &patch)).await {
            Ok(Ok(_)) => {
                (self.said, self.said_at) = (Some(report), Instant::now());
                return;
            }
            Ok(Err(error)) => Answer::from(error).to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        // It may have been taken all the same.
        self.said = None;
        warn!(why, "the ProxyServer cannot be told what became of it; trying again");
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
            backends: backends(&told.proxy, &told.table, self.proofs.as_ref(), &healthy),
        }
    }
}

/// The next state that refuses something else than this.
async fn with_another_refusal(newest: &mut watch::Receiver<Option<Told>>, refusal: Option<String>) -> Told {
    let is_other = |told: &Option<Told>| told.as_ref().is_some_and(|told| told.refusal != refusal);
    let found = newest.wait_for(is_other).await.ok().and_then(|found| found.clone());
    match found {
        Some(told) => told,
        // There will be none any more.
        None => std::future::pending().await,
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
    #[serde(default)]
    eds_health_status: String,
}

/// How many endpoints of each route take connections.
async fn healthy(admin: SocketAddr) -> anyhow::Result<BTreeMap<String, usize>> {
    well(&page(admin, "/clusters?format=json").await?)
}

/// Whether a data plane works there already.
pub(super) async fn is_live(admin: SocketAddr) -> bool {
    timeout(ADMIN_TIME, page(admin, "/ready")).await.is_ok_and(|page| page.is_ok())
}

/// What the admin port says about that; an error if it does not.
async fn page(admin: SocketAddr, path: &str) -> anyhow::Result<Bytes> {
    let stream = TcpStream::connect(admin).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = http::Request::get(path).header(http::header::HOST, "localhost");
    let asking = async {
        let answer = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
        anyhow::ensure!(answer.status().is_success(), "it answers {}", answer.status());
        let body = Limited::new(answer.into_body(), ADMIN_BYTES).collect().await;
        body.map(Collected::to_bytes).map_err(|error| anyhow::anyhow!("{error}"))
    };
    tokio::select! {
        text = asking => text,
        ended = connection => { ended?; anyhow::bail!("the admin port hung up") }
    }
}

fn well(page: &[u8]) -> anyhow::Result<BTreeMap<String, usize>> {
    let clusters: Clusters = serde_json::from_slice(page).context("the admin port's page has another form")?;
    let is_well = |host: &&Host| {
        let Health { failed_active_health_check, failed_outlier_check, eds_health_status } = &host.health_status;
        !failed_active_health_check && !failed_outlier_check && eds_health_status != "DRAINING"
    };
    let count = |cluster: Cluster| {
        let healthy = cluster.host_statuses.iter().filter(is_well).count();
        (cluster.name, healthy)
    };
    Ok(clusters.cluster_statuses.into_iter().map(count).collect())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::Value;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::{mpsc, oneshot};
    use tower::service_fn;
    use underpass_plan::proxy_server::Passage;

    use super::*;

    /// One that is told nothing yet says 503 of itself, and is not worth waiting for.
    #[tokio::test]
    async fn a_data_plane_lives_when_it_says_so() {
        for (status, expected) in [("200 OK", true), ("503 Service Unavailable", false)] {
            let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let admin = listener.local_addr().unwrap();
            let answering = async {
                let (mut client, _) = listener.accept().await.unwrap();
                let asked = client.read(&mut [0; 1024]).await.unwrap();
                assert!(asked > 0);
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                client.write_all(answer.as_bytes()).await.unwrap();
                client
            };
            let (live, _client) = tokio::join!(is_live(admin), answering);
            assert_eq!(live, expected, "{status}");
        }
        let nobody = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
        assert!(!is_live(nobody).await);
    }

    /// A reporter to the cluster behind that client, and who tells it what is new.
    fn reporter(client: Client) -> (Reporter, watch::Sender<Option<Told>>) {
        let pod = Pod { name: "edge-1".to_owned(), address: Ipv4Addr::LOCALHOST.into() };
        let (told, newest) = watch::channel(None);
        // Nobody is there.
        let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        (Reporter::new(client, "cp", &pod, admin, newest), told)
    }

    fn told(refusal: Option<&str>) -> Told {
        let proxy = json!({
            "apiVersion": format!("{HOSTED_CLUSTER_GROUP}/{VERSION}"), "kind": "ProxyServer",
            "metadata": { "name": "edge", "namespace": "cp" },
            "spec": { "networkConfig": { "serverIP": "192.0.2.4/24" }, "backends": [] },
        });
        Told {
            proxy: Arc::new(serde_json::from_value(proxy).unwrap()),
            table: Arc::default(),
            version: Some("1".to_owned()),
            refusal: refusal.map(str::to_owned),
        }
    }

    /// An API server that takes everything, and what it is told to be refused.
    fn listening() -> (Client, mpsc::UnboundedReceiver<Value>) {
        let (tell, heard) = mpsc::unbounded_channel();
        let service = service_fn(move |request: Request<Body>| {
            let tell = tell.clone();
            async move {
                let text = request.into_body().collect().await?.to_bytes();
                let object: Value = serde_json::from_slice(&text).unwrap();
                tell.send(object["status"]["pods"][0]["rejected"].clone()).unwrap();
                let answer = serde_json::to_vec(&*told(None).proxy).unwrap();
                Ok::<_, tower::BoxError>(Response::new(Body::from(answer)))
            }
        });
        (Client::new(service, "cp"), heard)
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_does_not_answer_is_not_waited_for() {
        let silent = service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, std::io::Error>>());
        let (mut reporter, _newest) = reporter(Client::new(silent, "cp"));
        reporter.said = Some(PodReport::default());
        let patience = SAY_TIME + ADMIN_TIME + Duration::from_secs(1);
        timeout(patience, reporter.say(&told(None))).await.expect("a report has a deadline");
        assert_eq!(reporter.said, None, "nobody knows what became of it");
    }

    /// A status that somebody has replaced has all pods in it again.
    #[tokio::test(start_paused = true)]
    async fn what_was_said_long_ago_is_said_again() {
        let (client, mut heard) = listening();
        let (mut reporter, _newest) = reporter(client);
        reporter.say(&told(None)).await;
        reporter.say(&told(None)).await;
        heard.try_recv().expect("it is told");
        assert!(heard.try_recv().is_err(), "nothing is told twice");
        sleep(SAY_AGAIN).await;
        reporter.say(&told(None)).await;
        heard.try_recv().expect("it is told again");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_does_not_wait_for_proofs_nor_these_for_it() {
        let (client, mut heard) = listening();
        let (mut reporter, newest) = reporter(client);
        let (prove, proven) = oneshot::channel::<Proofs>();
        let proofs = tokio::spawn(async { proven.await.unwrap() });
        newest.send_replace(Some(told(None)));
        reporter.newest.mark_unchanged();
        let waiting = tokio::spawn(async move {
            let last = reporter.wait_for(proofs, told(None)).await;
            (reporter, last)
        });
        for refused in ["one", "other"] {
            newest.send_replace(Some(told(Some(refused))));
            let said = timeout(ADMIN_TIME + BETWEEN_REPORTS * 2, heard.recv()).await.expect("it is told at once");
            assert_eq!(said.unwrap(), refused);
        }
        newest.send_replace(Some(told(Some("other"))));
        let proofs = Proofs::from([(Passage::default(), Err("closed".to_owned()))]);
        prove.send(proofs.clone()).unwrap();
        let (reporter, last) = waiting.await.unwrap();
        assert_eq!(reporter.proofs, Some(proofs), "what was under way is not lost");
        assert_eq!(last.refusal.as_deref(), Some("other"), "what was told is not taken back");
        assert!(reporter.newest.has_changed().unwrap(), "and is proven next");
        assert!(heard.try_recv().is_err(), "nothing is told twice");
    }

    /// A refusal with every breath: the proofs are heard all the same.
    #[tokio::test(start_paused = true)]
    async fn constant_changes_do_not_starve_proofs() {
        let (client, _heard) = listening();
        let (mut reporter, newest) = reporter(client);
        let changing = tokio::spawn(async move {
            for number in 0.. {
                newest.send_replace(Some(told(Some(&format!("refusal {number}")))));
                sleep(Duration::from_millis(100)).await;
            }
        });
        let proofs = tokio::spawn(async {
            sleep(Duration::from_secs(3)).await;
            Proofs::new()
        });
        timeout(Duration::from_secs(3) + ADMIN_TIME + BETWEEN_REPORTS, reporter.wait_for(proofs, told(None)))
            .await
            .expect("the proofs were made");
        changing.abort();
    }

    #[test]
    fn whoever_gets_no_connections_is_not_counted() {
        let hosts = [
            json!({ "health_status": { "eds_health_status": "HEALTHY" } }),
            json!({ "health_status": { "eds_health_status": "DRAINING" } }),
            json!({ "health_status": { "eds_health_status": "HEALTHY", "failed_active_health_check": true } }),
            json!({ "health_status": { "eds_health_status": "HEALTHY", "failed_outlier_check": true } }),
        ];
        let page = json!({ "cluster_statuses": [{ "name": "edge-api", "host_statuses": hosts }, { "name": "admin" }] });
        let expected = BTreeMap::from([("edge-api".to_owned(), 1), ("admin".to_owned(), 0)]);
        assert_eq!(well(page.to_string().as_bytes()).unwrap(), expected);
    }
}
