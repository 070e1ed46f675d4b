use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use futures::FutureExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use underpass_tunnel::server::{self, Server};
use underpass_tunnel::{Caller, CallerError, PairSecrets, Prepare};

use crate::rig::{
    Pair, client, client_settings, connect, connect_at, echo_server, ends_by_reset, exchange, is_reset, listener,
    nobody, server, server_settings, tunnel, wait_until, within,
};

/// Something between the halves that can be cut, and heals at once.
struct Cuttable {
    address: SocketAddr,
    cut: watch::Sender<()>,
    /// Carries nothing any more, and ends nothing.
    frozen: watch::Sender<bool>,
    connections: Arc<AtomicUsize>,
}

impl Cuttable {
    async fn to(target: SocketAddr) -> Self {
        let (listener, address) = listener().await;
        let (cut, _) = watch::channel(());
        let (frozen, _) = watch::channel(false);
        let (cutting, freezing, connections) = (cut.clone(), frozen.clone(), Arc::new(AtomicUsize::new(0)));
        let count = connections.clone();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let (mut is_cut, mut is_frozen) = (cutting.subscribe(), freezing.subscribe());
                count.fetch_add(1, SeqCst);
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(target).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => return,
                        _ = is_cut.changed() => return,
                        _ = is_frozen.wait_for(|frozen| *frozen) => {}
                    }
                    let _ = is_cut.changed().await;
                });
            }
        });
        Self { address, cut, frozen, connections }
    }

    fn cut(&self) {
        self.cut.send_replace(());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_control_connection_costs_nothing_but_itself() {
    let secrets = PairSecrets::generate().unwrap();
    let client = client(&secrets).await;
    let control = Cuttable::to(client.control_address()).await;
    let settings = server::Settings { control: vec![control.address], ..server_settings(&client) };
    let server = Server::start(&secrets.server, settings).await.unwrap();
    let caller = Caller::new(server.control_address(), &secrets.caller).unwrap();
    let pair = Pair { secrets, client, server, caller };
    let echo = echo_server().await;
    let port = pair.prepare(1, echo).await.port;
    let mut stream = connect(port).await;
    exchange(&mut stream, "before").await;
    for round in 1..=3 {
        control.cut();
        exchange(&mut stream, "without control").await;
        exchange(&mut connect(port).await, "a new one, without control").await;
        wait_until(async || control.connections.load(SeqCst) > round, "it is connected again").await;
        let number = u32::try_from(round).unwrap() + 1;
        exchange(&mut pair.connect(number, echo).await, "a new tunnel").await;
        assert_eq!(pair.prepare(1, echo).await.port, port);
    }
    exchange(&mut stream, "after").await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn data_connections_that_break_while_they_stand_ready_are_replaced() {
    let secrets = PairSecrets::generate().unwrap();
    let client = client(&secrets).await;
    let data = Cuttable::to(client.data_address()).await;
    let settings = server::Settings { data: vec![data.address], ..server_settings(&client) };
    let server = Server::start(&secrets.server, settings).await.unwrap();
    let caller = Caller::new(server.control_address(), &secrets.caller).unwrap();
    let pair = Pair { secrets, client, server, caller };
    let port = pair.prepare(1, echo_server().await).await.port;
    for _ in 0..5 {
        wait_until(async || pair.list().await.data[0].idle >= 4, "connections stand ready").await;
        let before = data.connections.load(SeqCst);
        data.cut();
        wait_until(async || data.connections.load(SeqCst) >= before + 4, "they are replaced").await;
        wait_until(async || pair.list().await.data[0].idle >= 4, "they stand ready again").await;
        exchange(&mut connect(port).await, "through a new one").await;
    }
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_half_that_is_gone_takes_its_streams_along_and_another_one_takes_over() {
    let pair = Pair::start().await;
    let echo = echo_server().await;
    let wanted = pair.prepare(1, echo).await;
    let other = pair.prepare(2, echo).await;
    let mut stream = connect(wanted.port).await;
    exchange(&mut stream, "before").await;
    let Pair { secrets, client, server: first, .. } = pair;
    first.stop().await;
    let _ = ends_by_reset(&mut stream).await;
    // Nobody is there to bring connections, but the port is; who comes now waits, and is served by the next one.
    let mut early = connect(wanted.port).await;

    let second = server(&secrets, &client).await;
    let caller = Caller::new(second.control_address(), &secrets.caller).unwrap();
    assert_eq!(caller.list().await.unwrap().tunnels, [], "it has to be told");
    assert!(ends_by_reset(&mut early).await, "the new one does not know the tunnel yet");
    assert!(is_reset(other.port).await);
    assert_eq!(caller.prepare(tunnel(1, echo)).await.unwrap(), wanted);
    let known = Prepare { client_port: Some(other.port), ..tunnel(2, echo) };
    assert_eq!(caller.prepare(known).await.unwrap(), other);
    exchange(&mut connect(wanted.port).await, "after").await;
    exchange(&mut connect(other.port).await, "after").await;
    let pair = Pair { secrets, client, server: second, caller };
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_half_that_comes_back_is_told_everything_again() {
    let ip = [127, 0, 0, 14].into();
    let Pair { secrets, client: first, server, caller } = Pair::start_at(ip).await;
    let echo = echo_server().await;
    let kept = caller.prepare(tunnel(1, echo)).await.unwrap().port;
    caller.prepare(tunnel(2, echo)).await.unwrap();
    let (control_port, data_port) = (first.control_address().port(), first.data_address().port());
    first.stop().await;
    wait_until(async || !caller.list().await.unwrap().connected, "the loss is seen").await;
    let listed = caller.list().await.unwrap();
    assert!(listed.trouble.is_some() && listed.tunnels.len() == 2);
    // The port is free with the client half; that it cannot be told is said all the same.
    let reason = caller.delete(2).await.unwrap_err().to_string();
    assert!(reason.contains("client half"), "{reason}");

    let settings = underpass_tunnel::client::Settings { ip, control_port, data_port, ..client_settings() };
    let second = underpass_tunnel::client::Client::start(&secrets.client, settings).await.unwrap();
    wait_until(async || caller.list().await.unwrap().connected, "it is back").await;
    exchange(&mut connect_at(ip, kept).await, "on the same port").await;
    assert_eq!(caller.list().await.unwrap().client.unwrap().tunnels, [1]);
    Pair { secrets, client: second, server, caller }.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_address_is_used_when_the_best_one_does_not_answer() {
    let secrets = PairSecrets::generate().unwrap();
    let client = client(&secrets).await;
    let nobody = nobody().await;
    let settings = server_settings(&client);
    let behind = |addresses: Vec<SocketAddr>| [vec![nobody], addresses].concat();
    let settings = server::Settings { control: behind(settings.control), data: behind(settings.data), ..settings };
    let server = Server::start(&secrets.server, settings).await.unwrap();
    let caller = Caller::new(server.control_address(), &secrets.caller).unwrap();
    let pair = Pair { secrets, client, server, caller };
    exchange(&mut pair.connect(1, echo_server().await).await, "round about").await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_orders_go_over_one_connection() {
    let pair = Pair::start().await;
    let between = Cuttable::to(pair.server.control_address()).await;
    let caller = Caller::new(between.address, &pair.secrets.caller).unwrap();
    for _ in 0..50 {
        caller.list().await.unwrap();
    }
    futures::future::join_all((0..50).map(|_| caller.probe())).await;
    assert_eq!(between.connections.load(SeqCst), 1);
    pair.stop().await;
}

/// Where each made its own, the last would wait for all others' deadlines.
#[tokio::test]
async fn who_asks_while_it_is_connected_shares_the_attempt_and_its_failure() {
    let (pair, (listener, address)) = (Pair::start().await, listener().await);
    let caller = Caller::new(address, &pair.secrets.caller).unwrap();
    for attempt in 1..=2 {
        // The first poll of all callers comes before the connection is taken and cut.
        let cut = async { drop(listener.accept().await.unwrap()) };
        let asked = futures::future::join_all((0..40).map(|_| caller.probe()));
        let (answers, ()) = within(async { tokio::join!(asked, cut) }).await;
        let unreachable = |answer: &Result<_, _>| matches!(answer, Err(CallerError::Unreachable { .. }));
        assert!(answers.iter().all(unreachable), "{answers:?}");
        assert!(listener.accept().now_or_never().is_none(), "attempt {attempt} is one for all");
    }
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_half_that_hangs_is_not_the_server_halfs_fault() {
    let secrets = PairSecrets::generate().unwrap();
    let client = client(&secrets).await;
    let control = Cuttable::to(client.control_address()).await;
    let settings = server::Settings { control: vec![control.address], ..server_settings(&client) };
    let server = Server::start(&secrets.server, settings).await.unwrap();
    let caller = Caller::new(server.control_address(), &secrets.caller).unwrap();
    let pair = Pair { secrets, client, server, caller };
    pair.prepare(1, echo_server().await).await;
    assert!(pair.list().await.connected);
    control.frozen.send_replace(true);
    // It is waited for longer than whoever asks waits for a server half that hangs.
    wait_until(async || !pair.list().await.connected, "the silence is seen").await;
    assert!(!pair.list().await.connected);
    let refused = pair.caller.probe().await.unwrap_err();
    assert!(matches!(refused, CallerError::Refused(_)), "{refused}");
    control.frozen.send_replace(false);
    control.cut();
    wait_until(async || pair.list().await.connected, "it is back").await;
    pair.stop().await;
}

/// Proves that it is the client half, and never says anything.
async fn silent_client_half(secrets: &PairSecrets) -> (SocketAddr, Arc<AtomicUsize>) {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let identity = serde_json::to_value(&secrets.client).unwrap()["identity"].clone();
    let pem = |name: &str| identity[name].as_str().unwrap().as_bytes().to_vec();
    let builder = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).unwrap().with_no_client_auth();
    let certificate = CertificateDer::from_pem_slice(&pem("certificate")).unwrap();
    let config = builder.with_single_cert(vec![certificate], PrivateKeyDer::from_pem_slice(&pem("key")).unwrap());
    let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
    let (listener, address) = listener().await;
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    tokio::spawn(async move {
        let mut all = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            all.push(acceptor.accept(stream).await);
            count.fetch_add(1, SeqCst);
        }
    });
    (address, connections)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_half_that_hangs_when_it_is_connected_blocks_nobody() {
    let secrets = PairSecrets::generate().unwrap();
    let (first, (silent, connections)) = (client(&secrets).await, silent_client_half(&secrets).await);
    let control = Cuttable::to(first.control_address()).await;
    let settings = server::Settings { control: vec![control.address, silent], ..server_settings(&first) };
    let server = Server::start(&secrets.server, settings).await.unwrap();
    let caller = Caller::new(server.control_address(), &secrets.caller).unwrap();
    let echo = echo_server().await;
    for number in 0..20 {
        caller.prepare(tunnel(number, echo)).await.unwrap();
    }
    // From now on the server half finds the silent one, which it has 20 tunnels to tell of.
    first.stop().await;
    control.cut();
    wait_until(async || connections.load(SeqCst) > 0, "it is connected to").await;
    assert_eq!(within(caller.list()).await.unwrap().tunnels.len(), 20);
    let before = connections.load(SeqCst);
    wait_until(async || connections.load(SeqCst) > before, "it is given up").await;
    assert!(caller.list().await.unwrap().trouble.unwrap().contains("no answer"));
    server.stop().await;
}
