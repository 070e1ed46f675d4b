//! OpenAPI definitions under Kubernetes' names, made from k8s-openapi's types and our table of facts.

use std::sync::OnceLock;

use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use k8s_openapi::apimachinery::pkg::version::Info;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::choices;
use crate::facts::{self, EXTENSIONS, META};
use crate::{Builtin, all, reviews};

pub(crate) const REF: &str = "#/definitions/";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";

pub(crate) type Define = fn(&mut SchemaGenerator);

/// Every definition, with descriptions, `$ref: #/definitions/...` and the `x-kubernetes-*` extensions. Some megabytes: it is built
/// when OpenAPI is first asked for, not before.
pub fn definitions() -> &'static Map<String, Value> {
    static ALL: OnceLock<Map<String, Value>> = OnceLock::new();
    ALL.get_or_init(|| {
        let kinds = all().iter().map(|builtin| builtin.define);
        let mut definitions =
            of(&kinds.chain(reviews().iter().map(|review| review.define)).chain([meta as Define]).collect::<Vec<_>>());
        for builtin in all() {
            add_list(&mut definitions, builtin);
        }
        mark_kinds(&mut definitions);
        choices::publish(&mut definitions);
        definitions
    })
}

/// The definitions of some types and of all that they are made of.
pub(crate) fn of(define: &[Define]) -> Map<String, Value> {
    // No transforms: a reference keeps its description beside it, as in Kubernetes' documents.
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/definitions".into();
    let mut generator = settings.into_generator();
    define.iter().for_each(|define| define(&mut generator));
    let mut definitions = generator.take_definitions(false);
    for (name, definition) in &mut definitions {
        if let Value::Object(definition) = definition {
            correct(name, definition);
            facts::overlay(name, definition);
        }
    }
    definitions
}

fn meta(generator: &mut SchemaGenerator) {
    generator.subschema_for::<meta::APIGroupList>();
    generator.subschema_for::<meta::APIResourceList>();
    generator.subschema_for::<meta::APIVersions>();
    generator.subschema_for::<meta::DeleteOptions>();
    generator.subschema_for::<meta::ListMeta>();
    generator.subschema_for::<meta::Patch>();
    generator.subschema_for::<meta::Status>();
    generator.subschema_for::<meta::WatchEvent<()>>();
    generator.subschema_for::<Info>();
    generator.subschema_for::<Scale>();
}

/// Scalars and unions that Kubernetes publishes in its own way.
fn correct(name: &str, definition: &mut Map<String, Value>) {
    let typed = match name {
        QUANTITY => json!({"type": "string"}),
        INT_OR_STRING => json!({"type": "string", "format": "int-or-string"}),
        _ => match name.strip_prefix(EXTENSIONS) {
            Some("JSON" | "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray") => {
                json!({})
            }
            _ => return,
        },
    };
    definition.retain(|key, _| key == "description");
    if let Value::Object(typed) = typed {
        definition.extend(typed);
    }
}

fn add_list(definitions: &mut Map<String, Value>, builtin: &Builtin) {
    let field = |name: &str| definitions.get(builtin.definition).and_then(|kind| kind["properties"].get(name)).cloned();
    let list = json!({
        "description": format!("A list of objects of the kind {}.", builtin.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": field("apiVersion"),
            "kind": field("kind"),
            "metadata": {"description": "What holds for the list as a whole.", "$ref": format!("{REF}{META}ListMeta")},
            "items": {
                "description": format!("The {}.", builtin.plural),
                "type": "array",
                "items": {"$ref": format!("{REF}{}", builtin.definition)},
            },
        },
    });
    definitions.insert(format!("{}List", builtin.definition), list);
}

/// Says on each top-level definition which kind it is: clients find a kind's definition by this.
fn mark_kinds(definitions: &mut Map<String, Value>) {
    let mut mark = |definition: &str, kinds: Vec<Value>| {
        if let Some(definition) = definitions.get_mut(definition) {
            definition["x-kubernetes-group-version-kind"] = kinds.into();
        }
    };
    for builtin in all() {
        mark(builtin.definition, vec![kind(builtin.group, builtin.version, builtin.kind)]);
        let list = format!("{}List", builtin.kind);
        mark(&format!("{}List", builtin.definition), vec![kind(builtin.group, builtin.version, &list)]);
    }
    for review in reviews() {
        mark(review.definition, vec![kind(review.group, review.version, review.kind)]);
    }
    mark("io.k8s.api.autoscaling.v1.Scale", vec![kind("autoscaling", "v1", "Scale")]);
    for name in ["APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "Status"] {
        mark(&format!("{META}{name}"), vec![kind("", "v1", name)]);
    }
    // These two exist in every group.
    for name in ["DeleteOptions", "WatchEvent"] {
        mark(&format!("{META}{name}"), group_versions().map(|(group, version)| kind(group, version, name)).collect());
    }
}

fn group_versions() -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut found: Vec<_> = all().iter().map(|builtin| (builtin.group, builtin.version)).collect();
    found.extend(reviews().iter().map(|review| (review.group, review.version)));
    found.push(("autoscaling", "v1"));
    found.sort_unstable();
    found.dedup();
    found.into_iter()
}

fn kind(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_is_defined() {
        fn check(value: &Value) {
            match value {
                Value::Object(fields) => {
                    if let Some(Value::String(target)) = fields.get("$ref") {
                        let name = target.strip_prefix(REF).expect("a local reference");
                        assert!(definitions().contains_key(name), "{target}");
                    }
                    fields.values().for_each(check);
                }
                Value::Array(items) => items.iter().for_each(check),
                _ => {}
            }
        }
        definitions().values().for_each(check);
    }

    #[test]
    fn kinds_lists_and_shared_types_are_marked() {
        let marks = |name: &str| definitions()[name]["x-kubernetes-group-version-kind"].clone();
        assert_eq!(marks("io.k8s.api.apps.v1.Deployment"), json!([kind("apps", "v1", "Deployment")]));
        assert_eq!(marks("io.k8s.api.core.v1.PodList"), json!([kind("", "v1", "PodList")]));
        let options = marks("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions");
        assert!(options.as_array().unwrap().contains(&kind("coordination.k8s.io", "v1", "DeleteOptions")));
        assert!(marks("io.k8s.api.core.v1.PodSpec").is_null());
    }

    #[test]
    fn descriptions_and_recursion_are_kept() {
        let pod = &definitions()["io.k8s.api.core.v1.Pod"];
        assert!(pod["properties"]["spec"]["description"].as_str().is_some_and(|text| !text.is_empty()));
        let props = &definitions()[&format!("{EXTENSIONS}JSONSchemaProps")];
        assert_eq!(props["properties"]["not"]["$ref"], format!("{REF}{EXTENSIONS}JSONSchemaProps"));
    }
}
