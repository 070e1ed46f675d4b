//! The operations on a resource, as OpenAPI v2 and v3 list them.

use serde_json::{Map, Value, json};

use super::schemas::{self, Dialect, Schemas};
use crate::registry::Resource;

const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";

const MEDIA_TYPES: [&str; 2] = ["application/json", "application/yaml"];
const LIST_MEDIA_TYPES: [&str; 3] = ["application/json", "application/json;stream=watch", "application/yaml"];
const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    // Only for Kubernetes' own kinds, so the last: only their lists have keys to merge by.
    "application/strategic-merge-patch+json",
];

/// Name, type and meaning of every query parameter; operations name those that they take.
const QUERY_PARAMETERS: [(&str, &str, &str); 18] = [
    (
        "allowWatchBookmarks",
        "boolean",
        "Whether a watch also sends BOOKMARK events, which carry a resourceVersion to resume from.",
    ),
    ("continue", "string", "Where to go on with a list, from the metadata of the page before."),
    ("dryRun", "string", "All: do everything but store the result."),
    ("fieldManager", "string", "Who writes; becomes the owner of the fields that are written."),
    ("fieldSelector", "string", "Only objects whose fields have these values."),
    (
        "fieldValidation",
        "string",
        "What happens with fields that are unknown or doubled: Strict refuses, Warn tells, Ignore drops.",
    ),
    ("force", "boolean", "Whether an apply takes fields over that somebody else owns."),
    ("gracePeriodSeconds", "integer", "How long the object has to end."),
    ("labelSelector", "string", "Only objects with these labels."),
    ("limit", "integer", "The most objects that one page has."),
    ("orphanDependents", "boolean", "Deprecated in favour of propagationPolicy."),
    ("pretty", "string", "Whether the answer is indented for people."),
    ("propagationPolicy", "string", "What happens to the dependents: Foreground, Background or Orphan."),
    ("resourceVersion", "string", "The state of the server that is asked for."),
    ("resourceVersionMatch", "string", "How resourceVersion is meant: Exact or NotOlderThan."),
    ("sendInitialEvents", "boolean", "Whether a watch starts with the objects that exist."),
    ("timeoutSeconds", "integer", "How long the request may last."),
    ("watch", "boolean", "Whether changes follow instead of a list."),
];

/// What can be done at a path, as Kubernetes names it.
struct Action {
    method: &'static str,
    /// `x-kubernetes-action`.
    name: &'static str,
    /// The start of the operation's id.
    verb: &'static str,
    doing: &'static str,
    query: &'static [&'static str],
    body: Body,
    answer: Answer,
    codes: &'static [(&'static str, &'static str)],
}

#[derive(Clone, Copy, PartialEq)]
enum Body {
    None,
    Object,
    Patch,
    DeleteOptions,
}

#[derive(Clone, Copy, PartialEq)]
enum Answer {
    Object,
    List,
    Status,
}

const OK: (&str, &str) = ("200", "OK");
const CREATED: (&str, &str) = ("201", "Created");
const ACCEPTED: (&str, &str) = ("202", "Accepted");

