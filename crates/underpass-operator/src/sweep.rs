//! Removing what nobody owns any more: containers, networks, processes and folders of this instance whose objects are gone.
//!
//! Found by label, so that a crash between any two steps leaves nothing for ever. Things of other instances on the same engine are
//! never touched.

use std::collections::BTreeSet;
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

/// What was found, before it is known who owns it.
#[derive(Default)]
struct Found {
    /// Pairs of id and owner.
    containers: Vec<(String, Option<String>)>,
    networks: Vec<(String, Option<String>)>,
    volumes: Vec<(String, Option<String>)>,
    servers: Vec<(Identity, String)>,
    folders: Vec<String>,
}

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
    pub async fn remove_all(&self) -> Result<(), String> {
        let found = self.find().await?;
        self.remove(found, &BTreeSet::new()).await
    }

    /// First what exists, then who owns: what is made meanwhile is not seen, and its owner is.
    async fn remove_ownerless(&self, client: &Client) -> Result<(), String> {
        let found = self.find().await?;
        let owners = owners(client).await.map_err(|error| error.to_string())?;
        self.remove(found, &owners).await
    }

    async fn find(&self) -> Result<Found, String> {
        let ours = [(labels::INSTANCE, self.instance.as_str())];
        let words = |error: EngineError| error.to_string();
        let containers = self.engine.list_containers(&ours).await.map_err(words)?;
        let networks = self.engine.list_networks(&ours).await.map_err(words)?;
        let volumes = self.engine.list_volumes(&ours).await.map_err(words)?;
        Ok(Found {
            containers: containers.into_iter().map(|one| (one.id, one.labels.get(labels::UID).cloned())).collect(),
            networks: networks.into_iter().map(|one| (one.id, one.owner)).collect(),
            volumes: volumes.into_iter().map(|one| (one.name, one.labels.get(labels::UID).cloned())).collect(),
            servers: Pairs::living(&self.instance),
            folders: folders(&self.folders),
        })
    }

    /// Goes on after a failure: each thing that goes is one less. A network without an owner is to be kept.
    async fn remove(&self, found: Found, owners: &BTreeSet<String>) -> Result<(), String> {
        let mut failures = Vec::new();
        let ownerless = |owner: &Option<String>| owner.as_ref().is_some_and(|uid| !owners.contains(uid));
        for (id, _) in found.containers.iter().filter(|(_, owner)| ownerless(owner)) {
            info!(container = id, "removing a container without an owner");
            failures.extend(self.engine.remove_container(id).await.err().map(|error| error.to_string()));
        }
        for (name, _) in found.volumes.iter().filter(|(_, owner)| ownerless(owner)) {
            info!(volume = name, "removing a volume without an owner");
            failures.extend(self.engine.remove_volume(name).await.err().map(|error| error.to_string()));
        }
        for (server, _) in found.servers.iter().filter(|(_, uid)| !owners.contains(uid)) {
            info!(pid = server.pid, "ending a server proxy without an owner");
            failures.extend(server.stop().await.err().map(|error| error.to_string()));
        }
        for uid in found.folders.iter().filter(|uid| !owners.contains(*uid)) {
            info!(uid, "removing the folder of a pair without an owner");
            failures.extend(Pairs::remove_leftover(&self.folders, uid).err().map(|error| error.to_string()));
        }
        for (id, _) in found.networks.iter().filter(|(_, owner)| ownerless(owner)) {
            info!(network = id, "removing a network without an owner");
            failures.extend(self.engine.remove_network(id).await.err().map(|error| error.to_string()));
        }
        if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
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
