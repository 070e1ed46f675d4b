//! Create and update: from what a client sent to what is stored.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use underpass_builtins::shape;
use underpass_merge::Manager;
use underpass_schema::FieldError;
use underpass_store::{Entry, Expect};

use crate::api::{Api, CommitError, Kept, now};
use crate::decode::Decoded;
use crate::definitions;
use crate::metadata;
use crate::object::{self, Object};
use crate::registry::{Origin, Resource, object_metadata};
use crate::request::{Target, WriteOptions};
use crate::status::ApiError;

/// How often a write that set no resourceVersion is tried again when another one came first.
const ATTEMPTS: usize = 50;
/// How often a generated name that exists already is made anew.
const NAME_ATTEMPTS: usize = 8;
/// The resourceVersion that stands for none.
const ANY_VERSION: &str = "0";

/// What a write did.
pub(crate) struct Written {
    pub(crate) text: Bytes,
    pub(crate) created: bool,
    pub(crate) warnings: Vec<String>,
}

/// One request on one resource.
pub(crate) struct Call<'a> {
    pub(crate) api: &'a Api,
    pub(crate) resource: Arc<Resource>,
    pub(crate) target: &'a Target,
}

/// What an update changes the live object to; computed anew for each attempt.
pub(crate) enum Proposal {
    /// A whole object, or a patched one: the manager's update is tracked.
    Update(Object),
    /// The result of a server-side apply: managed fields are settled already.
    Applied(Object),
}