const LIST: Action = Action {
    method: "get",
    name: "list",
    verb: "list",
    doing: "list or watch objects of kind",
    query: &[
        "allowWatchBookmarks",
        "continue",
        "fieldSelector",
        "labelSelector",
        "limit",
        "resourceVersion",
        "resourceVersionMatch",
        "sendInitialEvents",
        "timeoutSeconds",
        "watch",
    ],
    body: Body::None,
    answer: Answer::List,
    codes: &[OK],
};
const CREATE: Action = Action {
    method: "post",
    name: "post",
    verb: "create",
    doing: "create an object of kind",
    query: &["dryRun", "fieldManager", "fieldValidation"],
    body: Body::Object,
    answer: Answer::Object,
    codes: &[OK, CREATED, ACCEPTED],
};
const DELETE_COLLECTION: Action = Action {
    method: "delete",
    name: "deletecollection",
    verb: "delete",
    doing: "delete the selected objects of kind",
    query: &[
        "continue",
        "dryRun",
        "fieldSelector",
        "gracePeriodSeconds",
        "labelSelector",
        "limit",
        "orphanDependents",
        "propagationPolicy",
        "resourceVersion",
        "resourceVersionMatch",
        "timeoutSeconds",
    ],
    body: Body::DeleteOptions,
    answer: Answer::Status,
    codes: &[OK],
};
const READ: Action = Action {
    method: "get",
    name: "get",
    verb: "read",
    doing: "read an object of kind",
    query: &["resourceVersion"],
    body: Body::None,
    answer: Answer::Object,
    codes: &[OK],
};
const REPLACE: Action = Action {
    method: "put",
    name: "put",
    verb: "replace",
    doing: "replace an object of kind",
    query: &["dryRun", "fieldManager", "fieldValidation"],
    body: Body::Object,
    answer: Answer::Object,
    codes: &[OK, CREATED],
};
const PATCH: Action = Action {
    method: "patch",
    name: "patch",
    verb: "patch",
    doing: "change a part of an object of kind",
    query: &["dryRun", "fieldManager", "fieldValidation", "force"],
    body: Body::Patch,
    answer: Answer::Object,
    codes: &[OK, CREATED],
};
const DELETE: Action = Action {
    method: "delete",
    name: "delete",
    verb: "delete",
    doing: "delete an object of kind",
    query: &["dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"],
    body: Body::DeleteOptions,
    answer: Answer::Status,
    codes: &[OK, ACCEPTED],
};

/// The path items of a resource, with what they refer to added to `schemas`.
pub(super) fn of(resource: &Resource, schemas: &mut Schemas) -> Map<String, Value> {
    let root = match resource.group.as_str() {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    let everywhere = format!("{root}/{}", resource.plural);
    let collection = if resource.namespaced {
        format!("{root}/namespaces/{{namespace}}/{}", resource.plural)
    } else {
        everywhere.clone()
    };
    let one = format!("{collection}/{{name}}");
    let mut writer = Writer { resource, schemas };
    let mut paths = Map::new();
    if resource.namespaced {
        paths.insert(everywhere, writer.item(&[LIST], "", "ForAllNamespaces", false));
    }
    // Namespaces are deleted one by one.
    let collective: &[Action] =
        if resource.is("", "Namespace") { &[LIST, CREATE] } else { &[LIST, CREATE, DELETE_COLLECTION] };
    paths.insert(collection, writer.item(collective, "", "", false));
    paths.insert(one.clone(), writer.item(&[READ, REPLACE, PATCH, DELETE], "", "", true));
    if resource.status {
        paths.insert(format!("{one}/status"), writer.item(&[READ, REPLACE, PATCH], "status", "Status", true));
    }
    if resource.scale.is_some() {
        paths.insert(format!("{one}/scale"), writer.item(&[READ, REPLACE, PATCH], "scale", "Scale", true));
    }
    if resource.is("", "Namespace") {
        paths.insert(format!("{one}/finalize"), writer.item(&[REPLACE], "finalize", "Finalize", true));
    }
    paths
}

struct Writer<'a> {
    resource: &'a Resource,
    schemas: &'a mut Schemas,
}

