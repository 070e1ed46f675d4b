//! Garbage collection by owner references: background, foreground and orphan.
//!
//! Every write leaves a footprint. The graph made of them is only a hint about where to look; what is done to an object is
//! decided from the store, so that a footprint that comes late or twice does no harm.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use underpass_store::At;

use crate::api::Api;
use crate::delete::{DeleteOptions, FOREGROUND, ORPHAN, Propagation};
use crate::object::{self, Object};
use crate::own_writes::{self, target_of};
use crate::registry::Resource;
use crate::request::Target;
use crate::status::ApiError;
use crate::write::Call;

const MANAGER: &str = "underpass-collector";

/// What a write tells the collector.
#[derive(Debug, Clone)]
pub(crate) struct Footprint {
    bucket: Arc<str>,
    key: String,
    uid: String,
    owners: Vec<Owner>,
    gone: bool,
    waits_for_dependents: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct Owner {
    uid: String,
    api_version: String,
    kind: String,
    name: String,
    blocks: bool,
}

type Place = (Arc<str>, String);

/// Which objects name which owners.
#[derive(Default)]
struct Graph {
    owners: HashMap<Place, Vec<Owner>>,
    dependents: HashMap<String, BTreeSet<Place>>,
}

pub(crate) struct Collector {
    api: Arc<Api>,
    graph: Graph,
}

/// How an owner stands, seen from a dependent.
#[derive(Debug, PartialEq)]
enum Standing {
    Solid,
    /// Being deleted in the foreground, and this dependent keeps it waiting.
    Waiting,
    Absent,
}

impl Footprint {
    pub(crate) fn of(resource: &Resource, key: &str, object: &Object, gone: bool) -> Self {
        let finalizers = object::finalizers(object);
        Self {
            bucket: resource.bucket.clone(),
            key: key.to_owned(),
            uid: object::uid(object).to_owned(),
            owners: owners_of(object),
            gone,
            waits_for_dependents: object::is_being_deleted(object)
                && finalizers.iter().any(|f| *f == FOREGROUND || *f == ORPHAN),
        }
    }
}

impl Collector {
    pub(crate) fn new(api: Arc<Api>) -> Self {
        Self { api, graph: Graph::default() }
    }

    /// Looks at everything that is stored, then at every write.
    pub(crate) async fn run(mut self, mut footprints: mpsc::UnboundedReceiver<Footprint>, stop: CancellationToken) {
        let stored = self.everything();
        // All edges first: who has dependents must be known before anybody is let go.
        for footprint in &stored {
            self.graph.update(&(footprint.bucket.clone(), footprint.key.clone()), footprint.owners.clone());
        }
        for footprint in stored {
            self.observe(footprint).await;
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                footprint = footprints.recv() => match footprint {
                    Some(footprint) => self.observe(footprint).await,
                    None => return,
                },
            }
        }
    }

    fn everything(&self) -> Vec<Footprint> {
        let registry = self.api.registry.load_full();
        let mut found = Vec::new();
        for (bucket, resource) in registry.buckets() {
            let Ok(listing) = self.api.store.list(&bucket, "", None, At::Now) else { continue };
            for entry in listing.entries {
                let object = resource.object_of(&entry.value, entry.revision);
                found.push(Footprint::of(&resource, &entry.name, &object, false));
            }
        }
        found
    }

    async fn observe(&mut self, footprint: Footprint) {
        let place = (footprint.bucket.clone(), footprint.key.clone());
        // Footprints may come out of order; the store is never older than one of them.
        let owners = self.read(&place).map(|(_, object)| owners_of(&object)).unwrap_or_default();
        let before = self.graph.update(&place, owners);
        if footprint.gone {
            for dependent in self.graph.dependents_of(&footprint.uid) {
                self.attempt(&dependent, "collect").await;
            }
        } else {
            if !footprint.owners.is_empty() {
                self.attempt(&place, "collect").await;
            }
            if footprint.waits_for_dependents {
                self.attempt(&place, "release").await;
            }
        }
        let namespace = place.1.split_once('/').map_or("", |(namespace, _)| namespace).to_owned();
        for owner in before.into_iter().chain(footprint.owners) {
            if let Some(owner) = self.place_of(&owner, &namespace) {
                self.attempt(&owner, "release").await;
            }
        }
    }

