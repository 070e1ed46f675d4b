//! DELETE: of one object and of a collection.

use bytes::Bytes;
use serde_json::{Value, json};
use underpass_schema::{FieldError, Path};
use underpass_store::Expect;

use crate::api::{CommitError, Kept, now};
use crate::decode;
use crate::definitions;
use crate::object::{self, Object};
use crate::registry::Resource;
use crate::request::{ListOptions, Query, dry_run, unsupported};
use crate::status::ApiError;
use crate::write::{Call, to_bytes};

/// The finalizers by which a deleted owner waits for its dependents.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
pub(crate) const ORPHAN: &str = "orphan";

/// As many tries as other writers may come between.
const ATTEMPTS: usize = 50;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) dry_run: bool,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

impl DeleteOptions {
    /// From the body (a DeleteOptions object) and the query, which may hold the same fields.
    pub(crate) fn parse(body: &Bytes, query: &Query, content_type: &str) -> Result<Self, ApiError> {
        let body = match body.is_empty() {
            true => json!({}),
            false => decode::object(content_type, body)?.value,
        };
        check_body(&body)?;
        if query.get("gracePeriodSeconds").parse::<i64>().is_err() && !query.get("gracePeriodSeconds").is_empty() {
            return Err(ApiError::bad_request("gracePeriodSeconds must be a number"));
        }
        let mut errors = Vec::new();
        let listed = body["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let dry_run = dry_run(query.all("dryRun").chain(listed), &mut errors);
        let propagation = propagation(&body, query, &mut errors);
        if !errors.is_empty() {
            return Err(ApiError::invalid_options("DeleteOptions", &errors));
        }
        let precondition = |field: &str| body["preconditions"][field].as_str().map(str::to_owned);
        Ok(Self { dry_run, propagation, uid: precondition("uid"), resource_version: precondition("resourceVersion") })
    }
}

/// Something unreadable must not pass as something left out: it may have been meant to hold the deletion back.
fn check_body(body: &Value) -> Result<(), ApiError> {
    if body.is_null() {
        return Ok(());
    }
    let fields = body.as_object().ok_or_else(|| ApiError::bad_request("the body must be a DeleteOptions object"))?;
    match fields.iter().find(|(name, value)| !value.is_null() && !is_readable(name, value)) {
        Some((name, value)) => Err(ApiError::bad_request(format!("the body is no DeleteOptions: {name} is {value}"))),
        None => Ok(()),
    }
}

fn is_readable(field: &str, value: &Value) -> bool {
    match field {
        "kind" => value == "" || value == "DeleteOptions",
        "dryRun" => value.as_array().is_some_and(|list| list.iter().all(Value::is_string)),
        "gracePeriodSeconds" => value.is_i64(),
        "orphanDependents" => value.is_boolean(),
        "propagationPolicy" => value.is_string(),
        "preconditions" => {
            value.as_object().is_some_and(|fields| fields.values().all(|v| v.is_string() || v.is_null()))
        }
        _ => true,
    }
}

fn propagation(body: &Value, query: &Query, errors: &mut Vec<FieldError>) -> Option<Propagation> {
    let policy = match query.get("propagationPolicy") {
        "" => body["propagationPolicy"].as_str().unwrap_or_default(),
        policy => policy,
    };
    let orphan = match query.has("orphanDependents") {
        true => Some(query.flag("orphanDependents")),
        false => body["orphanDependents"].as_bool(),
    };
    match (policy, orphan) {
        ("", None) => None,
        ("", Some(true)) | ("Orphan", None) => Some(Propagation::Orphan),
        ("", Some(false)) | ("Background", None) => Some(Propagation::Background),
        ("Foreground", None) => Some(Propagation::Foreground),
        (policy, Some(_)) => {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid(&Path::from("propagationPolicy"), &json!(policy), why));
            None
        }
        (other, None) => {
            let supported = ["Foreground", "Background", "Orphan", "nil"];
            errors.push(unsupported("propagationPolicy", &json!(other), &supported));
            None
        }
    }
}

