//! The life of a namespace: what each one gets when it begins, and how it is emptied before it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use underpass_store::{At, Changed, Event, ReadError};

use crate::api::{Api, now};
use crate::delete::DeleteOptions;
use crate::object::{self, Object};
use crate::own_writes;
use crate::request::Target;
use crate::status::ApiError;

const MANAGER: &str = "underpass-namespaces";
/// The namespaces that every cluster has.
const BASIC: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];
const ROOT_CA: &str = "kube-root-ca.crt";
/// How soon a namespace that waits for others' finalizers is looked at again, besides being looked at after each change.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

pub(crate) struct Namespaces {
    api: Arc<Api>,
    /// Namespaces that are being deleted and are not empty yet.
    ending: BTreeSet<String>,
}

impl Namespaces {
    pub(crate) fn new(api: Arc<Api>) -> Self {
        Self { api, ending: BTreeSet::new() }
    }

    /// Makes the basic namespaces, and for each namespace what belongs into it. Done before the server is ready.
    pub(crate) async fn begin(&mut self) -> Result<(), ApiError> {
        for name in BASIC {
            self.create("namespaces", "", json!({ "metadata": { "name": name } })).await?;
        }
        for (name, object) in self.list() {
            self.look_at(&name, &object).await;
        }
        Ok(())
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) {
        loop {
            if let Err(error) = self.follow(&stop).await {
                tracing::warn!(%error, "following namespaces failed; beginning anew");
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            if stop.is_cancelled() {
                return;
            }
            if let Err(error) = self.begin().await {
                tracing::warn!(%error, "namespaces could not be brought into order");
            }
        }
    }

    /// Follows changes until the server stops or the log was compacted past us.
    async fn follow(&mut self, stop: &CancellationToken) -> Result<(), ApiError> {
        let compacted = |e: ReadError| ApiError::internal(e.to_string());
        let from = self.api.store.revision();
        let mut namespaces = self.api.store.watch("namespaces", from).map_err(compacted)?;
        let mut accounts = self.api.store.watch("serviceaccounts", from).map_err(compacted)?;
        let mut maps = self.api.store.watch("configmaps", from).map_err(compacted)?;
        for (name, object) in self.list() {
            self.look_at(&name, &object).await;
        }
        let mut tick = tokio::time::interval(LOOK_AGAIN);
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                event = namespaces.next() => self.changed(&event.map_err(compacted)?.name).await?,
                event = accounts.next() => self.lost(event.map_err(compacted)?.as_ref(), "default").await?,
                event = maps.next() => self.lost(event.map_err(compacted)?.as_ref(), ROOT_CA).await?,
                _ = tick.tick(), if !self.ending.is_empty() => {
                    for name in self.ending.clone() {
                        self.changed(&name).await?;
                    }
                }
            }
        }
    }

    fn list(&self) -> Vec<(String, Object)> {
        let listing = self.api.store.list("namespaces", "", None, At::Now);
        let entries = listing.map(|l| l.entries).unwrap_or_default();
        entries.iter().filter_map(|e| Some((e.name.to_string(), serde_json::from_slice(&e.value).ok()?))).collect()
    }

    async fn changed(&mut self, name: &str) -> Result<(), ApiError> {
        let Some(entry) = self.api.store.get("namespaces", name) else {
            self.ending.remove(name);
            return Ok(());
        };
        let object: Object = serde_json::from_slice(&entry.value).map_err(|e| ApiError::internal(e.to_string()))?;
        self.look_at(name, &object).await;
        Ok(())
    }

    /// Something that every namespace has was deleted or changed: it comes back as it was.
    async fn lost(&mut self, event: &Event, what: &str) -> Result<(), ApiError> {
        match event.name.split_once('/') {
            Some((namespace, name)) if name == what && (event.change == Changed::Deleted || what == ROOT_CA) => {
                self.changed(namespace).await
            }
            _ => Ok(()),
        }
    }

    /// Trouble in one namespace is told and does not keep the others waiting.
    async fn look_at(&mut self, name: &str, namespace: &Object) {
        let _writing = self.api.writers.enter();
        if let Err(error) = self.tend(name, namespace).await {
            tracing::warn!(namespace = name, %error, "a namespace could not be brought into order");
        }
    }

    async fn tend(&mut self, name: &str, namespace: &Object) -> Result<(), ApiError> {
        if !object::is_being_deleted(namespace) {
            return self.furnish(name).await;
        }
        self.ending.insert(name.to_owned());
        let left = self.empty(name).await?;
        if left.is_empty() { self.finish(name).await } else { self.tell(name, &left).await }
    }

    async fn furnish(&self, namespace: &str) -> Result<(), ApiError> {
        self.create("serviceaccounts", namespace, json!({ "metadata": { "name": "default" } })).await?;
        let note = json!({ "kubernetes.io/description": "The certificate authority of this API server, for clients in this namespace." });
        let map =
            json!({ "metadata": { "name": ROOT_CA, "annotations": note }, "data": { "ca.crt": self.api.ca_pem } });
        let key = object::key(namespace, ROOT_CA);
        match self.api.store.get("configmaps", &key) {
            Some(entry) if self.has_our_authority(&entry.value) => Ok(()),
            Some(_) => self.restore_authority(namespace).await,
            None => self.create("configmaps", namespace, map).await,
        }
    }

    fn has_our_authority(&self, value: &[u8]) -> bool {
        serde_json::from_slice::<Value>(value).is_ok_and(|map| map["data"]["ca.crt"] == json!(self.api.ca_pem))
    }

    async fn restore_authority(&self, namespace: &str) -> Result<(), ApiError> {
        let target = Target { namespace: namespace.to_owned(), name: ROOT_CA.to_owned(), ..core("configmaps") };
        let restore = |map: &mut Object| map["data"] = json!({ "ca.crt": self.api.ca_pem });
        match own_writes::change(&self.api, &target, MANAGER, restore).await {
            // Made immutable, or broken otherwise: its deletion brings a good one back.
            Err(error) if error.reason == "Invalid" => {
                let call = own_writes::call(&self.api, &target)?;
                own_writes::gone_is_fine(call.delete(&DeleteOptions::default()).await.map(drop))
            }
            result => result,
        }
    }

    /// Creates an object unless it exists, or its namespace ends meanwhile.
    async fn create(&self, plural: &str, namespace: &str, object: Object) -> Result<(), ApiError> {
        let target = Target { namespace: namespace.to_owned(), ..core(plural) };
        let call = own_writes::call(&self.api, &target)?;
        if self.api.store.get(&call.resource.bucket, &call.key(object::name(&object))).is_some() {
            return Ok(());
        }
        let decoded = crate::decode::Decoded { value: object, duplicates: Vec::new() };
        match call.create(decoded, &own_writes::options(MANAGER)).await {
            Err(error) if !matches!(error.reason, "AlreadyExists" | "Forbidden" | "NotFound") => Err(error),
            _ => Ok(()),
        }
    }

    /// Deletes everything in the namespace; what is left waits for finalizers.
    async fn empty(&self, namespace: &str) -> Result<BTreeMap<String, usize>, ApiError> {
        let mut left = BTreeMap::new();
        let registry = self.api.registry.load_full();
        for (bucket, resource) in registry.buckets().into_iter().filter(|(_, r)| r.namespaced) {
            let prefix = resource.prefix(namespace);
            let listing =
                self.api.store.list(&bucket, &prefix, None, At::Now).map_err(|e| ApiError::internal(e.to_string()))?;
            for entry in listing.entries {
                let object = resource.object_of(&entry.value, entry.revision);
                own_writes::delete(&self.api, &resource, &object).await?;
            }
            let after = self.api.store.list(&bucket, &prefix, None, At::Now).map_or(0, |l| l.entries.len());
            if after > 0 {
                left.insert(bucket.to_string(), after);
            }
        }
        Ok(left)
    }

    async fn finish(&mut self, name: &str) -> Result<(), ApiError> {
        self.ending.remove(name);
        let target = Target { name: name.to_owned(), subresource: "finalize".to_owned(), ..core("namespaces") };
        own_writes::change(&self.api, &target, MANAGER, |namespace| namespace["spec"]["finalizers"] = json!([])).await
    }

    /// Says on the namespace what it waits for.
    async fn tell(&self, name: &str, left: &BTreeMap<String, usize>) -> Result<(), ApiError> {
        let listed: Vec<String> =
            left.iter().map(|(bucket, count)| format!("{bucket} has {count} resource instances")).collect();
        let message = format!("Some resources are remaining: {}", listed.join(", "));
        let target = Target { name: name.to_owned(), subresource: "status".to_owned(), ..core("namespaces") };
        let tell = |namespace: &mut Object| {
            if namespace.pointer("/status/conditions/0/message") != Some(&json!(message)) {
                namespace["status"]["conditions"] = json!([{
                    "type": "NamespaceContentRemaining", "status": "True", "reason": "SomeResourcesRemain",
                    "message": message, "lastTransitionTime": now(),
                }]);
            }
        };
        own_writes::change(&self.api, &target, MANAGER, tell).await
    }
}

fn core(plural: &str) -> Target {
    Target { version: "v1".to_owned(), plural: plural.to_owned(), ..Target::default() }
}