    async fn attempt(&self, place: &Place, what: &str) {
        let _writing = self.api.writers.enter();
        let result = match what {
            "collect" => self.collect(place).await,
            _ => self.release(place).await,
        };
        if let Err(error) = result {
            tracing::warn!(bucket = %place.0, key = %place.1, %error, "garbage collection could not {what} an object");
        }
    }

    /// Deletes an object all of whose owners are gone, or drops the references to those that are.
    async fn collect(&self, place: &Place) -> Result<(), ApiError> {
        let Some((resource, object)) = self.read(place) else { return Ok(()) };
        let owners = owners_of(&object);
        let namespace = object::namespace(&object);
        let standings: Vec<_> = owners.iter().map(|owner| self.standing(owner, namespace)).collect();
        let lost: BTreeSet<&str> = owners
            .iter()
            .zip(&standings)
            .filter(|(_, s)| **s != Standing::Solid)
            .map(|(o, _)| o.uid.as_str())
            .collect();
        if lost.is_empty() {
            return Ok(());
        }
        let target = target_of(&resource, &object);
        if standings.contains(&Standing::Solid) {
            let lost: BTreeSet<String> = lost.into_iter().map(str::to_owned).collect();
            return drop_references(&self.api, &target, &lost).await;
        }
        if object::is_being_deleted(&object) {
            return Ok(());
        }
        let foreground =
            standings.contains(&Standing::Waiting) && !self.graph.dependents_of(object::uid(&object)).is_empty();
        let propagation = if foreground { Propagation::Foreground } else { Propagation::Background };
        let options = DeleteOptions {
            propagation: Some(propagation),
            uid: Some(object::uid(&object).to_owned()),
            // An object that was adopted meanwhile stays.
            resource_version: Some(object::resource_version(&object).to_owned()),
            ..DeleteOptions::default()
        };
        let call = Call { api: &self.api, resource, target: &target };
        moved_is_fine(call.delete(&options).await.map(drop))
    }

    /// Lets a deleted owner go when what it waits for is done.
    async fn release(&self, place: &Place) -> Result<(), ApiError> {
        let Some((resource, object)) = self.read(place) else { return Ok(()) };
        if !object::is_being_deleted(&object) {
            return Ok(());
        }
        let uid = object::uid(&object).to_owned();
        let finalizers = object::finalizers(&object);
        let dependents = self.graph.dependents_of(&uid);
        let target = target_of(&resource, &object);
        if finalizers.contains(&ORPHAN) {
            for dependent in &dependents {
                self.orphan(dependent, &uid).await?;
            }
            return drop_finalizer(&self.api, &target, ORPHAN).await;
        }
        if !finalizers.contains(&FOREGROUND) {
            return Ok(());
        }
        let blocking: Vec<_> = dependents.iter().filter(|d| self.blocks(d, &uid)).collect();
        for dependent in &blocking {
            self.collect(dependent).await?;
        }
        if blocking.iter().any(|d| self.blocks(d, &uid) && !self.waits_for(d, &uid)) {
            return Ok(());
        }
        drop_finalizer(&self.api, &target, FOREGROUND).await
    }

    async fn orphan(&self, place: &Place, owner_uid: &str) -> Result<(), ApiError> {
        let Some((resource, object)) = self.read(place) else { return Ok(()) };
        let target = target_of(&resource, &object);
        drop_references(&self.api, &target, &BTreeSet::from([owner_uid.to_owned()])).await
    }

    fn blocks(&self, place: &Place, owner_uid: &str) -> bool {
        self.read(place).is_some_and(|(_, object)| owners_of(&object).iter().any(|o| o.uid == owner_uid && o.blocks))
    }

    /// Whether the object of `uid` is among those that this one waits for, deleted in the foreground as it is: owners in a circle
    /// would keep each other for ever.
    fn waits_for(&self, place: &Place, uid: &str) -> bool {
        let (mut next, mut seen) = (vec![place.clone()], BTreeSet::new());
        while let Some(place) = next.pop() {
            let Some((_, object)) = self.read(&place) else { continue };
            let own = object::uid(&object);
            if own == uid {
                return true;
            }
            let waiting = object::is_being_deleted(&object) && object::finalizers(&object).contains(&FOREGROUND);
            if seen.insert(place) && waiting {
                next.extend(self.graph.dependents_of(own).into_iter().filter(|d| self.blocks(d, own)));
            }
        }
        false
    }

