//! What is asked of a pair, and shown of its tunnels: one that is slow or refused is no other's trouble. The pair is real, and in this
//! process; only how it resolves names is the test's.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use futures::future::{FutureExt, pending};
use futures::stream::StreamExt;
use serde_json::json;
use support::{Diary, FakeApi, MemoryEngine, outside, pace};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use underpass_engines::ContainerEngine;
use underpass_operator::{Applied, Applier, Key, Metrics, Outside, Pairs};
use underpass_plan::tunnel_proxy::Pair as Seen;
use underpass_plan::{Action, ClientEndpoints, ClientPort, Plan, Subject, TunnelRequest};
use underpass_resources::tunnel_proxy::TunnelProtocol;
use underpass_tunnel::PairSecrets;
use underpass_tunnel::client::{self, Client};
use underpass_tunnel::server::{self, Server, system_lookup};

const UID: &str = "u-1";
const SLOW: &str = "slow.example.com";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/there/endpointslices/p-t";

/// A pair that runs, as its controllers know it.
struct Rig {
    pairs: Arc<Pairs>,
    applier: Applier,
    api: FakeApi,
    woken: UnboundedReceiver<Key>,
    control_port: u16,
    /// How often its control port was connected to.
    connections: Arc<AtomicUsize>,
    server: Server,
    client: Option<Client>,
    _root: TempDir,
}

impl Rig {
    async fn start() -> Self {
        let secrets = PairSecrets::generate().unwrap();
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let settings = client::Settings { ip: here, control_port: 0, data_port: 0, ..client::Settings::default() };
        let client = Client::start(&secrets.client, settings).await.unwrap();
        let settings = server::Settings::new(vec![client.control_address()], vec![client.data_address()]);
        // One name is never resolved.
        let lookup = |name: String, port| if name == SLOW { pending().boxed() } else { system_lookup(name, port) };
        let server = Server::start(&secrets.server, server::Settings { lookup, ..settings }).await.unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let control_port = counting(server.control_address(), Arc::clone(&connections)).await;
        let (wake, woken) = unbounded();
        let root = folder(&secrets, control_port);
        let engine: Arc<dyn ContainerEngine> = Arc::new(MemoryEngine::default());
        let (instance, program) = ("test".to_owned(), PathBuf::from("/nowhere"));
        let pairs = Pairs::new(Arc::clone(&engine), instance, root.path().to_owned(), program, pace().backoff, wake);
        pairs.look(UID, &Key::cluster("p")).unwrap();
        let api = FakeApi::new(Diary::default());
        let outside = Outside { pairs: Arc::clone(&pairs), ..outside(engine) };
        let applier = Applier::new(api.client(), Some(outside), Metrics::default());
        let client = Some(client);
        Self { pairs, applier, api, woken, control_port, connections, server, client, _root: root }
    }

    async fn act(&self, actions: Vec<Action>) {
        let metadata = serde_json::from_value(json!({ "name": "p", "uid": UID })).unwrap();
        let subject = Subject::new("underpass.dev/v1alpha1", "ContainerNetworkTunnelProxy", &metadata);
        let plan = Plan { actions, ..Plan::nothing(subject, "a test") };
        assert_eq!(self.applier.apply(&plan).await.unwrap(), Applied::Done);
    }

    async fn listed(&self) -> Vec<u32> {
        match self.pairs.ask(UID, self.control_port).await {
            Seen::Answered { tunnels, .. } => tunnels.iter().map(|tunnel| tunnel.number).collect(),
            other => panic!("{other:?}"),
        }
    }

    async fn end_client(&mut self) {
        self.client.take().unwrap().stop().await;
    }

    async fn end(self) {
        self.server.stop().await;
        if let Some(client) = self.client {
            client.stop().await;
        }
    }
}

/// A port that leads to another one, and counts who comes.
async fn counting(target: SocketAddr, connections: Arc<AtomicUsize>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            connections.fetch_add(1, SeqCst);
            let mut far = TcpStream::connect(target).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
        }
    });
    port
}

