//! The life of a CustomResourceDefinition: its schemas are checked, its names are accepted, it is served, and its objects go
//! before it goes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use underpass_builtins::Approval;
use underpass_schema::{FieldError, Path, Schema};
use underpass_store::At;

use crate::api::{Api, now};
use crate::decode::Decoded;
use crate::object::{self, Object};
use crate::own_writes;
use crate::registry::{Registry, Resource, Since};
use crate::request::Target;
use crate::status::ApiError;

pub(crate) const GROUP: &str = "apiextensions.k8s.io";
pub(crate) const KIND: &str = "CustomResourceDefinition";
const BUCKET: &str = "customresourcedefinitions.apiextensions.k8s.io";
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
const MANAGER: &str = "underpass-definitions";
/// How soon a definition that waits for its objects' finalizers is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

pub(crate) struct Definitions {
    api: Arc<Api>,
    /// By definition: what was made of it last.
    served: BTreeMap<String, Served>,
    generation: u64,
}

/// A definition as it is served.
struct Served {
    /// What its resources were made from; they are made anew only when it changes.
    spec: Value,
    names: Value,
    terminating: bool,
    /// The revision since which everything is written by this spec.
    since: Since,
    resources: Vec<Arc<Resource>>,
}

/// The schemas of a definition, beyond what its own schema says.
pub(crate) fn validate(definition: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
    for (index, version) in versions.enumerate() {
        let path = Path::from("spec").field("versions").index(index).field("schema").field("openAPIV3Schema");
        match version.pointer("/schema/openAPIV3Schema") {
            None => errors.push(FieldError::required(&path, "schemas are required")),
            Some(written) => match Schema::parse(written, &path) {
                Ok(schema) => errors.extend(schema.check_structural(&path)),
                Err(found) => errors.extend(found),
            },
        }
    }
    errors
}

/// What is allowed and yet not what its author may think; on a change only what is new.
pub(crate) fn warnings(definition: &Object, before: Option<&Object>) -> Vec<String> {
    let formats = |definition: &Object| -> BTreeSet<String> {
        let versions = definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
        let written = versions.filter_map(|version| version.pointer("/schema/openAPIV3Schema"));
        let schemas = written.filter_map(|written| Schema::parse(written, &Path::root()).ok());
        schemas.flat_map(|s| s.unknown_formats().into_iter().map(str::to_owned).collect::<Vec<_>>()).collect()
    };
    let known = before.map(formats).unwrap_or_default();
    formats(definition).difference(&known).map(|format| format!("unrecognized format {format:?}")).collect()
}

impl Definitions {
    pub(crate) fn new(api: Arc<Api>) -> Self {
        Self { api, served: BTreeMap::new(), generation: 0 }
    }

    /// Serves what is stored and makes the given definitions as they should be. Done before the server is ready.
    pub(crate) async fn begin(&mut self, own: &[Value]) -> Result<(), ApiError> {
        self.bring_up_to_date().await?;
        for definition in own {
            self.install(definition).await?;
        }
        self.bring_up_to_date().await.map(drop)
    }

    async fn install(&self, definition: &Value) -> Result<(), ApiError> {
        let target = Target { name: object::name(definition).to_owned(), ..all() };
        let call = own_writes::call(&self.api, &target)?;
        let written = Decoded { value: definition.clone(), duplicates: Vec::new() };
        let (mut wanted, _) = call.intake(written, crate::request::FieldValidation::Strict)?;
        let Some(entry) = self.api.store.get(BUCKET, &target.name) else {
            return call.insert(wanted, &own_writes::options(MANAGER), true).await.map(drop);
        };
        call.resource.default(&mut wanted);
        if call.resource.object_of(&entry.value, entry.revision)["spec"] == wanted["spec"] {
            return Ok(());
        }
        own_writes::change(&self.api, &target, MANAGER, |object| object["spec"] = wanted["spec"].clone()).await
    }

    pub(crate) async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            if let Err(error) = self.follow(&stop).await {
                tracing::warn!(%error, "following definitions failed; beginning anew");
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
    }