impl Call<'_> {
    /// The answer's body: the object where it stays for its finalizers, a Status where it is gone.
    pub(crate) async fn delete(&self, options: &DeleteOptions) -> Result<Bytes, ApiError> {
        let resource = &*self.resource;
        let subject = resource.subject(&self.target.name);
        let key = self.key(&self.target.name);
        for _ in 0..ATTEMPTS {
            let entry = self.api.store.get(&resource.bucket, &key).ok_or_else(|| ApiError::not_found(&subject))?;
            let live = resource.object_of(&entry.value, entry.revision);
            self.check_delete(&live, options)?;
            let marked = self.marked(&live, options);
            let gone = resource.may_go(&marked);
            if options.dry_run || (!gone && marked == live) {
                return Ok(if gone { self.success(&live) } else { to_bytes(&marked) });
            }
            let kept = if gone { Kept::Deleted } else { Kept::Put };
            let last = if gone { live.clone() } else { marked };
            match self.api.commit(resource, &key, Expect::Revision(entry.revision), kept, last).await {
                Ok(_) if gone => return Ok(self.success(&live)),
                Ok(entry) => return Ok(resource.text_of(&entry.value, entry.revision)),
                Err(CommitError::Conflict) => {}
                Err(CommitError::Failed(error)) => return Err(error),
            }
        }
        Err(ApiError::stale(&subject))
    }

    fn check_delete(&self, live: &Object, options: &DeleteOptions) -> Result<(), ApiError> {
        let subject = self.resource.subject(&self.target.name);
        let checks = [
            ("UID", &options.uid, object::uid(live), "deleted and then recreated"),
            ("ResourceVersion", &options.resource_version, object::resource_version(live), "modified"),
        ];
        for (what, wanted, found, guess) in checks {
            if let Some(wanted) = wanted.as_ref().filter(|w| w.as_str() != found) {
                let why = format!(
                    "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). \
                     The object might have been {guess}"
                );
                return Err(ApiError::conflict(&self.resource.kind_subject(&self.target.name), &why));
            }
        }
        if self.resource.is("", "Namespace")
            && matches!(self.target.name.as_str(), "default" | "kube-system" | "kube-public")
        {
            return Err(ApiError::forbidden(&subject, "this namespace may not be deleted"));
        }
        Ok(())
    }

    /// The live object as it is while it waits for its finalizers.
    fn marked(&self, live: &Object, options: &DeleteOptions) -> Object {
        let mut marked = live.clone();
        let mut finalizers: Vec<String> = object::finalizers(live).into_iter().map(str::to_owned).collect();
        match options.propagation {
            Some(Propagation::Foreground) => wait_for(&mut finalizers, FOREGROUND, ORPHAN),
            Some(Propagation::Orphan) => wait_for(&mut finalizers, ORPHAN, FOREGROUND),
            Some(Propagation::Background) => finalizers.retain(|f| f != FOREGROUND && f != ORPHAN),
            None => {}
        }
        let metadata = object::metadata_mut(&mut marked);
        if finalizers.is_empty() {
            metadata.remove("finalizers");
        } else {
            metadata.insert("finalizers".to_owned(), json!(finalizers));
        }
        if !metadata.contains_key("deletionTimestamp") {
            metadata.insert("deletionTimestamp".to_owned(), json!(now()));
            if !self.resource.ends_by_steps() {
                metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(0));
                if let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
                    metadata.insert("generation".to_owned(), json!(generation + 1));
                }
            }
        }
        if self.resource.is("", "Namespace") {
            marked["status"]["phase"] = json!("Terminating");
        }
        marked
    }

    fn success(&self, object: &Object) -> Bytes {
        let mut details = self.resource.subject(object::name(object)).details();
        details["uid"] = json!(object::uid(object));
        to_bytes(
            &json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details }),
        )
    }

    /// Deletes every object that the selectors match; the answer is their list.
    pub(crate) async fn delete_collection(
        &self,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Bytes, ApiError> {
        let page = self.page(list)?;
        for entry in &page.entries {
            let object = self.resource.object_of(&entry.value, entry.revision);
            let target = crate::request::Target {
                name: object::name(&object).to_owned(),
                namespace: object::namespace(&object).to_owned(),
                ..self.target.clone()
            };
            let one = Call { api: self.api, resource: self.resource.clone(), target: &target };
            match one.delete(options).await {
                Err(error) if error.code != http::StatusCode::NOT_FOUND => return Err(error),
                _ => {}
            }
        }
        Ok(self.list_text(&page).into_iter().flatten().collect())
    }
}

impl Resource {
    /// Kinds whose end Kubernetes only notes: neither a grace period nor a new generation comes with it.
    fn ends_by_steps(&self) -> bool {
        self.is("", "Namespace") || self.is(definitions::GROUP, definitions::KIND)
    }
}

fn wait_for(finalizers: &mut Vec<String>, wanted: &str, instead_of: &str) {
    finalizers.retain(|f| f != instead_of);
    if !finalizers.iter().any(|f| f == wanted) {
        finalizers.push(wanted.to_owned());
    }
}
