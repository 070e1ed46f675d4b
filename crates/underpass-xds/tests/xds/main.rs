//! The protocol, spoken over a socket by a client that does nothing by itself, and by a real Envoy.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod apart;
mod changes;
mod checks;
mod client;
mod envoy;
mod translation;
mod world;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use underpass_tables::{Listener, RelayTable, Route, RouteId, Rules, Transport};
use underpass_xds::{Nodes, Reports, Server, Snapshot, Translator};

const NODE: &str = "clusters/edge";

/// A server whose table the test decides about. It ends with this value.
struct Site {
    address: SocketAddr,
    translator: Translator,
    newest: watch::Sender<Option<Arc<Snapshot>>>,
    reports: Arc<Reports>,
    serving: JoinHandle<()>,
}

impl Site {
    /// With backends of these names.
    async fn new(backends: &[&str]) -> Self {
        let mut site = Self::empty().await;
        site.change(backends);
        site
    }

    async fn empty() -> Self {
        Self::at(([127, 0, 0, 1], 0).into()).await
    }

    async fn at(address: SocketAddr) -> Self {
        let (newest, reports) = (watch::Sender::new(None), Arc::new(Reports::default()));
        let server = Server::new(newest.subscribe(), Nodes::Only(vec![NODE.into(), "edge".into()]), reports.clone());
        let listener = Server::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(server.serve(listener));
        Self { address, translator: Translator::default(), newest, reports, serving }
    }

    fn change(&mut self, backends: &[&str]) {
        self.put(&table(backends.iter().map(|name| (*name, 1))));
    }

    fn put(&mut self, table: &RelayTable) {
        let snapshot = self.translator.snapshot(table);
        self.newest.send_replace(Some(Arc::new(snapshot)));
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Backends by name, each with an endpoint at a port of its own, behind one listener.
fn table<'a>(backends: impl Iterator<Item = (&'a str, u16)>) -> RelayTable {
    let (mut routes, mut rules) = (Vec::new(), Rules::default());
    for (number, (name, port)) in backends.enumerate() {
        let endpoint = SocketAddr::from(([192, 0, 2, 1], port));
        routes.push(Arc::new(Route::new(name, format!("ns/{name}"), vec![endpoint])));
        rules.add_name(&format!("{name}.example.com"), RouteId(number)).unwrap();
    }
    let listener = Listener {
        name: "edge-listener-443".into(),
        address: ([0, 0, 0, 0], 443).into(),
        transport: Transport::Stream,
        proxy_header: false,
        expects: underpass_tables::Expects::Hello,
        rules,
    };
    RelayTable { routes, listeners: vec![listener], ..RelayTable::default() }
}

#[tokio::test]
async fn only_loopback_is_listened_on() {
    let refused = Server::bind(([0, 0, 0, 0], 0).into()).await.unwrap_err();
    assert!(refused.to_string().contains("loopback only"), "{refused}");
}
