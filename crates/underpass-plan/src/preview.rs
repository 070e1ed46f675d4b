//! The plan for an object that no server has seen yet: what `underpass plan -f` shows.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::container_network::{self, Engine};
use crate::plan::Plan;
use crate::unbuilt;

#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    #[error("the object has another shape than its kind")]
    Shape(#[source] serde_json::Error),
}

/// Plans for `object`, which is validated and carries its defaults, as if it had just been created: an engine that can be driven, and
/// nothing made yet.
pub fn preview(object: &Value, now: Timestamp) -> Result<Plan, PreviewError> {
    let mut object = object.clone();
    object["metadata"]["generation"] = 1.into();
    if object["kind"] == "ContainerNetwork" {
        let object = serde_json::from_value(object).map_err(PreviewError::Shape)?;
        let engine = Engine::Available { network: None };
        return Ok(container_network::plan(&container_network::Observed { object, engine, failure: None, now }));
    }
    let object = serde_json::from_value(object).map_err(PreviewError::Shape)?;
    Ok(unbuilt::plan(&unbuilt::Observed { object, now }))
}