impl Call<'_> {
    pub(crate) fn key(&self, name: &str) -> String {
        object::key(if self.resource.namespaced { &self.target.namespace } else { "" }, name)
    }

    pub(crate) async fn create(&self, decoded: Decoded, options: &WriteOptions) -> Result<Written, ApiError> {
        let (object, mut warnings) = self.intake(decoded, options.field_validation)?;
        warnings.extend(metadata::advice(&self.resource, &object, None));
        if !matches!(object::resource_version(&object), "" | ANY_VERSION) {
            return Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"));
        }
        let generated = object::name(&object).is_empty() && !object::text(&object, "/metadata/generateName").is_empty();
        let mut attempt = 0;
        loop {
            let mut object = object.clone();
            if generated {
                let name = metadata::generated_name(object::text(&object, "/metadata/generateName"));
                object::metadata_mut(&mut object).insert("name".to_owned(), json!(name));
            }
            match self.insert(object, options, true).await {
                Err(e) if e.reason == "AlreadyExists" && generated && attempt < NAME_ATTEMPTS => attempt += 1,
                result => return result.map(|text| Written { text, created: true, warnings }),
            }
        }
    }

    /// Stores a new object: the end of a create, and of an apply that finds nothing.
    pub(crate) async fn insert(
        &self,
        mut object: Object,
        options: &WriteOptions,
        track: bool,
    ) -> Result<Bytes, ApiError> {
        let resource = &*self.resource;
        self.check_creatable(&object)?;
        resource.default(&mut object);
        metadata::begin(&mut object, &now(), resource.has_generation());
        if resource.status && !resource.keeps_status_on_create() {
            object.as_object_mut().map(|o| o.remove("status"));
            resource.default(&mut object);
        }
        if track {
            self.track(None, &mut object, options);
        }
        resource.validate(&object, None)?;
        let key = self.key(object::name(&object));
        let subject = resource.subject(object::name(&object));
        if options.dry_run {
            let exists = self.api.store.get(&resource.bucket, &key).is_some();
            return if exists {
                Err(ApiError::already_exists(&subject))
            } else {
                Ok(to_bytes(&resource.as_read(object)))
            };
        }
        match self.api.commit(resource, &key, Expect::Absent, Kept::Put, object).await {
            Ok(entry) => self.settled(&key, &entry).await,
            Err(CommitError::Conflict) => Err(ApiError::already_exists(&subject)),
            Err(CommitError::Failed(error)) => Err(error),
        }
    }

    /// A namespace or a definition that began to end meanwhile may have been found empty: then the new object goes again.
    async fn settled(&self, key: &str, entry: &Entry) -> Result<Bytes, ApiError> {
        let object = self.resource.object_of(&entry.value, entry.revision);
        let Err(ending) = self.check_creatable(&object) else {
            return Ok(self.resource.text_of(&entry.value, entry.revision));
        };
        // Whoever changed it since has seen it, and so has whoever empties the place.
        let _ = self.api.commit(&self.resource, key, Expect::Revision(entry.revision), Kept::Deleted, object).await;
        Err(ending)
    }

    pub(crate) async fn replace(&self, decoded: Decoded, options: &WriteOptions) -> Result<Written, ApiError> {
        let (object, warnings) = self.intake(decoded, options.field_validation)?;
        self.get()?;
        let text = self
            .change(options, |live| {
                self.check_uid(&object, live)?;
                self.check_version(&object, live)?;
                Ok(Proposal::Update(object.clone()))
            })
            .await?;
        Ok(Written { text, created: false, warnings })
    }

    /// Reads the live object, lets `propose` change it, and writes the result; again when another write came between.
    pub(crate) async fn change(
        &self,
        options: &WriteOptions,
        mut propose: impl FnMut(&Object) -> Result<Proposal, ApiError>,
    ) -> Result<Bytes, ApiError> {
        let subject = self.resource.subject(&self.target.name);
        let key = self.key(&self.target.name);
        for _ in 0..ATTEMPTS {
            let entry = self.api.store.get(&self.resource.bucket, &key).ok_or_else(|| ApiError::not_found(&subject))?;
            let live = self.resource.live_of(&entry.value, entry.revision);
            let (mut new, track) = match propose(&live)? {
                Proposal::Update(object) => (object, true),
                Proposal::Applied(object) => (object, false),
            };
            if !object::resource_version(&new).is_empty() {
                self.check_version(&new, &live)?;
            }
            self.settle(&live, &mut new);
            if track {
                self.track(Some(&live), &mut new, options);
            }
            self.count_generation(&live, &mut new);
            underpass_merge::keep_times_if_unchanged(&live, &mut new);
            self.resource.validate(&new, Some(&live))?;
            if new == live {
                return Ok(self.resource.text_of(&entry.value, entry.revision));
            }
            if options.dry_run {
                return Ok(to_bytes(&self.resource.as_read(new)));
            }
            match self.store_change(&key, &entry, new).await {
                Ok(entry) => return Ok(self.resource.text_of(&entry.value, entry.revision)),
                Err(CommitError::Conflict) => {}
                Err(CommitError::Failed(error)) => return Err(error),
            }
        }
        Err(ApiError::stale(&subject))
    }

    /// An update that removes the last finalizer of an object that waits for it is its deletion.
    async fn store_change(&self, key: &str, entry: &Entry, new: Object) -> Result<Arc<Entry>, CommitError> {
        let kept = if self.resource.may_go(&new) { Kept::Deleted } else { Kept::Put };
        self.api.commit(&self.resource, key, Expect::Revision(entry.revision), kept, new).await
    }

    /// New objects need a namespace that exists and stays, and a definition that stays.
    fn check_creatable(&self, object: &Object) -> Result<(), ApiError> {
        let resource = &self.resource;
        let served = self.api.registry.load().find(&resource.group, &resource.version, &resource.plural);
        if served.is_none_or(|now| now.custom().is_some_and(|custom| custom.terminating)) {
            let mut error = ApiError::method_not_allowed();
            error.message = "create not allowed while custom resource definition is terminating".to_owned();
            return Err(error);
        }
        if !self.resource.namespaced {
            return Ok(());
        }
        let namespace = &self.target.namespace;
        let about =
            crate::status::Subject { kind: "namespaces".to_owned(), name: namespace.clone(), ..Default::default() };
        let entry = self.api.store.get("namespaces", namespace).ok_or_else(|| ApiError::not_found(&about))?;
        let found: Object = serde_json::from_slice(&entry.value).map_err(|e| ApiError::internal(e.to_string()))?;
        if object::is_being_deleted(&found) {
            let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
            let mut error = ApiError::forbidden(&self.resource.subject(object::name(object)), &why);
            let cause = format!("namespace {namespace} is being terminated");
            error.with_causes(vec![
                json!({ "reason": "NamespaceTerminating", "message": cause, "field": "metadata.namespace" }),
            ]);
            return Err(error);
        }
        Ok(())
    }

    /// None, or the one that stands for none, asks for no condition; custom resources are not changed without one.
    fn check_version(&self, new: &Object, live: &Object) -> Result<(), ApiError> {
        match object::resource_version(new) {
            "" | ANY_VERSION if self.resource.custom().is_some() => {
                let path = "metadata.resourceVersion".into();
                let error = FieldError::invalid(&path, &json!(0), "must be specified for an update");
                Err(ApiError::invalid(&self.resource.subject(&self.target.name), &[error]))
            }
            "" | ANY_VERSION => Ok(()),
            version if version == object::resource_version(live) => Ok(()),
            _ => Err(ApiError::stale(&self.resource.subject(&self.target.name))),
        }
    }

    /// Whole objects are meant for the one that was read, not for another of its name.
    pub(crate) fn check_uid(&self, new: &Object, live: &Object) -> Result<(), ApiError> {
        let (uid, found) = (object::uid(new), object::uid(live));
        if uid.is_empty() || uid == found {
            return Ok(());
        }
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {found}");
        Err(ApiError::conflict(&self.resource.subject(&self.target.name), &why))
    }

    /// Keeps what this endpoint may not change.
    fn settle(&self, live: &Object, new: &mut Object) {
        let resource = &*self.resource;
        match self.target.subresource.as_str() {
            "status" => {
                let status = new.get("status").cloned();
                let managed = new["metadata"].get("managedFields").cloned();
                *new = live.clone();
                if let Some(map) = new.as_object_mut() {
                    match status {
                        Some(status) => map.insert("status".to_owned(), status),
                        None => map.remove("status"),
                    };
                }
                set_or_remove(new, "managedFields", managed);
            }
            "finalize" => {
                let finalizers = new.pointer("/spec/finalizers").cloned().unwrap_or_else(|| json!([]));
                *new = live.clone();
                new["spec"]["finalizers"] = finalizers;
            }
            _ => {
                metadata::carry_over(new, live);
                if let Origin::Builtin(builtin) = &resource.origin {
                    builtin.prepare_update(new, live);
                }
                if resource.status {
                    object::keep_field(new, live, "status");
                }
                if resource.is("", "Namespace") {
                    object::keep_field(new, live, "spec");
                }
                if resource.is(definitions::GROUP, definitions::KIND) && new["status"].is_object() {
                    new["status"]["storedVersions"] = json!(definitions::stored_versions(new));
                }
                resource.default(new);
            }
        }
        if !self.target.subresource.is_empty() {
            match &resource.origin {
                Origin::Custom(_) => resource.default(new),
                Origin::Builtin(builtin) => shape::omit_empty(builtin.schema(), new),
            }
        }
        object::keep_metadata(new, live, "resourceVersion");
    }

    fn count_generation(&self, live: &Object, new: &mut Object) {
        if !self.resource.has_generation() {
            return;
        }
        let ignored = |field: &str| field == "metadata" || (field == "status" && self.resource.status);
        let differs = |a: &Object, b: &Object| {
            a.as_object().into_iter().flatten().any(|(field, value)| !ignored(field) && b.get(field) != Some(value))
        };
        if differs(live, new) || differs(new, live) {
            let next = object::generation(live) + 1;
            object::metadata_mut(new).insert("generation".to_owned(), json!(next));
        }
    }

    fn track(&self, live: Option<&Object>, new: &mut Object, options: &WriteOptions) {
        let (api_version, time) = (self.resource.api_version(), now());
        let manager = self.manager(&api_version, &time, options);
        underpass_merge::track_update(self.resource.schema(), live, new, &manager, self.resets());
    }

    pub(crate) fn manager<'m>(&'m self, api_version: &'m str, time: &'m str, options: &'m WriteOptions) -> Manager<'m> {
        let sub = self.target.subresource.as_str();
        let name = if options.field_manager.is_empty() { "unknown" } else { &options.field_manager };
        Manager { name, api_version, subresource: (!sub.is_empty()).then_some(sub), time }
    }

    /// The fields that this endpoint sets back, so that nobody owns them by trying.
    pub(crate) fn resets(&self) -> &'static [&'static str] {
        match self.target.subresource.as_str() {
            "status" => &["metadata", "spec"],
            // Its finalizers have an endpoint of their own.
            _ if self.resource.is("", "Namespace") => &["spec", "status"],
            _ if self.resource.status => &["status"],
            _ => &[],
        }
    }
}