    async fn follow(&mut self, stop: &CancellationToken) -> Result<(), ApiError> {
        let failed = |e: underpass_store::ReadError| ApiError::internal(e.to_string());
        let mut changes = self.api.store.watch(BUCKET, self.api.store.revision()).map_err(failed)?;
        let mut waiting = self.bring_up_to_date().await?;
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                event = changes.next() => {
                    event.map_err(failed)?;
                    while changes.try_next().map_err(failed)?.is_some() {}
                }
                () = tokio::time::sleep(LOOK_AGAIN), if waiting => {}
            }
            waiting = self.bring_up_to_date().await?;
        }
    }

    /// One pass over all definitions; true when one waits for its objects to go.
    async fn bring_up_to_date(&mut self) -> Result<bool, ApiError> {
        self.judge().await?;
        let mut waiting = false;
        for definition in self.list()? {
            if object::is_being_deleted(&definition) && object::finalizers(&definition).contains(&CLEANUP) {
                waiting |= !self.end(&definition).await?;
            }
        }
        Ok(waiting)
    }

    /// Decides which definitions stand. Each is held by its finalizer before it is served, and served before its status says so:
    /// whoever reads Established can use the kind at once.
    async fn judge(&mut self) -> Result<(), ApiError> {
        let mut taken = Names::of_kubernetes();
        let mut judged = Vec::new();
        for definition in self.list()? {
            if wants_finalizer(&definition) {
                self.hold(&definition).await?;
            }
            let (before, mut after) = (definition.get("status").cloned(), definition);
            after["status"] = self.status_of(&after, &mut taken);
            judged.push((before, after));
        }
        let (before, after): (Vec<Option<Value>>, Vec<Object>) = judged.into_iter().unzip();
        self.serve(&after);
        for (_, definition) in
            before.iter().zip(&after).filter(|(before, after)| before.as_ref() != after.get("status"))
        {
            self.write_status(definition).await?;
        }
        Ok(())
    }

    /// Established ones first, then by age: who came first keeps its names.
    fn list(&self) -> Result<Vec<Object>, ApiError> {
        let listing = self.api.store.list(BUCKET, "", None, At::Now).map_err(|e| ApiError::internal(e.to_string()))?;
        let mut entries = listing.entries;
        entries.sort_by_key(|entry| entry.created);
        let parsed = entries.iter().map(|e| serde_json::from_slice::<Object>(&e.value));
        let mut definitions: Vec<Object> =
            parsed.collect::<Result<_, _>>().map_err(|e| ApiError::internal(e.to_string()))?;
        definitions.sort_by_key(|d| !has_condition(d, "Established"));
        Ok(definitions)
    }

    fn status_of(&self, definition: &Object, taken: &mut Names) -> Value {
        let names = &definition["spec"]["names"];
        let mut status = definition.get("status").cloned().unwrap_or_else(|| json!({}));
        let clash = taken.clash(object::text(definition, "/spec/group"), names);
        let established = clash.is_none() || has_condition(definition, "Established");
        if clash.is_none() {
            taken.take(object::text(definition, "/spec/group"), names);
            status["acceptedNames"] = names.clone();
        } else if status.get("acceptedNames").is_none() {
            status["acceptedNames"] = json!({ "plural": "", "kind": "" });
        }
        let accepted = match clash {
            None => ("True", "NoConflicts", "no conflicts found".to_owned()),
            Some((reason, why)) => ("False", reason, why),
        };
        set_condition(&mut status, "NamesAccepted", accepted);
        let stands = if established {
            ("True", "InitialNamesAccepted", "the initial names have been accepted".to_owned())
        } else {
            ("False", "NotAccepted", "not all names are accepted".to_owned())
        };
        set_condition(&mut status, "Established", stands);
        if let Some(approval) = underpass_builtins::approval(definition) {
            set_condition(&mut status, "KubernetesAPIApprovalPolicyConformant", conformant(approval));
        }
        if object::is_being_deleted(definition) {
            let ending = ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress".to_owned());
            set_condition(&mut status, "Terminating", ending);
        }
        status["storedVersions"] = json!(stored_versions(definition));
        status
    }

    async fn hold(&self, definition: &Object) -> Result<(), ApiError> {
        let target = Target { name: object::name(definition).to_owned(), ..all() };
        let add = |object: &mut Object| {
            if wants_finalizer(object) {
                let mut finalizers: Vec<String> = object::finalizers(object).into_iter().map(str::to_owned).collect();
                finalizers.push(CLEANUP.to_owned());
                object::metadata_mut(object).insert("finalizers".to_owned(), json!(finalizers));
            }
        };
        own_writes::change(&self.api, &target, MANAGER, add).await
    }

    async fn write_status(&self, definition: &Object) -> Result<(), ApiError> {
        let name = object::name(definition).to_owned();
        let target = Target { name, subresource: "status".to_owned(), ..all() };
        own_writes::change(&self.api, &target, MANAGER, |object| object["status"] = definition["status"].clone()).await
    }

    /// Serves the established ones among these definitions, if that is a change.
    fn serve(&mut self, definitions: &[Object]) {
        let mut before = std::mem::take(&mut self.served);
        let (mut changed, mut unsettled) = (self.generation == 0, Vec::new());
        for definition in definitions.iter().filter(|d| has_condition(d, "Established")) {
            let name = object::name(definition).to_owned();
            let served = match before.remove(&name) {
                Some(served) if served.is_of(definition) => served,
                other => {
                    changed = true;
                    Served::of(&self.api, definition, other.as_ref())
                }
            };
            if is_single(definition) && served.since.load(Ordering::Acquire) == u64::MAX {
                unsettled.push(served.since.clone());
            }
            self.served.insert(name, served);
        }
        if changed || !before.is_empty() {
            self.swap();
        }
        if !unsettled.is_empty() {
            tokio::spawn(settle(self.api.clone(), unsettled));
        }
    }

    fn swap(&mut self) {
        self.generation += 1;
        let resources = self.served.values().flat_map(|served| served.resources.iter().cloned());
        self.api.registry.store(Arc::new(Registry::build(resources, self.generation)));
    }

    /// Deletes the definition's objects; when none are left, serves it no longer and lets it go. True when that is done.
    async fn end(&mut self, definition: &Object) -> Result<bool, ApiError> {
        // One that never stood has no objects: those of its name are somebody else's.
        if has_condition(definition, "Established") && !self.empty(definition).await? {
            return Ok(false);
        }
        // Whoever sees that the definition is gone must not find its path any more.
        self.served.remove(object::name(definition));
        self.swap();
        let target = Target { name: object::name(definition).to_owned(), ..all() };
        let release = |object: &mut Object| {
            let kept: Vec<String> =
                object::finalizers(object).into_iter().filter(|f| *f != CLEANUP).map(str::to_owned).collect();
            object::metadata_mut(object).insert("finalizers".to_owned(), json!(kept));
        };
        own_writes::change(&self.api, &target, MANAGER, release).await?;
        Ok(true)
    }

    /// True when the definition has no objects any more.
    async fn empty(&self, definition: &Object) -> Result<bool, ApiError> {
        // Objects of a definition that serves no version any more still have to go.
        let mut all_served = definition.clone();
        for version in all_served["spec"]["versions"].as_array_mut().into_iter().flatten() {
            version["served"] = json!(true);
        }
        let Some(resource) = Resource::from_definition(&all_served, &never()).into_iter().next() else {
            return Ok(true);
        };
        self.delete_all(&resource).await?;
        Ok(self.api.store.list(&resource.bucket, "", None, At::Now).map_or(0, |listing| listing.entries.len()) == 0)
    }

    async fn delete_all(&self, resource: &Arc<Resource>) -> Result<(), ApiError> {
        let listing =
            self.api.store.list(&resource.bucket, "", None, At::Now).map_err(|e| ApiError::internal(e.to_string()))?;
        for entry in listing.entries {
            let object = resource.object_of(&entry.value, entry.revision);
            own_writes::delete(&self.api, resource, &object).await?;
        }
        Ok(())
    }
}

