//! `/scale`: how many replicas, in the same shape for every kind that has them.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::decode::{self, Decoded};
use crate::object::{self, Object};
use crate::patch::PatchType;
use crate::registry::Resource;
use crate::request::WriteOptions;
use crate::status::ApiError;
use crate::write::{Call, Proposal, to_bytes};

impl Resource {
    /// The `autoscaling/v1` Scale of an object.
    pub(crate) fn scale_of(&self, object: &Object) -> Option<Value> {
        let scale = self.scale.as_ref()?;
        let replicas = |path: &crate::jsonpath::JsonPath| path.first(object).and_then(Value::as_i64).unwrap_or(0);
        let mut status = json!({ "replicas": replicas(&scale.status_replicas) });
        let selector = match &scale.selector {
            Some(path) => path.first(object).and_then(Value::as_str).map(str::to_owned),
            None => object.pointer("/spec/selector/matchLabels").and_then(Value::as_object).map(|labels| {
                labels
                    .iter()
                    .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()))
                    .collect::<Vec<_>>()
                    .join(",")
            }),
        };
        if let Some(selector) = selector {
            status["selector"] = json!(selector);
        }
        let metadata: serde_json::Map<_, _> = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"]
            .into_iter()
            .filter_map(|field| Some((field.to_owned(), object["metadata"].get(field)?.clone())))
            .collect();
        Some(json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
            "spec": { "replicas": replicas(&scale.spec_replicas) }, "status": status,
        }))
    }
}

impl Call<'_> {
    pub(crate) fn get_scale(&self) -> Result<Bytes, ApiError> {
        let entry = self.get()?;
        self.scale_text(&self.resource.object_of(&entry.value, entry.revision))
    }

    /// PUT or PATCH of the Scale: only `spec.replicas` reaches the object.
    pub(crate) async fn change_scale(
        &self,
        patch: Option<PatchType>,
        content_type: &str,
        body: &Bytes,
        options: &WriteOptions,
    ) -> Result<Bytes, ApiError> {
        let Decoded { value, .. } = match patch {
            None => decode::object(content_type, body)?,
            Some(PatchType::Apply) => decode::yaml(body)?,
            Some(_) => decode::json(body)?,
        };
        let text = self
            .change(options, |live| {
                let current = self.resource.scale_of(live).ok_or_else(ApiError::no_such_path)?;
                let wanted = patched(patch, current, &value)?;
                self.with_replicas(live, &wanted).map(Proposal::Update)
            })
            .await?;
        let object: Object = serde_json::from_slice(&text).map_err(|e| ApiError::internal(e.to_string()))?;
        self.scale_text(&object)
    }

    fn scale_text(&self, object: &Object) -> Result<Bytes, ApiError> {
        self.resource.scale_of(object).map(|scale| to_bytes(&scale)).ok_or_else(ApiError::no_such_path)
    }

    fn with_replicas(&self, live: &Object, wanted: &Value) -> Result<Object, ApiError> {
        let replicas = match wanted.pointer("/spec/replicas") {
            None | Some(Value::Null) => 0,
            Some(given) => given.as_i64().ok_or_else(|| {
                ApiError::bad_request(format!("spec.replicas: Invalid value: {given}: must be a whole number"))
            })?,
        };
        let name = object::name(wanted);
        if !name.is_empty() && name != self.target.name {
            let why =
                format!("the name of the object ({name}) does not match the name on the URL ({})", self.target.name);
            return Err(ApiError::bad_request(why));
        }
        if replicas < 0 {
            return Err(ApiError::bad_request(format!(
                "spec.replicas: Invalid value: {replicas}: should be a non-negative integer"
            )));
        }
        let mut object = live.clone();
        for (field, given) in [("resourceVersion", object::resource_version(wanted)), ("uid", object::uid(wanted))] {
            if !given.is_empty() {
                object::metadata_mut(&mut object).insert(field.to_owned(), json!(given));
            }
        }
        let scale = self.resource.scale.as_ref().ok_or_else(ApiError::no_such_path)?;
        if scale.spec_replicas.set(&mut object, json!(replicas)) {
            Ok(object)
        } else {
            Err(ApiError::internal(format!("{} is no path that can be set", scale.spec_replicas.as_str())))
        }
    }
}

fn patched(type_: Option<PatchType>, scale: Value, change: &Value) -> Result<Value, ApiError> {
    match type_ {
        None => Ok(change.clone()),
        Some(PatchType::Json) => {
            underpass_merge::json_patch(scale, change).map_err(|e| ApiError::bad_request(e.to_string()))
        }
        Some(_) => Ok(underpass_merge::merge_patch(scale, change)),
    }
}