impl Resource {
    pub(crate) fn default(&self, object: &mut Object) {
        match &self.origin {
            Origin::Builtin(builtin) => builtin.default(object),
            Origin::Custom(custom) => {
                custom.schema.default_into(object);
                shape::omit_empty(object_metadata(), &mut object["metadata"]);
            }
        }
    }

    pub(crate) fn has_generation(&self) -> bool {
        match &self.origin {
            Origin::Builtin(builtin) => builtin.generation,
            Origin::Custom(_) => true,
        }
    }

    /// Kinds that hold plain data under `status`: nobody else fills it in here, so the creator may.
    fn keeps_status_on_create(&self) -> bool {
        self.is("", "Node") || self.is("", "Namespace")
    }

    /// Being deleted, and nothing holds it any more.
    pub(crate) fn may_go(&self, object: &Object) -> bool {
        object::is_being_deleted(object)
            && object::finalizers(object).is_empty()
            && (!self.is("", "Namespace") || object::strings(object, "/spec/finalizers").is_empty())
    }

    pub(crate) fn validate(&self, object: &Object, live: Option<&Object>) -> Result<(), ApiError> {
        let mut errors = metadata::validate(self, object, live);
        match &self.origin {
            Origin::Builtin(builtin) => {
                let found = builtin.validator().validate(object);
                let mut extra = builtin.validate(object, live);
                if self.is(definitions::GROUP, definitions::KIND) {
                    extra.extend(definitions::validate(object));
                }
                errors.extend(found.into_iter().filter(|e| extra.iter().all(|x| x.path != e.path)));
                errors.extend(extra);
            }
            Origin::Custom(custom) => errors.extend(match live {
                Some(live) => custom.validator().validate_update(object, live),
                None => custom.validator().validate(object),
            }),
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(ApiError::invalid(&self.kind_subject(object::name(object)), &errors))
        }
    }
}

fn set_or_remove(object: &mut Object, field: &str, value: Option<Value>) {
    let metadata = object::metadata_mut(object);
    match value {
        Some(value) => metadata.insert(field.to_owned(), value),
        None => metadata.remove(field),
    };
}

pub(crate) fn to_bytes(object: &Object) -> Bytes {
    serde_json::to_vec(object).expect("a JSON value can be written").into()
}
