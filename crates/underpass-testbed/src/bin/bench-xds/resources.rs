//! What is served, in bytes: for the other control plane, which gets its resources from files, and for the clients, who know a change when
//! they see it.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
use prost::Message;
use tempfile::TempDir;
use underpass_xds::{Kind, Resource, Snapshot, Translator};

use crate::backends::{Change, Tables};
use crate::client::Sign;

/// The resources of so many backends. Their files go with this value.
pub(crate) struct Served {
    pub(crate) backends: usize,
    plain: Snapshot,
    changed: [Snapshot; 2],
    folder: TempDir,
}

impl Served {
    pub(crate) fn new(backends: usize) -> anyhow::Result<Self> {
        let (tables, mut translator) = (Tables::new(backends), Translator::default());
        let plain = translator.snapshot(&tables.plain);
        let changed = Change::ALL.map(|change| translator.snapshot(tables.after(change)));
        let served = Self { backends, plain, changed, folder: tempfile::tempdir()? };
        served.put("plain", &mut Kind::ALL.into_iter().flat_map(|kind| resources(&served.plain, kind)))?;
        for change in Change::ALL {
            let news = Kind::ALL.into_iter().flat_map(|kind| served.news(change, kind));
            served.put(change.word(), &mut news.map(|(_, resource)| resource))?;
        }
        Ok(served)
    }

    /// `plain` are all resources, the others hold what a change adds to them or puts in their place.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What a client has seen that has everything.
    pub(crate) fn loaded(&self) -> Vec<Sign> {
        Kind::ALL.into_iter().map(|kind| Sign::Count(kind, resources(&self.plain, kind).count())).collect()
    }

    /// What a client has seen that knows of a change, or that knows that all is as before.
    pub(crate) fn signs(&self, change: Change, is_changed: bool) -> Vec<Sign> {
        let mut signs = Vec::new();
        for kind in Kind::ALL {
            for (name, after) in self.news(change, kind) {
                let before = named(&self.plain, kind, &name);
                match if is_changed { Some(after) } else { before } {
                    // Go's library writes the fields of a cluster in another order.
                    Some(_) if kind == Kind::Cluster => signs.push(Sign::Named(kind, name)),
                    Some(resource) => signs.push(Sign::Body(kind, resource.value.clone().into())),
                    // Whoever has no cluster asks for no endpoints.
                    None if kind == Kind::Cluster => signs.push(Sign::Gone(kind, name)),
                    None => {}
                }
            }
        }
        signs
    }

    fn news(&self, change: Change, kind: Kind) -> impl Iterator<Item = (String, Arc<Resource>)> {
        let after = &self.changed[change as usize];
        let is_news = move |(name, resource): &(String, Arc<Resource>)| {
            named(&self.plain, kind, name).is_none_or(|before| before.version != resource.version)
        };
        all(after, kind).filter(is_news)
    }

    fn put(&self, name: &str, resources: &mut dyn Iterator<Item = Arc<Resource>>) -> anyhow::Result<()> {
        let resources = resources.map(|resource| resource.packed()).collect();
        let message = DiscoveryResponse { resources, ..DiscoveryResponse::default() };
        let path = self.folder.path().join(name);
        std::fs::write(&path, message.encode_to_vec()).with_context(|| format!("cannot write {}", path.display()))
    }
}

fn all(snapshot: &Snapshot, kind: Kind) -> impl Iterator<Item = (String, Arc<Resource>)> {
    snapshot.of(kind).iter().map(|(name, resource)| (name.to_string(), resource.clone()))
}

fn resources(snapshot: &Snapshot, kind: Kind) -> impl Iterator<Item = Arc<Resource>> {
    all(snapshot, kind).map(|(_, resource)| resource)
}

fn named(snapshot: &Snapshot, kind: Kind, name: &str) -> Option<Arc<Resource>> {
    snapshot.of(kind).get(name).cloned()
}