impl Writer<'_> {
    /// `suffix` ends the ids of the operations; `one` tells the path of an object from that of a collection.
    fn item(&mut self, actions: &[Action], subresource: &str, suffix: &str, one: bool) -> Value {
        let everywhere = suffix == "ForAllNamespaces";
        let mut item = Map::new();
        for action in actions {
            item.insert(action.method.to_owned(), self.operation(action, subresource, suffix));
        }
        let mut parameters = Vec::new();
        if one {
            parameters.push(self.parameter(
                "path",
                "name",
                "string",
                &format!("The name of the {}.", self.resource.kind),
            ));
        }
        if self.resource.namespaced && !everywhere {
            parameters.push(self.parameter("path", "namespace", "string", "The namespace that the object stands in."));
        }
        parameters.push(self.query_parameter("pretty"));
        item.insert("parameters".to_owned(), Value::Array(parameters));
        Value::Object(item)
    }

    fn operation(&mut self, action: &Action, subresource: &str, suffix: &str) -> Value {
        let scope = if self.resource.namespaced && suffix != "ForAllNamespaces" { "Namespaced" } else { "" };
        let collection = if action.name == "deletecollection" { "Collection" } else { "" };
        let (group, version, kind) = (&self.resource.group, &self.resource.version, &self.resource.kind);
        let short = if group.is_empty() { "core" } else { group.trim_end_matches(".k8s.io") };
        let subject = if subresource.is_empty() { String::new() } else { format!(", only its {subresource}") };
        let shown = match subresource {
            "scale" => json!({ "group": "autoscaling", "version": "v1", "kind": "Scale" }),
            _ => json!({ "group": group, "version": version, "kind": kind }),
        };
        let mut operation = json!({
            "description": format!("{} {kind}{subject}", action.doing),
            "operationId": format!("{}{}{}{collection}{scope}{kind}{suffix}", action.verb, camel(short, true), camel(version, true)),
            "tags": [format!("{}_{}", camel(short, false), camel(version, false))],
            "parameters": action.query.iter().map(|name| self.query_parameter(name)).collect::<Vec<_>>(),
            "x-kubernetes-action": action.name,
            "x-kubernetes-group-version-kind": shown,
        });
        self.add_body(&mut operation, action, subresource);
        self.add_responses(&mut operation, action, subresource);
        operation
    }

    fn add_body(&mut self, operation: &mut Value, action: &Action, subresource: &str) {
        let (definition, media_types) = match action.body {
            Body::None => (None, &MEDIA_TYPES[..]),
            Body::Object => (Some(self.object_definition(subresource)), &MEDIA_TYPES[..]),
            Body::Patch => (Some(schemas::meta("Patch")), self.patches()),
            Body::DeleteOptions => (Some(schemas::meta("DeleteOptions")), &MEDIA_TYPES[..]),
        };
        let required = action.body != Body::DeleteOptions;
        let schema = definition.map(|name| self.schemas.reference(&name));
        match (self.schemas.dialect, schema) {
            (Dialect::V2, schema) => {
                operation["consumes"] = json!(media_types);
                if let (Some(schema), Some(parameters)) = (schema, operation["parameters"].as_array_mut()) {
                    parameters
                        .insert(0, json!({ "in": "body", "name": "body", "required": required, "schema": schema }));
                }
            }
            (Dialect::V3, Some(schema)) => {
                operation["requestBody"] = json!({ "content": content(media_types, &schema), "required": required });
            }
            (Dialect::V3, None) => {}
        }
    }

    fn add_responses(&mut self, operation: &mut Value, action: &Action, subresource: &str) {
        let (definition, media_types) = match action.answer {
            Answer::Object => (self.object_definition(subresource), &MEDIA_TYPES[..]),
            Answer::List => (schemas::list_definition_name(self.resource), &LIST_MEDIA_TYPES[..]),
            Answer::Status => (schemas::meta("Status"), &MEDIA_TYPES[..]),
        };
        let schema = self.schemas.reference(&definition);
        let mut responses = json!({ "401": { "description": "Unauthorized" } });
        for (code, description) in action.codes {
            responses[code] = match self.schemas.dialect {
                Dialect::V2 => json!({ "description": description, "schema": schema }),
                Dialect::V3 => json!({ "description": description, "content": content(media_types, &schema) }),
            };
        }
        operation["responses"] = responses;
        if self.schemas.dialect == Dialect::V2 {
            operation["produces"] = json!(media_types);
            operation["schemes"] = json!(["https"]);
        }
    }

    fn object_definition(&self, subresource: &str) -> String {
        if subresource == "scale" { SCALE.to_owned() } else { schemas::definition_name(self.resource) }
    }

    fn patches(&self) -> &'static [&'static str] {
        if self.resource.custom().is_some() { &PATCHES[..3] } else { &PATCHES }
    }

    fn query_parameter(&self, name: &str) -> Value {
        let known = QUERY_PARAMETERS.iter().find(|(known, _, _)| *known == name);
        let (_, type_, description) = known.expect("operations name parameters of the table only");
        self.parameter("query", name, type_, description)
    }

    fn parameter(&self, place: &str, name: &str, type_: &str, description: &str) -> Value {
        let mut parameter = json!({ "name": name, "in": place, "description": description });
        match self.schemas.dialect {
            Dialect::V2 => (parameter["type"], parameter["uniqueItems"]) = (json!(type_), json!(true)),
            Dialect::V3 => parameter["schema"] = json!({ "type": type_, "uniqueItems": true }),
        }
        if place == "path" {
            parameter["required"] = json!(true);
        }
        parameter
    }
}

