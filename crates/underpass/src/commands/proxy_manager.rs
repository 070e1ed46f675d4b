//! `underpass proxy --xds-port`: what an Envoy carries is said here.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::{info, warn};
use underpass_plan::proxy_server::{ADMIN_CLUSTER, Bootstrap};
use underpass_relay::port::{LOOPBACK, Port, listen_on_device};
use underpass_tables::RelayTable;
use underpass_xds::{Nodes, Publisher, Reports, Server, Translator};

use crate::args::{Proxy, TextOrJson};
use crate::exit::Ended;
use crate::logging;
use crate::manager_pages;
use crate::output;
use crate::proxy::{Feed, News, Pod, Reporter, Told, log_changes};
use crate::signals::Signals;

pub(crate) async fn feed_envoy(args: &Proxy, port: u16) -> anyhow::Result<Ended> {
    let mut signals = Signals::listen()?;
    let (mut feed, table) = tokio::select! {
        opened = Feed::open(args) => opened?,
        () = signals.next() => return Ok(Ended::Well),
    };
    let mut manager = Manager::new(args.in_pod().as_ref())?;
    let listener = listen(args, port).await;
    let listener =
        listener.with_context(|| format!("cannot serve xDS on port {port}: choose another with --xds-port"))?;
    let address = listener.local_addr()?;
    if let Some(path) = &args.envoy_bootstrap {
        write_bootstrap(path, args, address.port())?;
    }
    manager.take(table);
    let reports = Arc::new(Reports::default());
    let mut answers = reports.changes();
    let server = Server::new(manager.publisher.subscribe(), nodes(args), reports.clone());
    let mut serving = std::pin::pin!(server.serve(listener));
    info!("xDS server listening on :{}", address.port());
    announce(args.output, address)?;
    let told = in_pod(args, &feed, reports.clone())?;
    loop {
        manager.publisher.go_on(&reports);
        if let Some(told) = &told {
            told.send_replace(manager.told(&feed, &reports, &node(args)));
        }
        tokio::select! {
            () = signals.next() => return Ok(Ended::Well),
            () = &mut serving => {}
            // Its sender lives as long as the server.
            _ = answers.changed() => {}
            () = manager.publisher.is_time() => {}
            news = feed.next() => match news {
                News::Table(table) => manager.take(table),
                News::Same => {}
                News::Refused(reason) => warn!("invalid configuration: {reason}; the one before stays in force"),
            },
        }
    }
}

async fn listen(args: &Proxy, port: u16) -> anyhow::Result<TcpListener> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    Ok(match args.in_pod() {
        Some(_) => listen_on_device(address, LOOPBACK)?,
        None => Server::bind(address).await?,
    })
}

/// In a pod: shows others whether this works, and tells the cluster what became of its ProxyServer.
fn in_pod(args: &Proxy, feed: &Feed, reports: Arc<Reports>) -> anyhow::Result<Option<watch::Sender<Option<Told>>>> {
    let (Some(pod), Some((_, client))) = (args.in_pod(), feed.of_cluster()) else { return Ok(None) };
    let port = Port::bind_on_device(pod.pages(), &pod.device()?)?;
    let page = manager_pages::pages(reports, node(args));
    tokio::spawn(port.serve(move |request| page(request.uri().path())));
    let (told, newest) = watch::channel(None);
    tokio::spawn(Reporter::new(client, &args.namespace, &pod, args.admin, newest).run());
    Ok(Some(told))
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

/// What is told, and of what table.
struct Manager {
    publisher: Publisher,
    table: Arc<RelayTable>,
}

impl Manager {
    fn new(pod: Option<&Pod>) -> anyhow::Result<Self> {
        let translator = match pod {
            Some(pod) => Translator::with_metrics(pod.metrics(), &pod.device()?, ADMIN_CLUSTER),
            None => Translator::default(),
        };
        Ok(Self { publisher: Publisher::new(translator), table: Arc::default() })
    }

    /// What the Envoy of that name makes of the newest table.
    fn told(&self, feed: &Feed, reports: &Reports, node: &str) -> Option<Told> {
        let (proxy, _) = feed.of_cluster()?;
        let report = reports.of(node).unwrap_or_default();
        let version = self.publisher.newest().filter(|newest| report.runs(newest)).map(|newest| newest.version());
        let refusal = report.refusal().map(str::to_owned);
        Some(Told { proxy, table: self.table.clone(), version, refusal })
    }

    fn take(&mut self, table: RelayTable) {
        logging::follow(table.log_level);
        log_changes(&self.table, &table);
        self.table = Arc::new(table);
        self.publisher.publish(&self.table);
    }
}

/// For an Envoy beside this process.
fn write_bootstrap(path: &Path, args: &Proxy, xds_port: u16) -> anyhow::Result<()> {
    let bootstrap = Bootstrap {
        node: &node(args),
        xds_port,
        admin: args.admin,
        only_by_loopback: args.in_pod().is_some(),
        max_connections: None,
    };
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
