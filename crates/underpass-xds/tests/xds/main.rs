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

use tokio::task::JoinHandle;
use underpass_tables::{Listener, RelayTable, Route, RouteId, Rules, Transport};
use underpass_xds::{Nodes, Publisher, Reports, Server, Translator};

const NODE: &str = "clusters/edge";

/// A server whose table the test decides about. It ends with this value.
struct Site {
    address: SocketAddr,
    publisher: Publisher,
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
        let (publisher, reports) = (Publisher::new(Translator::default()), Arc::new(Reports::default()));
        let server = Server::new(publisher.subscribe(), Nodes::Only(vec![NODE.into(), "edge".into()]), reports.clone());
        let listener = Server::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(server.serve(listener));
        Self { address, publisher, reports, serving }
    }

    fn change(&mut self, backends: &[&str]) {
        self.put(&table(backends.iter().map(|name| (*name, 1))));
    }

    fn put(&mut self, table: &RelayTable) {
        self.publisher.publish(&Arc::new(table.clone()));
    }

    /// Until the client has taken everything.
    async fn is_in_force(&mut self) {
        let (mut answers, newest) = (self.reports.changes(), self.publisher.newest().unwrap());
        while self.reports.of(NODE).is_none_or(|report| !report.runs(&newest)) {
            answers.changed().await.unwrap();
        }
        self.publisher.go_on(&self.reports);
    }

    /// Until everything is said, as clients take what has to come first.
    async fn says_everything(&mut self) {
        let mut answers = self.reports.changes();
        while self.publisher.newest().is_none() {
            self.publisher.go_on(&self.reports);
            if self.publisher.newest().is_none() {
                answers.changed().await.unwrap();
            }
        }
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
