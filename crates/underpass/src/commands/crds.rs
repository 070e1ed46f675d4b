//! `underpass crds`: the definitions of our kinds, for a cluster.

use serde_json::json;

use crate::args::YamlOrJson;
use crate::exit::Ended;
use crate::output;

pub(crate) fn run(format: YamlOrJson) -> anyhow::Result<Ended> {
    let crds = underpass_resources::crds();
    let text = match format {
        YamlOrJson::Json => output::json(&json!({ "apiVersion": "v1", "kind": "List", "items": crds }))?,
        YamlOrJson::Yaml => output::yaml_documents(&crds)?,
    };
    output::print(&text)?;
    Ok(Ended::Well)
}
