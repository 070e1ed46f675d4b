//! Where a proxy learns what to do, again and again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kube::Client;
use tracing::warn;
use underpass_plan::proxy_server::log_level_of;
use underpass_resources::ProxyServer;
use underpass_tables::RelayTable;

use super::cluster::ClusterFeed;
use super::pod;
use super::source::Source;
use super::watch::Watch;
use crate::args::Proxy;
use crate::logging;
use crate::server;

/// How long a process waits for what a cluster or its name servers fail to say, as long as somebody else serves: an API server or a name
/// server that is started anew is mostly back by then, and whoever waits for a new pod is not kept much longer than its start takes.
const FAULT_TIME: Duration = Duration::from_secs(15);

/// What a feed says.
pub(crate) enum News {
    /// This is wanted from now on.
    Table(RelayTable),
    /// What was said last is wanted again.
    Same,
    /// Something that cannot be, and why. What was said before holds.
    Refused(String),
}

pub(crate) enum Feed {
    File(Box<FileFeed>),
    Cluster(Box<ClusterFeed>),
}

/// A file, watched.
pub(crate) struct FileFeed {
    source: Source,
    watch: Option<Watch>,
}

impl Feed {
    /// As the command line says. Waits until a cluster has said everything that it has to say.
    pub(crate) async fn open(args: &Proxy) -> anyhow::Result<(Self, RelayTable)> {
        if let Some(level) = args.proxy_log_level {
            logging::follow(log_level_of(level));
        }
        if let Some(path) = &args.file {
            let (feed, table) = FileFeed::open(path)?;
            return Ok((Self::File(Box::new(feed)), table));
        }
        let name = args.proxy_name.as_deref().context("say with --file or with --proxy-name what is to be served")?;
        let client = server::from_file_or_pod(args.kubeconfig.clone()).await?;
        let patience = if is_served_meanwhile(args).await { FAULT_TIME } else { Duration::ZERO };
        let mut feed = ClusterFeed::open(client, &args.namespace, name, args.pod_ip, patience);
        let table = feed.next().await;
        Ok((Self::Cluster(Box::new(feed)), table))
    }

    /// The ProxyServer of a cluster that said the last table, and how to reach that cluster.
    pub(crate) fn of_cluster(&self) -> Option<(Arc<ProxyServer>, Client)> {
        match self {
            Self::File(_) => None,
            Self::Cluster(cluster) => Some((cluster.proxy()?, cluster.client())),
        }
    }

    /// For messages.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::File(file) => file.source.name(),
            Self::Cluster(cluster) => cluster.name(),
        }
    }

    /// Waits until there is something to say. Nothing is lost when this is dropped before.
    pub(crate) async fn next(&mut self) -> News {
        match self {
            Self::File(file) => file.next().await,
            Self::Cluster(cluster) => News::Table(cluster.next().await),
        }
    }
}

/// Whether a data plane works already, with what an earlier process said. Otherwise every backend that is known is better than none.
async fn is_served_meanwhile(args: &Proxy) -> bool {
    args.handover.is_some() || (args.xds_port.is_some() && pod::is_live(args.admin).await)
}

impl FileFeed {
    fn open(path: &Path) -> anyhow::Result<(Self, RelayTable)> {
        let watch = Watch::new(path).with_context(|| format!("cannot watch {}", path.display()))?;
        let (source, table) = Source::open(path)?;
        Ok((Self { source, watch: Some(watch) }, table))
    }

    async fn next(&mut self) -> News {
        if let Some(watch) = &mut self.watch {
            match watch.changed().await {
                Ok(()) => return self.read(),
                // Connections are worth more than changes.
                Err(error) => {
                    self.watch = None;
                    let name = self.source.name();
                    warn!(%error, "{name} cannot be watched any more: changes take effect with a restart");
                }
            }
        }
        std::future::pending().await
    }

    fn read(&mut self) -> News {
        match self.source.reload() {
            Ok(None) => News::Same,
            Ok(Some(table)) => News::Table(table),
            Err(error) => News::Refused(format!("{:#}", anyhow::Error::new(error))),
        }
    }
}