/// What the controllers have written down of the pair. It has no process of its own: nobody waits for its end.
fn folder(secrets: &PairSecrets, control_port: u16) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join(UID);
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("pair.json"), serde_json::to_vec(secrets).unwrap()).unwrap();
    let server = json!({ "pid": 1, "start": 0, "controlPort": control_port, "startedAt": "2026-01-02T03:04:05Z" });
    std::fs::write(folder.join("record.json"), json!({ "server": server }).to_string()).unwrap();
    root
}

fn prepare(number: u32, server_host: &str) -> Action {
    Action::PrepareTunnel(TunnelRequest {
        number,
        name: format!("t{number}"),
        protocol: TunnelProtocol::Tcp,
        server_host: server_host.to_owned(),
        server_port: 9,
        client_port: ClientPort::Any,
        max_connections: None,
    })
}

fn endpoints(namespace: &str) -> ClientEndpoints {
    ClientEndpoints {
        namespace: namespace.to_owned(),
        name: "p-t".to_owned(),
        service: "s".to_owned(),
        addresses: vec!["10.89.0.2".to_owned()],
        port: 80,
        protocol: TunnelProtocol::Tcp,
        ipv6: false,
        owner_name: "p".to_owned(),
        owner_uid: UID.to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_not_resolved_holds_up_no_other_tunnel() {
    const SLOW_ONES: u32 = 25;
    let rig = Rig::start().await;
    let mut actions: Vec<Action> = (1..=SLOW_ONES).map(|number| prepare(number, SLOW)).collect();
    actions.push(prepare(100, "127.0.0.1"));
    rig.act(actions).await;
    assert_eq!(rig.listed().await, [100], "the one that can be is prepared");
    assert_eq!(rig.pairs.preparing(UID).len(), usize::try_from(SLOW_ONES).unwrap(), "and nobody has given up a name");
    assert!(rig.pairs.refusals(UID).is_empty());
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_takes_its_time_wakes_its_object() {
    let mut rig = Rig::start().await;
    rig.act(vec![prepare(1, SLOW)]).await;
    assert_eq!(rig.pairs.preparing(UID).len(), 1);
    let key = tokio::time::timeout(Duration::from_secs(20), rig.woken.next()).await.expect("it is woken");
    assert_eq!(key, Some(Key::cluster("p")));
    assert!(rig.pairs.preparing(UID).is_empty());
    let refusals = rig.pairs.refusals(UID);
    assert!(refusals[&1].message.contains("was not resolved"), "{refusals:?}");
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_is_listed_as_it_was_asked_for() {
    let rig = Rig::start().await;
    let Action::PrepareTunnel(request) = prepare(1, "127.0.0.1") else { unreachable!() };
    for (number, protocol, max_connections) in
        [(1, TunnelProtocol::Tcp, Some(7)), (2, TunnelProtocol::Udp, Some(8)), (3, TunnelProtocol::Tcp, None)]
    {
        let asked = TunnelRequest { number, protocol, max_connections, ..request.clone() };
        rig.act(vec![Action::PrepareTunnel(asked)]).await;
        let Seen::Answered { tunnels, .. } = rig.pairs.ask(UID, rig.control_port).await else { panic!("no answer") };
        let listed = tunnels.iter().find(|tunnel| tunnel.number == number).unwrap();
        assert_eq!((listed.protocol, listed.max_connections), (protocol, max_connections));
        assert_eq!((&*listed.server_host, listed.server_port), ("127.0.0.1", 9));
    }
    rig.end().await;
}

/// What has nothing to do with the port is not asked for twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_preferred_port_is_given_up_only_when_it_is_taken() {
    let rig = Rig::start().await;
    rig.act(vec![prepare(1, "127.0.0.1")]).await;
    let Seen::Answered { tunnels, .. } = rig.pairs.ask(UID, rig.control_port).await else { panic!("no answer") };
    let Action::PrepareTunnel(request) = prepare(2, "127.0.0.1") else { unreachable!() };
    let wanted = TunnelRequest { client_port: ClientPort::Preferred(tunnels[0].client_port), ..request };
    rig.act(vec![Action::PrepareTunnel(wanted.clone())]).await;
    assert_eq!(rig.listed().await, [1, 2]);
    assert!(rig.pairs.refusals(UID).is_empty());
    let fixed = TunnelRequest { number: 3, client_port: ClientPort::Fixed(tunnels[0].client_port), ..wanted };
    rig.act(vec![Action::PrepareTunnel(fixed)]).await;
    let refusals = rig.pairs.refusals(UID);
    assert!(refusals[&3].message.contains("taken by tunnel 1"), "{refusals:?}");
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_that_cannot_be_written_hold_up_no_others_and_are_told_until_they_are() {
    let rig = Rig::start().await;
    let path = |namespace| format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices/p-t");
    rig.api.put(&path("there"), json!({ "metadata": { "finalizers": ["untouched"] } }));
    let all = || ["nowhere", "there"].map(|namespace| Action::WriteEndpoints(endpoints(namespace))).to_vec();
    rig.act(all()).await;
    assert!(rig.api.get(&path("there")).unwrap()["metadata"]["finalizers"].is_null(), "it was written");
    let unwritten = rig.pairs.unwritten(UID);
    assert_eq!(unwritten.len(), 1);
    assert_eq!(unwritten[0].request, endpoints("nowhere"));
    assert_eq!(unwritten[0].message, "the EndpointSlice nowhere/p-t cannot be written: refused");
    rig.api.put(&path("nowhere"), json!({ "metadata": { "finalizers": ["untouched"] } }));
    rig.act(all()).await;
    assert!(rig.pairs.unwritten(UID).is_empty());
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_passes_and_orders_go_over_one_connection() {
    let rig = Rig::start().await;
    for number in 1..=20 {
        rig.act(vec![prepare(number, "127.0.0.1"), prepare(number + 20, "127.0.0.1")]).await;
        assert_eq!(rig.listed().await.len(), usize::try_from(2 * number).unwrap());
    }
    rig.act((1..=40).map(|number| Action::DeleteTunnel { number }).collect()).await;
    assert_eq!(rig.listed().await, Vec::<u32>::new());
    assert_eq!(rig.connections.load(SeqCst), 1);
    rig.end().await;
}

/// Each by itself would wait for the client half to come back.
#[tokio::test(flavor = "multi_thread")]
async fn a_pair_that_was_lost_is_told_of_one_tunnel_that_goes_and_not_of_all() {
    const TUNNELS: u32 = 20;
    let mut rig = Rig::start().await;
    rig.api.put(SLICE, json!({ "metadata": { "finalizers": ["untouched"] } }));
    rig.act((1..=TUNNELS).map(|number| prepare(number, "127.0.0.1")).collect()).await;
    rig.end_client().await;
    let mut actions: Vec<Action> = (1..=TUNNELS).map(|number| Action::DeleteTunnel { number }).collect();
    actions.push(Action::WriteEndpoints(endpoints("there")));
    rig.act(actions).await;
    assert_eq!(rig.listed().await, (2..=TUNNELS).collect::<Vec<_>>(), "the first has shown that nobody is there");
    assert!(rig.api.get(SLICE).unwrap()["metadata"]["finalizers"].is_null(), "what is of no pair is done");
    rig.end().await;
}

/// The machine may sleep, and its clock may be set, between two looks.
#[tokio::test(start_paused = true)]
async fn silence_is_measured_by_the_clock_that_nobody_sets() {
    let (outside, key) = (outside(Arc::new(MemoryEngine::default())), Key::cluster("p"));
    outside.pairs.look(UID, &key).unwrap();
    assert_eq!(outside.pairs.silent_for(UID), None);
    // There are no secrets to ask it with.
    let nobody = || async { assert!(matches!(outside.pairs.ask(UID, 1).await, Seen::Silent { .. })) };
    nobody().await;
    tokio::time::advance(Duration::from_secs(29)).await;
    nobody().await;
    assert_eq!(outside.pairs.silent_for(UID), Some(Duration::from_secs(29)));
}
