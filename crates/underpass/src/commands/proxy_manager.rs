//! `underpass proxy --xds-port`: what an Envoy carries is said here.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use serde_json::json;
use tokio::sync::watch;
use tracing::{info, warn};
use underpass_plan::proxy_server::Bootstrap;
use underpass_tables::RelayTable;
use underpass_xds::{Nodes, Reports, Server, Snapshot, Translator};

use crate::args::{Proxy, TextOrJson};
use crate::exit::Ended;
use crate::logging;
use crate::output;
use crate::proxy::{Feed, News, log_changes};
use crate::signals::Signals;

pub(crate) async fn feed_envoy(args: &Proxy, port: u16) -> anyhow::Result<Ended> {
    let mut signals = Signals::listen()?;
    let (mut feed, table) = tokio::select! {
        opened = Feed::open(args) => opened?,
        () = signals.next() => return Ok(Ended::Well),
    };
    let mut manager = Manager::new();
    let listener = Server::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await;
    let listener =
        listener.with_context(|| format!("cannot serve xDS on port {port}: choose another with --xds-port"))?;
    let address = listener.local_addr()?;
    if let Some(path) = &args.envoy_bootstrap {
        write_bootstrap(path, &node(args), address.port(), args.admin)?;
    }
    manager.take(table);
    let reports = Arc::new(Reports::default());
    let server = Server::new(manager.newest.subscribe(), nodes(args), reports);
    let mut serving = std::pin::pin!(server.serve(listener));
    info!("xDS server listening on :{}", address.port());
    announce(args.output, address)?;
    loop {
        tokio::select! {
            () = signals.next() => return Ok(Ended::Well),
            () = &mut serving => {}
            news = feed.next() => match news {
                News::Table(table) => manager.take(table),
                News::Same => {}
                News::Refused(reason) => warn!("invalid configuration: {reason}; the one before stays in force"),
            },
        }
    }
}

/// What an Envoy calls itself that is started with the bootstrap configuration from here.
fn node(args: &Proxy) -> String {
    format!("{}/{}", args.namespace, args.proxy_name.as_deref().unwrap_or("proxy"))
}

/// An Envoy of a ProxyServer calls itself by its name, and may say the namespace too.
fn nodes(args: &Proxy) -> Nodes {
    match &args.proxy_name {
        Some(name) => Nodes::Only(vec![format!("{}/{name}", args.namespace), name.clone()]),
        None => Nodes::Any,
    }
}

/// Turns tables into what is told.
struct Manager {
    translator: Translator,
    newest: watch::Sender<Option<Arc<Snapshot>>>,
    table: RelayTable,
}

impl Manager {
    fn new() -> Self {
        Self { translator: Translator::default(), newest: watch::Sender::new(None), table: RelayTable::default() }
    }

    fn take(&mut self, table: RelayTable) {
        logging::follow(table.log_level);
        log_changes(&self.table, &table);
        let snapshot = self.translator.snapshot(&table);
        info!(
            version = snapshot.version(),
            listeners = table.listeners.len(),
            clusters = table.routes.len(),
            "Generated Envoy configuration"
        );
        self.table = table;
        self.newest.send_if_modified(|newest| {
            let is_new = newest.as_deref() != Some(&snapshot);
            if is_new {
                *newest = Some(Arc::new(snapshot));
            }
            is_new
        });
    }
}

/// For an Envoy beside this process.
fn write_bootstrap(path: &Path, node: &str, xds_port: u16, admin: SocketAddr) -> anyhow::Result<()> {
    let bootstrap = Bootstrap { node, xds_port, admin, metrics_port: None, max_connections: None };
    let text = format!("{:#}\n", bootstrap.to_json());
    std::fs::write(path, text)
        .with_context(|| format!("cannot write Envoy's bootstrap configuration to {}", path.display()))
}

fn announce(format: TextOrJson, address: SocketAddr) -> anyhow::Result<()> {
    let pid = std::process::id();
    output::print(&match format {
        TextOrJson::Json => format!("{}\n", json!({ "pid": pid, "xds": address })),
        TextOrJson::Text => format!("underpass proxy is ready to feed an Envoy\n  xds  {address}\n  pid  {pid}\n"),
    })
}
