//! PATCH: the four kinds of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};
use underpass_merge::ApplyError;
use underpass_schema::{FieldError, Path};

use crate::api::now;
use crate::decode::{self, Decoded};
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
    pub(crate) fn of(content_type: &str) -> Result<Self, ApiError> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            other => Err(ApiError::unsupported_media_type(format!(
                "the body of the request was in an unknown format ({other:?}) - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml"
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
        if options.force {
            return Err(ApiError::bad_request("force: Forbidden: may not be specified for non-apply patch"));
        }
        if type_ == PatchType::Strategic && self.resource.custom().is_some() {
            let why = "the body of the request was in an unknown format - accepted media types include: \
                       application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
            return Err(ApiError::unsupported_media_type(why));
        }
        let Decoded { value: patch, duplicates } = decode::json(body)?;
        let mut warnings = Vec::new();
        let text = self
            .change(options, |live| {
                let mut object = self.patched(type_, live, &patch)?;
                self.check_identity(&mut object)?;
                let cleaned = self.resource.clean(&mut object, duplicates.clone(), options.field_validation);
                warnings = cleaned.map_err(|error| self.refused_patch(&patch, &error))?;
                Ok(Proposal::Update(object))
            })
            .await?;
        Ok(Written { text, created: false, warnings })
    }

    fn patched(&self, type_: PatchType, live: &Object, patch: &Value) -> Result<Object, ApiError> {
        let live = live.clone();
        match type_ {
            PatchType::Merge => Ok(underpass_merge::merge_patch(live, patch)),
            PatchType::Json => underpass_merge::json_patch(live, patch).map_err(|e| self.patch_error(type_, &e)),
            PatchType::Strategic | PatchType::Apply => {
                underpass_merge::strategic_merge_patch(self.resource.schema(), live, patch)
                    .map_err(|e| self.patch_error(type_, &e))
            }
        }
    }

    fn patch_error(&self, type_: PatchType, error: &dyn std::error::Error) -> ApiError {
        let code = match type_ {
            // As Kubernetes answers a JSON patch whose test or path fails.
            PatchType::Json => http::StatusCode::UNPROCESSABLE_ENTITY,
            _ => http::StatusCode::BAD_REQUEST,
        };
        let reason = if code == http::StatusCode::BAD_REQUEST { "BadRequest" } else { "Invalid" };
        ApiError::new(
            code,
            reason,
            format!("the patch of {} {:?} cannot be applied: {error}", self.resource.plural, self.target.name),
        )
    }

    /// What strict validation finds in a patched object is a fault of the patch: Kubernetes answers 422 here, not 400.
    fn refused_patch(&self, patch: &Value, error: &ApiError) -> ApiError {
        let fault = FieldError::invalid(&Path::from("patch"), &json!(patch.to_string()), error.message.clone());
        ApiError::invalid(&self.resource.subject(&self.target.name), &[fault])
    }

    async fn apply(&self, body: &Bytes, options: &WriteOptions) -> Result<Written, ApiError> {
        let Decoded { value: mut applied, duplicates } = decode::yaml(body)?;
        if !duplicates.is_empty() && options.field_validation == FieldValidation::Strict {
            return Err(ApiError::bad_request(format!("error strict decoding YAML: {}", duplicates.join(", "))));
        }
        let warnings = if options.field_validation == FieldValidation::Ignore { Vec::new() } else { duplicates };
        if options.field_manager.is_empty() {
            return Err(ApiError::bad_request("fieldManager: Required value: is required for apply patch"));
        }
        self.check_identity(&mut applied)?;
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
        if !object::uid(applied).is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {}, and no existing object was found",
                object::uid(applied)
            );
            return Err(ApiError::conflict(&subject, &why));
        }
        if !object::resource_version(applied).is_empty() {
            return Err(ApiError::not_found(&subject));
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

    fn apply_error(&self, error: ApplyError) -> ApiError {
        let ApplyError::Conflicts(conflicts) = error else {
            return ApiError::bad_request(format!(
                "failed to create typed patch object ({}): {error}",
                self.described()
            ));
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
        let mut error = ApiError::new(http::StatusCode::CONFLICT, "Conflict", message);
        let causes = conflicts.iter().map(|c| {
            json!({ "reason": "FieldManagerConflict", "message": format!("conflict with {}", c.manager), "field": c.field })
        });
        error.with_causes(causes.collect());
        error
    }

    /// An apply may only hold declared fields: ownership of others could not be told.
    fn check_declared(&self, applied: &mut Object) -> Result<(), ApiError> {
        let unknown = self.resource.clean(applied, Vec::new(), FieldValidation::Warn)?;
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
