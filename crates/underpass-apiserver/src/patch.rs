//! PATCH: the four kinds of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use underpass_merge::{ApplyError, JsonPatchError};
use underpass_schema::{FieldError, Path};

use crate::api::now;
use crate::decode::{self, Decoded};
use crate::metadata;
use crate::object::{self, Object};
use crate::request::{FieldValidation, WriteOptions};
use crate::status::ApiError;
use crate::write::{Call, Proposal, Written};

/// How often an apply turns between creating and changing while others delete and create.
const ATTEMPTS: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchType {
    /// Custom resources have no fields whose lists could be merged by key.
    pub(crate) fn of(content_type: &str, custom: bool) -> Result<Self, ApiError> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if !custom => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ => Err(ApiError::unsupported_media_type(format!(
                "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, \
                 application/merge-patch+json, {}application/apply-patch+yaml",
                if custom { "" } else { "application/strategic-merge-patch+json, " }
            ))),
        }
    }
}

impl Call<'_> {
    pub(crate) async fn patch(
        &self,
        type_: PatchType,
        body: &Bytes,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        if type_ == PatchType::Apply {
            return self.apply(body, options).await;
        }
        let (patch, oddities) = read_patch(type_, body)?;
        let mut warnings = Vec::new();
        let text = self
            .change(options, |live| {
                let mut object = self.patched(type_, live, &patch)?;
                let refused = |why: String| self.refused_patch(&patch, why);
                self.check_kind_is_left(&object).map_err(refused)?;
                self.check_kind(&mut object).map_err(refused)?;
                let mode = options.field_validation;
                warnings = self.resource.read_fields(&mut object, oddities.clone(), mode).map_err(refused)?;
                self.check_place(&mut object)?;
                warnings.extend(metadata::drop_repeated_owners(&mut object));
                warnings.extend(metadata::advice(&self.resource, &object, Some(live)));
                Ok(Proposal::Update(object))
            })
            .await?;
        Ok(Written { text, created: false, warnings })
    }

    fn patched(&self, type_: PatchType, live: &Object, patch: &Value) -> Result<Object, ApiError> {
        let live = live.clone();
        match type_ {
            PatchType::Merge => Ok(underpass_merge::merge_patch(live, patch)),
            PatchType::Json => underpass_merge::json_patch(live, patch).map_err(|e| json_patch_error(&e)),
            PatchType::Strategic | PatchType::Apply => {
                let (api_version, kind) = (live["apiVersion"].clone(), live["kind"].clone());
                let mut object = underpass_merge::strategic_merge_patch(self.resource.schema(), live, patch)
                    .map_err(|e| ApiError::bad_request(format!("the patch cannot be applied: {e}")))?;
                // What the patch says it is a patch of does not count, as for Kubernetes.
                for (field, kept) in [("apiVersion", api_version), ("kind", kind)] {
                    if object[field].is_string() {
                        object[field] = kept;
                    }
                }
                Ok(object)
            }
        }
    }

    /// Of a kind of its own Kubernetes knows the kind by the path; a custom resource has to say it, and a patch may have taken it away.
    fn check_kind_is_left(&self, object: &Object) -> Result<(), String> {
        let gone = object.get("kind").is_none_or(|kind| kind.is_null() || kind == "");
        if gone && object.is_object() && self.resource.custom().is_some() {
            return Err(format!("Object 'Kind' is missing in '{object}'"));
        }
        Ok(())
    }

    /// What cannot be read of a patched object is a fault of the patch: Kubernetes answers 422 here, not 400.
    pub(crate) fn refused_patch(&self, patch: &Value, why: String) -> ApiError {
        let fault = FieldError::invalid(&Path::from("patch"), &json!(patch.to_string()), why);
        ApiError::invalid(&self.resource.subject(&self.target.name), &[fault])
    }

    async fn apply(&self, body: &Bytes, options: &WriteOptions) -> Result<Written, ApiError> {
        let Decoded { value: mut applied, duplicates } = decode::yaml(body)?;
        if !duplicates.is_empty() && options.field_validation == FieldValidation::Strict {
            return Err(ApiError::bad_request(format!("error strict decoding YAML: {}", duplicates.join(", "))));
        }
        let warnings = if options.field_validation == FieldValidation::Ignore { Vec::new() } else { duplicates };
        self.check_applied_kind(&applied)?;
        self.check_kind(&mut applied).map_err(ApiError::bad_request)?;
        // What exists has a name already; only a new object needs one here.
        if !object::name(&applied).is_empty() {
            self.check_name(&applied)?;
        }
        self.check_namespace(&mut applied)?;
        if applied["metadata"].get("managedFields").is_some_and(|m| m.as_array().is_some_and(|list| !list.is_empty())) {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        self.check_declared(&mut applied)?;
        for _ in 0..ATTEMPTS {
            let change = |live: &Object| self.applied(Some(live), &applied, options).map(Proposal::Applied);
            match self.change(options, change).await {
                Err(gone) if gone.reason == "NotFound" => {}
                result => return result.map(|text| Written { text, created: false, warnings }),
            }
            match self.apply_new(&applied, options).await {
                Err(came) if came.reason == "AlreadyExists" => {}
                result => return result.map(|text| Written { text, created: true, warnings }),
            }
        }
        Err(ApiError::stale(&self.resource.subject(&self.target.name)))
    }

    async fn apply_new(&self, applied: &Object, options: &WriteOptions) -> Result<Bytes, ApiError> {
        let subject = self.resource.subject(&self.target.name);
        if !self.target.subresource.is_empty() {
            return Err(ApiError::not_found(&subject));
        }
        self.check_name(applied)?;
        if !object::uid(applied).is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {}, and no existing object was found",
                object::uid(applied)
            );
            return Err(ApiError::conflict(&subject, &why));
        }
        let object = self.applied(None, applied, options)?;
        self.insert(object, options, false).await
    }

    fn applied(&self, live: Option<&Object>, applied: &Object, options: &WriteOptions) -> Result<Object, ApiError> {
        let (api_version, time) = (self.resource.api_version(), now());
        let manager = self.manager(&api_version, &time, options);
        let result =
            underpass_merge::apply(self.resource.schema(), live, applied, &manager, options.force, self.resets());
        let mut object = result.map_err(|e| self.apply_error(e))?;
        if let Some(live) = live {
            for (field, given) in
                [("resourceVersion", object::resource_version(applied)), ("uid", object::uid(applied))]
            {
                if given.is_empty() {
                    object::keep_metadata(&mut object, live, field);
                } else {
                    object::metadata_mut(&mut object).insert(field.to_owned(), json!(given));
                }
            }
        }
        Ok(object)
    }

    /// Whose fields these are cannot be guessed: unlike other bodies, this one must say its kind.
    fn check_applied_kind(&self, applied: &Object) -> Result<(), ApiError> {
        let (api_version, kind) = (object::text(applied, "/apiVersion"), object::text(applied, "/kind"));
        if (api_version, kind) == (&self.resource.api_version(), &self.resource.kind) {
            return Ok(());
        }
        let group_version = if api_version.contains('/') { api_version.to_owned() } else { format!("/{api_version}") };
        Err(ApiError::bad_request(format!("invalid object type: {group_version}, Kind={kind}")))
    }

    fn apply_error(&self, error: ApplyError) -> ApiError {
        let conflicts = match error {
            ApplyError::Conflicts(conflicts) => conflicts,
            ApplyError::Invalid(invalid) => return ApiError::bad_request(invalid.to_string()),
            other => {
                let why = format!("failed to create typed patch object ({}): {other}", self.described());
                return ApiError::bad_request(why);
            }
        };
        let mut by_manager: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for conflict in &conflicts {
            by_manager.entry(&conflict.manager).or_default().push(&conflict.field);
        }
        let listed: Vec<String> = by_manager
            .iter()
            .map(|(manager, fields)| match fields.as_slice() {
                [one] => format!("conflict with {manager}: {one}"),
                many => format!("conflicts with {manager}:\n- {}", many.join("\n- ")),
            })
            .collect();
        let noun = if conflicts.len() == 1 { "conflict" } else { "conflicts" };
        let message = format!("Apply failed with {} {noun}: {}", conflicts.len(), listed.join("\n"));
        let mut error = ApiError::new(StatusCode::CONFLICT, "Conflict", message);
        let causes = conflicts.iter().map(|c| {
            json!({ "reason": "FieldManagerConflict", "message": format!("conflict with {}", c.manager), "field": c.field })
        });
        error.with_causes(causes.collect());
        error
    }

    /// An apply may only hold declared fields: ownership of others could not be told.
    fn check_declared(&self, applied: &mut Object) -> Result<(), ApiError> {
        let cleaned = self.resource.clean(applied, Vec::new(), FieldValidation::Warn);
        let unknown = cleaned.map_err(ApiError::bad_request)?;
        if unknown.is_empty() {
            return Ok(());
        }
        let named = unknown.iter().map(|u| u.trim_start_matches("unknown field ").trim_matches('"'));
        let listed: Vec<String> = named.map(|field| format!(".{field}: field not declared in schema")).collect();
        Err(ApiError::bad_request(format!(
            "failed to create typed patch object ({}): {}",
            self.described(),
            listed.join("\n")
        )))
    }

    fn described(&self) -> String {
        let name = object::key(&self.target.namespace, &self.target.name);
        format!("{name}; {}, Kind={}", self.resource.api_version(), self.resource.kind)
    }
}

/// The patch, and what is odd about it, as strict decoding words it.
fn read_patch(type_: PatchType, body: &Bytes) -> Result<(Value, Vec<String>), ApiError> {
    let Decoded { value: patch, duplicates } = decode::json(body)?;
    match type_ {
        PatchType::Merge if !patch.is_object() => Err(ApiError::bad_request("a merge patch is an object")),
        PatchType::Json => {
            let unknown = underpass_merge::unknown_members(&patch);
            let unknown = unknown.into_iter().map(|member| format!("unknown field {member:?}"));
            let oddities = duplicates.into_iter().chain(unknown).map(|oddity| format!("json patch {oddity}"));
            Ok((patch, oddities.collect()))
        }
        _ => Ok((patch, duplicates)),
    }
}

pub(crate) fn json_patch_error(error: &JsonPatchError) -> ApiError {
    let (code, reason) = match error {
        JsonPatchError::NotAList | JsonPatchError::NotAnOperation { .. } => (StatusCode::BAD_REQUEST, "BadRequest"),
        JsonPatchError::TooManyOperations(_) => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
        _ => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
    };
    ApiError::new(code, reason, format!("the patch cannot be applied: {error}"))
}