impl Served {
    fn of(api: &Arc<Api>, definition: &Object, before: Option<&Self>) -> Self {
        let since = match before {
            Some(before) if before.spec == definition["spec"] => before.since.clone(),
            // Written through another version, an object has that one's defaults: then every one is looked at when it is read.
            _ if !is_single(definition) => never(),
            // Whoever is writing now may have taken the defaults of the spec before.
            Some(_) => never(),
            None => Arc::new(AtomicU64::new(api.store.revision())),
        };
        Self {
            spec: definition["spec"].clone(),
            names: definition["status"]["acceptedNames"].clone(),
            terminating: object::is_being_deleted(definition),
            resources: Resource::from_definition(definition, &since),
            since,
        }
    }

    fn is_of(&self, definition: &Object) -> bool {
        self.spec == definition["spec"]
            && self.names == definition["status"]["acceptedNames"]
            && self.terminating == object::is_being_deleted(definition)
    }
}

/// Until the last writer by an old spec is done, every object is looked at when it is read; from then on only the older ones.
async fn settle(api: Arc<Api>, unsettled: Vec<Since>) {
    api.writers.left().await;
    let revision = api.store.revision();
    for since in unsettled {
        since.store(revision, Ordering::Release);
    }
}

fn is_single(definition: &Object) -> bool {
    definition.pointer("/spec/versions").and_then(Value::as_array).is_none_or(|list| list.len() == 1)
}

fn never() -> Since {
    Arc::new(AtomicU64::new(u64::MAX))
}

/// The names that definitions hold, per group.
#[derive(Default)]
struct Names {
    resources: BTreeSet<(String, String)>,
    kinds: BTreeSet<(String, String)>,
}

impl Names {
    /// Kubernetes' own kinds keep their names, and so their objects.
    fn of_kubernetes() -> Self {
        let mut taken = Self::default();
        for kind in underpass_builtins::all() {
            let names = json!({
                "plural": kind.plural, "singular": kind.singular, "shortNames": kind.short_names,
                "kind": kind.kind, "listKind": format!("{}List", kind.kind),
            });
            taken.take(kind.group, &names);
        }
        taken
    }

