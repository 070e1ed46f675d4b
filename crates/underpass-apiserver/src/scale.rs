//! `/scale`: how many replicas, in the same shape for every kind that has them.

use bytes::Bytes;
use serde_json::{Value, json};
use underpass_schema::{FieldError, Path};

use crate::decode::{self, Decoded};
use crate::object::{self, Object};
use crate::patch::{PatchType, json_patch_error};
use crate::registry::Resource;
use crate::request::WriteOptions;
use crate::status::{ApiError, Subject};
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
                let mut wanted = patched(patch, current, &value)?;
                let refused = |why: String| match patch {
                    None | Some(PatchType::Apply) => ApiError::bad_request(why),
                    Some(_) => self.refused_patch(&value, why),
                };
                let replicas = Self::wanted_replicas(&wanted).map_err(refused)?;
                self.check_place(&mut wanted)?;
                self.check_uid(&wanted, live)?;
                self.with_replicas(live, &wanted, replicas).map(Proposal::Update)
            })
            .await?;
        let object: Object = serde_json::from_slice(&text).map_err(|e| ApiError::internal(e.to_string()))?;
        self.scale_text(&object)
    }

    fn scale_text(&self, object: &Object) -> Result<Bytes, ApiError> {
        self.resource.scale_of(object).map(|scale| to_bytes(&scale)).ok_or_else(ApiError::no_such_path)
    }

    /// How many replicas a Scale asks for, if it can be read as one.
    fn wanted_replicas(wanted: &Value) -> Result<i64, String> {
        if !wanted.is_object() || wanted.get("metadata").is_some_and(|m| !m.is_object() && !m.is_null()) {
            return Err("a Scale must be an object, and its metadata too".to_owned());
        }
        for (field, expected) in [("apiVersion", "autoscaling/v1"), ("kind", "Scale")] {
            if wanted.get(field).is_some_and(|given| !given.is_null() && given != "" && given != expected) {
                return Err(format!("{field} is {}, not {expected:?}", wanted[field]));
            }
        }
        match wanted.pointer("/spec/replicas") {
            None | Some(Value::Null) => Ok(0),
            Some(given) => match given.as_i64().filter(|number| i32::try_from(*number).is_ok()) {
                Some(number) => Ok(number),
                None => Err(format!("spec.replicas: Invalid value: {given}: must be a whole number of 32 bits")),
            },
        }
    }

    fn with_replicas(&self, live: &Object, wanted: &Value, replicas: i64) -> Result<Object, ApiError> {
        if replicas < 0 {
            let path = Path::from("spec.replicas");
            let error = FieldError::invalid(&path, &json!(replicas), "must be greater than or equal to 0");
            let scale =
                Subject { group: "autoscaling".to_owned(), kind: "Scale".to_owned(), name: self.target.name.clone() };
            return Err(ApiError::invalid(&scale, &[error]));
        }
        let mut object = live.clone();
        let version = object::resource_version(wanted);
        if !version.is_empty() {
            object::metadata_mut(&mut object).insert("resourceVersion".to_owned(), json!(version));
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
        Some(PatchType::Json) => underpass_merge::json_patch(scale, change).map_err(|e| json_patch_error(&e)),
        Some(_) => Ok(underpass_merge::merge_patch(scale, change)),
    }
}