fn content(media_types: &[&str], schema: &Value) -> Value {
    media_types.iter().map(|media_type| ((*media_type).to_owned(), json!({ "schema": schema }))).collect()
}

/// `underpass.dev` -> `UnderpassDev`: letters and digits, a capital after everything else.
fn camel(text: &str, mut capital: bool) -> String {
    let mut camel = String::new();
    for c in text.chars() {
        match c {
            c if !c.is_alphanumeric() && c != '_' => capital = true,
            c if capital => {
                camel.extend(c.to_uppercase());
                capital = false;
            }
            c => camel.push(c),
        }
    }
    camel
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    fn paths(group: &str, version: &str, plural: &str, dialect: Dialect) -> Map<String, Value> {
        let registry = Registry::build([], 1);
        of(&registry.find(group, version, plural).unwrap(), &mut Schemas::new(dialect))
    }

    #[test]
    fn ids_are_those_of_kubernetes() {
        let ids = |group, plural| -> Vec<String> {
            let paths = paths(group, "v1", plural, Dialect::V3);
            let operations = paths.values().flat_map(|item| item.as_object().unwrap().values());
            operations.filter_map(|op| op.get("operationId")).map(|id| id.as_str().unwrap().to_owned()).collect()
        };
        let deployments = ids("apps", "deployments");
        for id in [
            "listAppsV1DeploymentForAllNamespaces",
            "deleteAppsV1CollectionNamespacedDeployment",
            "createAppsV1NamespacedDeployment",
            "patchAppsV1NamespacedDeploymentScale",
            "replaceAppsV1NamespacedDeploymentStatus",
        ] {
            assert!(deployments.iter().any(|known| known == id), "{id} in {deployments:?}");
        }
        let namespaces = ids("", "namespaces");
        assert!(namespaces.iter().any(|id| id == "replaceCoreV1NamespaceFinalize"));
        assert!(!namespaces.iter().any(|id| id.contains("Collection")));
        assert!(
            ids("apiextensions.k8s.io", "customresourcedefinitions")
                .iter()
                .any(|id| id == "readApiextensionsV1CustomResourceDefinition")
        );
    }

    #[test]
    fn v2_and_v3_say_the_same_in_their_own_way() {
        let path = "/api/v1/namespaces/{namespace}/configmaps";
        let v2 = &paths("", "v1", "configmaps", Dialect::V2)[path]["post"];
        assert_eq!(v2["parameters"][0]["schema"]["$ref"], "#/definitions/io.k8s.api.core.v1.ConfigMap");
        assert_eq!(v2["responses"]["201"]["schema"]["$ref"], "#/definitions/io.k8s.api.core.v1.ConfigMap");
        assert_eq!(v2["parameters"][1]["type"], "string");
        let v3 = &paths("", "v1", "configmaps", Dialect::V3)[path]["post"];
        let reference = "#/components/schemas/io.k8s.api.core.v1.ConfigMap";
        assert_eq!(v3["requestBody"]["content"]["application/json"]["schema"]["$ref"], reference);
        assert_eq!(v3["responses"]["201"]["content"]["application/json"]["schema"]["$ref"], reference);
        assert_eq!(v3["parameters"][0]["schema"]["type"], "string");
        assert_eq!(v2["tags"], json!(["core_v1"]));
    }

    #[test]
    fn groups_become_words() {
        assert_eq!(camel("underpass.dev", true), "UnderpassDev");
        assert_eq!(camel("hosted-cluster.x1.com", false), "hostedClusterX1Com");
    }
}