    fn standing(&self, owner: &Owner, namespace: &str) -> Standing {
        let registry = self.api.registry.load();
        // A kind that is not served is no proof that the owner is gone.
        let Some(resource) = registry.find_kind(&owner.api_version, &owner.kind) else { return Standing::Solid };
        // Nor is an owner in a namespace that a cluster-wide object cannot name.
        if resource.namespaced && namespace.is_empty() {
            return Standing::Solid;
        }
        let key = object::key(if resource.namespaced { namespace } else { "" }, &owner.name);
        let Some((_, object)) = self.read(&(resource.bucket.clone(), key)) else { return Standing::Absent };
        if object::uid(&object) != owner.uid {
            return Standing::Absent;
        }
        let waiting = object::is_being_deleted(&object) && object::finalizers(&object).contains(&FOREGROUND);
        if waiting && owner.blocks { Standing::Waiting } else { Standing::Solid }
    }

    fn place_of(&self, owner: &Owner, namespace: &str) -> Option<Place> {
        let resource = self.api.registry.load().find_kind(&owner.api_version, &owner.kind)?;
        let key = object::key(if resource.namespaced { namespace } else { "" }, &owner.name);
        Some((resource.bucket.clone(), key))
    }

    fn read(&self, place: &Place) -> Option<(Arc<Resource>, Object)> {
        let resource = self.api.registry.load().buckets().get(&place.0)?.clone();
        let entry = self.api.store.get(&place.0, &place.1)?;
        let object = resource.object_of(&entry.value, entry.revision);
        Some((resource, object))
    }
}

impl Graph {
    /// Returns the owners that were known before.
    fn update(&mut self, place: &Place, owners: Vec<Owner>) -> Vec<Owner> {
        let before = self.owners.remove(place).unwrap_or_default();
        for owner in &before {
            if let Some(set) = self.dependents.get_mut(&owner.uid) {
                set.remove(place);
                if set.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
        for owner in &owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(place.clone());
        }
        if !owners.is_empty() {
            self.owners.insert(place.clone(), owners);
        }
        before
    }

    fn dependents_of(&self, uid: &str) -> Vec<Place> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }
}

fn owners_of(object: &Object) -> Vec<Owner> {
    let text = |reference: &Value, field: &str| reference[field].as_str().unwrap_or_default().to_owned();
    let owner = |reference: &Value| Owner {
        uid: text(reference, "uid"),
        api_version: text(reference, "apiVersion"),
        kind: text(reference, "kind"),
        name: text(reference, "name"),
        blocks: reference["blockOwnerDeletion"] == true,
    };
    object::owner_references(object).iter().map(owner).collect()
}

async fn drop_references(api: &Api, target: &Target, uids: &BTreeSet<String>) -> Result<(), ApiError> {
    change_metadata(api, target, "ownerReferences", |reference| {
        !reference["uid"].as_str().is_some_and(|uid| uids.contains(uid))
    })
    .await
}

async fn drop_finalizer(api: &Api, target: &Target, finalizer: &str) -> Result<(), ApiError> {
    change_metadata(api, target, "finalizers", |f| f != finalizer).await
}

/// Keeps the items of a metadata list that `keep` accepts.
async fn change_metadata(
    api: &Api,
    target: &Target,
    field: &str,
    keep: impl Fn(&Value) -> bool,
) -> Result<(), ApiError> {
    let edit = |object: &mut Object| {
        let list = object["metadata"][field].as_array().into_iter().flatten();
        let kept: Vec<Value> = list.filter(|item| keep(item)).cloned().collect();
        let metadata = object::metadata_mut(object);
        if kept.is_empty() {
            metadata.remove(field);
        } else {
            metadata.insert(field.to_owned(), json!(kept));
        }
    };
    moved_is_fine(own_writes::change(api, target, MANAGER, edit).await)
}

/// An object that changed or went meanwhile left a footprint of its own.
fn moved_is_fine(result: Result<(), ApiError>) -> Result<(), ApiError> {
    match result {
        Err(error) if matches!(error.code.as_u16(), 404 | 409) => Ok(()),
        other => other,
    }
}
