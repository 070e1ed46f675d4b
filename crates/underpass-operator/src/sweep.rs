//! Removing what nobody owns any more: containers, networks, processes and folders of this instance whose objects are gone.
//!
//! Found by label, so that a crash between any two steps leaves nothing for ever. Things of other instances on the same engine are
//! never touched.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::StreamExt;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use underpass_engines::{Change, ContainerEngine, EngineError, labels};

use crate::kinds;
use crate::pairs::{Identity, Pairs};

/// The kinds whose objects own something here.
const OWNERS: [&str; 2] = ["ContainerNetworkTunnelProxy", "ContainerNetwork"];

#[derive(Clone)]
pub struct Sweep {
    pub engine: Arc<dyn ContainerEngine>,
    /// `tunnels` in the data directory.
    pub folders: PathBuf,
    /// The label on everything that is ours.
    pub instance: String,
}

/// Something of ours that outlived who made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leftover {
    Container { id: String, name: String },
    Volume { name: String },
    Server { pid: u32, start: u64 },
    Folder { uid: String },
    Network { id: String, name: String },
}

/// With the uid of the object that it belongs to. Whatever has none is to be kept.
type Found = (Leftover, Option<String>);

impl Sweep {
    /// Whenever the engine was found or has come back, until `stop`.
    pub(crate) async fn run(self, client: Client, stop: CancellationToken) {
        let mut changes = self.engine.changes();
        let work = async {
            while let Some(change) = changes.next().await {
                if change == Change::Everything
                    && let Err(error) = self.remove_ownerless(&client).await
                {
                    warn!(error, "leftovers cannot be looked for");
                }
            }
        };
        tokio::select! {
            () = work => {}
            () = stop.cancelled() => {}
        }
    }

    /// Everything of this instance, whoever owns it.
    pub async fn remove_all(&self, removed: impl FnMut(&Leftover)) -> Result<(), String> {
        let found = self.find().await?;
        self.remove(found, &BTreeSet::new(), removed).await
    }

    /// What needs no engine to go.
    pub async fn remove_outside_of_the_engine(&self) -> Result<(), String> {
        self.remove(self.processes_and_folders().collect(), &BTreeSet::new(), |_| {}).await
    }

    /// What can be found without an engine.
    pub fn outside_of_the_engine(&self) -> Vec<Leftover> {
        self.processes_and_folders().map(|(what, _)| what).collect()
    }

    /// First what exists, then who owns: what is made meanwhile is not seen, and its owner is.
    async fn remove_ownerless(&self, client: &Client) -> Result<(), String> {
        let found = self.find().await?;
        let owners = owners(client).await.map_err(|error| error.to_string())?;
        self.remove(found, &owners, |_| {}).await
    }

    /// In the order in which they can go.
    async fn find(&self) -> Result<Vec<Found>, String> {
        let ours = [(labels::INSTANCE, self.instance.as_str())];
        let words = |error: EngineError| error.to_string();
        let containers = self.engine.list_containers(&ours).await.map_err(words)?.into_iter().map(|one| {
            let owner = one.labels.get(labels::UID).cloned();
            (Leftover::Container { id: one.id, name: one.name }, owner)
        });
        let networks = self.engine.list_networks(&ours).await.map_err(words)?.into_iter();
        let networks = networks.map(|one| (Leftover::Network { id: one.id, name: one.name }, one.owner));
        let volumes = self.engine.list_volumes(&ours).await.map_err(words)?.into_iter().map(|one| {
            let owner = one.labels.get(labels::UID).cloned();
            (Leftover::Volume { name: one.name }, owner)
        });
        Ok(containers.chain(volumes).chain(self.processes_and_folders()).chain(networks).collect())
    }

    fn processes_and_folders(&self) -> impl Iterator<Item = Found> {
        let servers = Pairs::living(&self.instance).into_iter();
        let servers = servers.map(|(Identity { pid, start }, uid)| (Leftover::Server { pid, start }, Some(uid)));
        servers.chain(folders(&self.folders).into_iter().map(|uid| (Leftover::Folder { uid: uid.clone() }, Some(uid))))
    }

    /// Goes on after a failure: each thing that goes is one less.
    async fn remove(
        &self,
        found: Vec<Found>,
        owners: &BTreeSet<String>,
        mut removed: impl FnMut(&Leftover),
    ) -> Result<(), String> {
        let mut failures = Vec::new();
        let ownerless = |owner: &Option<String>| owner.as_ref().is_some_and(|uid| !owners.contains(uid));
        for (what, _) in found.iter().filter(|(_, owner)| ownerless(owner)) {
            info!("removing what has no owner: {what}");
            match self.remove_one(what).await {
                Ok(()) => removed(what),
                Err(error) => failures.push(error),
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
    }

    async fn remove_one(&self, what: &Leftover) -> Result<(), String> {
        let words = |error: EngineError| error.to_string();
        match what {
            Leftover::Container { id, .. } => self.engine.remove_container(id).await.map_err(words),
            Leftover::Volume { name } => self.engine.remove_volume(name).await.map_err(words),
            Leftover::Server { pid, start } => {
                Identity { pid: *pid, start: *start }.stop().await.map_err(|error| error.to_string())
            }
            Leftover::Folder { uid } => Pairs::remove_leftover(&self.folders, uid).map_err(|error| error.to_string()),
            Leftover::Network { id, .. } => self.engine.remove_network(id).await.map_err(words),
        }
    }
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Container { name, .. } => write!(f, "container {name}"),
            Self::Volume { name } => write!(f, "volume {name}"),
            Self::Server { pid, .. } => write!(f, "process {pid} (a server proxy)"),
            Self::Folder { uid } => write!(f, "folder of the pair {uid}"),
            Self::Network { name, .. } => write!(f, "network {name}"),
        }
    }
}

async fn owners(client: &Client) -> kube::Result<BTreeSet<String>> {
    let mut uids = BTreeSet::new();
    for kind in OWNERS.iter().filter_map(|name| underpass_resources::kind(name)) {
        let objects: Api<DynamicObject> = kinds::api(client, kind, None);
        uids.extend(objects.list(&ListParams::default()).await?.items.iter().filter_map(ResourceExt::uid));
    }
    Ok(uids)
}

/// Each is named by its owner's uid.
fn folders(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}