    fn wanted(names: &Value) -> (Vec<&str>, Vec<&str>) {
        let mut resources = vec![object::text(names, "/plural"), object::text(names, "/singular")];
        resources.extend(object::strings(names, "/shortNames"));
        (resources, vec![object::text(names, "/kind"), object::text(names, "/listKind")])
    }

    fn clash(&self, group: &str, names: &Value) -> Option<(&'static str, String)> {
        let (resources, kinds) = Self::wanted(names);
        let held = |set: &BTreeSet<(String, String)>, name: &str| set.contains(&(group.to_owned(), name.to_owned()));
        let sentence = |name: &str| format!("{name:?} is already in use");
        if let Some(name) = resources.iter().find(|n| held(&self.resources, n)) {
            let reason = if *name == object::text(names, "/plural") { "PluralConflict" } else { "NameConflict" };
            return Some((reason, sentence(name)));
        }
        kinds.iter().find(|n| held(&self.kinds, n)).map(|name| ("KindConflict", sentence(name)))
    }

    fn take(&mut self, group: &str, names: &Value) {
        let (resources, kinds) = Self::wanted(names);
        self.resources.extend(resources.into_iter().map(|n| (group.to_owned(), n.to_owned())));
        self.kinds.extend(kinds.into_iter().map(|n| (group.to_owned(), n.to_owned())));
    }
}

fn all() -> Target {
    Target {
        group: GROUP.to_owned(),
        version: "v1".to_owned(),
        plural: "customresourcedefinitions".to_owned(),
        ..Target::default()
    }
}

/// Every version that objects may have been stored in: the ones so far, and the storage version.
pub(crate) fn stored_versions(definition: &Object) -> Vec<String> {
    let mut stored: Vec<String> =
        object::strings(definition, "/status/storedVersions").into_iter().map(str::to_owned).collect();
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
    for version in versions.filter(|v| v["storage"] == true) {
        let name = object::text(version, "/name").to_owned();
        if !stored.contains(&name) {
            stored.push(name);
        }
    }
    stored
}

fn wants_finalizer(definition: &Object) -> bool {
    !object::is_being_deleted(definition) && !object::finalizers(definition).contains(&CLEANUP)
}

fn has_condition(object: &Object, type_: &str) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    conditions.into_iter().any(|c| c["type"] == type_ && c["status"] == "True")
}

/// What the condition about a protected group says.
fn conformant(approval: Approval) -> (&'static str, &'static str, String) {
    match approval {
        Approval::Given(why) => ("True", "ApprovedAnnotation", why),
        Approval::Bypassed(why) => ("False", "UnapprovedAnnotation", why),
        Approval::Missing(why) => ("False", "MissingAnnotation", why),
        Approval::Invalid(why) => ("False", "InvalidAnnotation", why),
    }
}

/// Sets a condition; its time stays unless its status changes.
fn set_condition(status: &mut Value, type_: &str, (value, reason, message): (&str, &str, String)) {
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let conditions = status["conditions"].as_array_mut().expect("conditions were just made a list");
    let mut condition =
        json!({ "type": type_, "status": value, "reason": reason, "message": message, "lastTransitionTime": now() });
    match conditions.iter_mut().find(|c| c["type"] == type_) {
        Some(before) => {
            if before["status"] == condition["status"] {
                condition["lastTransitionTime"] = before["lastTransitionTime"].clone();
            }
            *before = condition;
        }
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use underpass_store::{Options, Store};

    use super::*;

    fn definition(default: &str) -> Value {
        let spec =
            json!({ "type": "object", "default": {}, "properties": { "x": { "type": "string", "default": default } } });
        let schema = json!({ "type": "object", "properties": { "spec": spec } });
        let versions =
            json!([{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }]);
        json!({
            "metadata": { "name": "wells.a.io" },
            "spec": { "group": "a.io", "scope": "Cluster", "names": { "plural": "wells", "kind": "Well" }, "versions": versions },
        })
    }

    fn since(api: &Api) -> u64 {
        let wells = api.registry.load().find("a.io", "v1", "wells").unwrap();
        wells.custom().unwrap().since.load(Ordering::Acquire)
    }

    /// Whoever took the old defaults and has not written yet must not pass for one with the new defaults.
    #[tokio::test]
    async fn a_change_counts_from_the_last_writer_of_before() {
        let (api, _footprints) = Api::new(Store::ephemeral(Options::default()).unwrap(), String::new(), String::new());
        let api = Arc::new(api);
        let mut definitions = Definitions::new(api.clone());
        definitions.begin(&[definition("old")]).await.unwrap();
        assert!(since(&api) <= api.store.revision(), "nobody could write before");
        let writing = api.writers.enter();
        definitions.begin(&[definition("new")]).await.unwrap();
        assert_eq!(since(&api), u64::MAX);
        drop(writing);
        while since(&api) == u64::MAX {
            tokio::task::yield_now().await;
        }
        assert_eq!(since(&api), api.store.revision());
    }
}
