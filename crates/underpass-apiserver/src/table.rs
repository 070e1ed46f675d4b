//! The shapes that a client may ask objects in: whole, as rows of a table for people, or as metadata only.

use jiff::Timestamp;
use serde_json::{Value, json};
use underpass_builtins::protobuf::MEDIA_TYPE;

use crate::accept;
use crate::object;
use crate::registry::{Origin, PrinterColumn, Resource};
use crate::status::ApiError;

/// How a response is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Representation {
    Json,
    Yaml,
    Table(MetaVersion),
    /// `list`: the client asked for `PartialObjectMetadataList`.
    PartialObjectMetadata {
        list: bool,
        version: MetaVersion,
    },
}

/// The version of `meta.k8s.io`; both have the same fields, and a client is answered in the one that it named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetaVersion {
    V1,
    V1Beta1,
}

/// What stands in the `object` of each row (`?includeObject=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    None,
    Metadata,
    Object,
}

impl MetaVersion {
    fn parse(group: &str, version: &str) -> Option<Self> {
        match (group, version) {
            ("meta.k8s.io", "v1") => Some(Self::V1),
            ("meta.k8s.io", "v1beta1") => Some(Self::V1Beta1),
            _ => None,
        }
    }

    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

impl IncludeObject {
    pub(crate) fn parse(asked: Option<&str>) -> Result<Self, ApiError> {
        match asked {
            None | Some("" | "Metadata") => Ok(Self::Metadata),
            Some("None") => Ok(Self::None),
            Some("Object") => Ok(Self::Object),
            Some(other) => Err(ApiError::bad_request(format!(
                "includeObject: {other:?} is none of \"Metadata\", \"Object\" and \"None\""
            ))),
        }
    }
}

/// The first alternative of an `Accept` header that this server can write. Protobuf comes last: it is translated from JSON.
pub(crate) fn negotiate(accept: &str) -> Result<Representation, ApiError> {
    as_text(accept).or_else(|| as_protobuf(accept)).ok_or_else(|| {
        let message = format!(
            "nothing that is accepted ({accept}) can be written here; known are application/json, application/yaml, {MEDIA_TYPE}, and \
             application/json with as=Table, as=PartialObjectMetadata or as=PartialObjectMetadataList of meta.k8s.io/v1"
        );
        ApiError::not_acceptable(message)
    })
}

/// Whether the client can be answered in protobuf only.
pub(crate) fn wants_protobuf(accept: &str) -> bool {
    as_text(accept).is_none() && as_protobuf(accept).is_some()
}

/// Objects whose kind a user defined have no protobuf form; their metadata has. To be asked before anything is done.
pub(crate) fn check_form(resource: &Resource, accept: &str) -> Result<(), ApiError> {
    if resource.custom().is_some() && as_text(accept).is_none() && as_protobuf(accept) == Some(Representation::Json) {
        let message = format!("{} has no protobuf form; accept application/json or application/yaml", resource.kind);
        return Err(ApiError::not_acceptable(message));
    }
    Ok(())
}

fn as_text(accept: &str) -> Option<Representation> {
    accept::alternatives(accept).iter().find_map(|alternative| {
        let json = alternative.allows("application/json");
        match alternative.shape() {
            Some((group, version, kind)) if json => shape(kind, MetaVersion::parse(group, version)?),
            Some(_) => None,
            None if json => Some(Representation::Json),
            None => alternative.allows("application/yaml").then_some(Representation::Yaml),
        }
    })
}

/// What is to be written before it is translated. Tables have no protobuf form.
fn as_protobuf(accept: &str) -> Option<Representation> {
    let alternatives = accept::alternatives(accept);
    alternatives.iter().filter(|alternative| alternative.allows(MEDIA_TYPE)).find_map(|alternative| {
        match alternative.shape() {
            None => Some(Representation::Json),
            Some((group, version, kind)) => shape(kind, MetaVersion::parse(group, version)?)
                .filter(|shape| !matches!(shape, Representation::Table(_))),
        }
    })
}

fn shape(kind: &str, version: MetaVersion) -> Option<Representation> {
    match kind {
        "Table" => Some(Representation::Table(version)),
        "PartialObjectMetadata" => Some(Representation::PartialObjectMetadata { list: false, version }),
        "PartialObjectMetadataList" => Some(Representation::PartialObjectMetadata { list: true, version }),
        _ => None,
    }
}

/// A `Table` with a row per object. `list_metadata` is the list's; for a single object it holds its resourceVersion.
pub(crate) fn table(
    resource: &Resource,
    objects: &[&Value],
    list_metadata: Value,
    version: MetaVersion,
    include_object: IncludeObject,
    now: Timestamp,
) -> Value {
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let shown = match include_object {
                IncludeObject::None => Value::Null,
                IncludeObject::Metadata => partial_metadata(object, version),
                IncludeObject::Object => (*object).clone(),
            };
            json!({ "cells": cells(resource, object, now), "object": shown })
        })
        .collect();
    let mut table = json!({ "kind": "Table", "apiVersion": version.api_version() });
    table["metadata"] = list_metadata;
    table["columnDefinitions"] = Value::Array(columns(resource));
    table["rows"] = Value::Array(rows);
    table
}

/// The `columnDefinitions` of a resource's tables.
pub(crate) fn columns(resource: &Resource) -> Vec<Value> {
    match &resource.origin {
        Origin::Builtin(builtin) => builtin
            .columns
            .iter()
            .map(|c| column(c.name, c.type_, c.format, c.description, c.priority.into()))
            .collect(),
        Origin::Custom(custom) => {
            let mut columns = vec![column(
                "Name",
                "string",
                "name",
                "The name, unique among the objects of its kind and namespace.",
                0,
            )];
            columns.extend(custom.columns.iter().map(PrinterColumn::definition));
            if custom.columns.is_empty() {
                columns.push(column("Age", "date", "", "Time since the object was created.", 0));
            }
            columns
        }
    }
}

/// An object without everything but its metadata.
pub(crate) fn partial_metadata(object: &Value, version: MetaVersion) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": object["metadata"] })
}

/// The list of it.
pub(crate) fn partial_metadata_list(objects: &[&Value], list_metadata: Value, version: MetaVersion) -> Value {
    let items: Vec<Value> = objects.iter().map(|object| partial_metadata(object, version)).collect();
    let mut list = json!({ "kind": "PartialObjectMetadataList", "apiVersion": version.api_version() });
    list["metadata"] = list_metadata;
    list["items"] = Value::Array(items);
    list
}

fn column(name: &str, type_: &str, format: &str, description: &str, priority: i64) -> Value {
    json!({ "name": name, "type": type_, "format": format, "description": description, "priority": priority })
}

fn cells(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    match &resource.origin {
        Origin::Builtin(builtin) => builtin.row(object, now),
        Origin::Custom(custom) => {
            let mut cells = vec![json!(object::name(object))];
            cells.extend(custom.columns.iter().map(|column| column.cell(object, now)));
            if custom.columns.is_empty() {
                cells.push(json!(age(object::text(object, "/metadata/creationTimestamp"), now)));
            }
            cells
        }
    }
}

impl PrinterColumn {
    fn definition(&self) -> Value {
        let description = if self.description.is_empty() {
            format!("What stands at {} of the object.", self.path.as_str())
        } else {
            self.description.clone()
        };
        column(&self.name, &self.type_, &self.format, &description, self.priority)
    }

    /// The first value that the path leads to, as the column's type has it; null where it has no such value.
    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let Some(value) = self.path.first(object) else { return Value::Null };
        match (self.type_.as_str(), value) {
            (_, Value::Null) => Value::Null,
            ("string", Value::String(_)) | ("boolean", Value::Bool(_)) => value.clone(),
            ("string", other) => json!(other.to_string()),
            ("integer", Value::Number(number)) => json!(whole(number)),
            ("number", Value::Number(number)) => json!(number.as_f64()),
            ("date", Value::String(text)) => json!(age(text, now)),
            _ => Value::Null,
        }
    }
}

/// Fractions are cut off.
fn whole(number: &serde_json::Number) -> Option<i64> {
    number.as_i64().or_else(|| number.as_f64().map(|float| float as i64))
}

/// How long ago a timestamp was, as kubectl writes it.
fn age(timestamp: &str, now: Timestamp) -> String {
    match timestamp.parse::<Timestamp>() {
        Ok(then) => underpass_builtins::duration(now.duration_since(then).as_secs()),
        Err(_) if timestamp.is_empty() => "<unknown>".to_owned(),
        Err(_) => "<invalid>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    const KUBECTL: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

    fn definition() -> Value {
        json!({
            "metadata": { "name": "things.example.com" },
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": { "plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList" },
                "versions": [
                    { "name": "v1", "served": true, "storage": true, "additionalPrinterColumns": [
                        { "name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status" },
                        { "name": "Ports", "type": "string", "jsonPath": ".spec.ports", "description": "ports", "priority": 1 },
                        { "name": "Count", "type": "integer", "jsonPath": ".spec.count" },
                        { "name": "Share", "type": "number", "jsonPath": ".spec.count" },
                        { "name": "On", "type": "boolean", "jsonPath": ".spec.on" },
                        { "name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp" },
                    ] },
                    { "name": "v1beta1", "served": true, "storage": false },
                ],
            },
        })
    }

    fn thing() -> Value {
        json!({
            "apiVersion": "example.com/v1", "kind": "Thing",
            "metadata": { "name": "a", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "ports": [1, 2], "count": 3, "on": true },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        })
    }

    fn now() -> Timestamp {
        "2026-01-01T00:05:30Z".parse().unwrap()
    }

    fn show(version: &str, object: &Value, include: IncludeObject) -> Value {
        let registry = Registry::build(Resource::from_definition(&definition(), &crate::registry::Since::default()), 1);
        let resource = registry.find("example.com", version, "things").unwrap();
        table(&resource, &[object], json!({ "resourceVersion": "7" }), MetaVersion::V1, include, now())
    }

    #[test]
    fn the_first_alternative_that_is_known_wins() {
        let partial = |list| Representation::PartialObjectMetadata { list, version: MetaVersion::V1 };
        let table = [
            ("", Representation::Json),
            ("*/*", Representation::Json),
            ("application/json", Representation::Json),
            ("application/json;stream=watch", Representation::Json),
            ("application/vnd.kubernetes.protobuf, */*", Representation::Json),
            ("application/yaml", Representation::Yaml),
            ("application/json;q=0.5, application/yaml", Representation::Yaml),
            (KUBECTL, Representation::Table(MetaVersion::V1)),
            ("application/json;as=Table;v=v1beta1;g=meta.k8s.io", Representation::Table(MetaVersion::V1Beta1)),
            ("application/json;as=Table;v=v3;g=meta.k8s.io,application/json", Representation::Json),
            ("application/json;as=Chart;v=v1;g=meta.k8s.io,application/yaml", Representation::Yaml),
            ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", partial(false)),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                 application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
                partial(true),
            ),
        ];
        for (accept, expected) in table {
            assert_eq!(negotiate(accept).unwrap(), expected, "{accept}");
        }
        for accept in [
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
            "text/html",
            "application/json;as=Chart;v=v1;g=x",
        ] {
            assert_eq!(negotiate(accept).unwrap_err().code, http::StatusCode::NOT_ACCEPTABLE, "{accept}");
        }
    }

    #[test]
    fn protobuf_is_written_where_nothing_else_is_accepted() {
        let metadata = format!("{MEDIA_TYPE};as=PartialObjectMetadata;v=v1;g=meta.k8s.io");
        let partial = Representation::PartialObjectMetadata { list: false, version: MetaVersion::V1 };
        let table = [
            (MEDIA_TYPE.to_owned(), true, Representation::Json),
            (format!("{MEDIA_TYPE};stream=watch"), true, Representation::Json),
            (metadata.clone(), true, partial),
            (format!("{MEDIA_TYPE},application/json"), false, Representation::Json),
            (format!("{metadata},application/json"), false, Representation::Json),
            (format!("{MEDIA_TYPE},*/*"), false, Representation::Json),
            (String::new(), false, Representation::Json),
        ];
        for (accept, wanted, expected) in table {
            assert_eq!(wants_protobuf(&accept), wanted, "{accept}");
            assert_eq!(negotiate(&accept).unwrap(), expected, "{accept}");
        }
        assert!(!wants_protobuf("text/html"));
        let registry = Registry::build(Resource::from_definition(&definition(), &crate::registry::Since::default()), 1);
        let thing = registry.find("example.com", "v1", "things").unwrap();
        let pod = registry.find("", "v1", "pods").unwrap();
        assert_eq!(check_form(&thing, MEDIA_TYPE).unwrap_err().code, http::StatusCode::NOT_ACCEPTABLE);
        for (resource, accept) in [(&thing, metadata.as_str()), (&thing, "application/json"), (&pod, MEDIA_TYPE)] {
            assert!(check_form(resource, accept).is_ok(), "{accept}");
        }
    }

    #[test]
    fn a_column_shows_the_value_in_its_type() {
        let table = show("v1", &thing(), IncludeObject::Metadata);
        assert_eq!(table["rows"][0]["cells"], json!(["a", "True", "[1,2]", 3, 3.0, true, "5m30s"]));
        assert_eq!(table["metadata"], json!({ "resourceVersion": "7" }));
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(table["rows"][0]["object"]["metadata"]["name"], "a");
        let names: Vec<_> = table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].clone()).collect();
        assert_eq!(json!(names), json!(["Name", "Ready", "Ports", "Count", "Share", "On", "Since"]));
        assert_eq!(
            table["columnDefinitions"][2],
            json!({
                "name": "Ports", "type": "string", "format": "", "description": "ports", "priority": 1
            })
        );
    }

    #[test]
    fn what_is_missing_or_of_another_type_is_null() {
        let table = show(
            "v1",
            &json!({ "metadata": { "name": "b" }, "spec": { "count": "many", "on": null } }),
            IncludeObject::None,
        );
        assert_eq!(table["rows"][0], json!({ "cells": ["b", null, null, null, null, null, null], "object": null }));
    }

    #[test]
    fn without_columns_the_age_is_shown() {
        let table = show("v1beta1", &thing(), IncludeObject::Object);
        assert_eq!(table["rows"][0]["cells"], json!(["a", "5m30s"]));
        assert_eq!(table["rows"][0]["object"], thing());
    }

    #[test]
    fn every_kind_of_kubernetes_has_as_many_cells_as_columns() {
        let registry = Registry::build([], 1);
        for resource in registry.all() {
            let object = json!({ "metadata": { "name": "a" } });
            let table = table(resource, &[&object], json!({}), MetaVersion::V1Beta1, IncludeObject::None, now());
            assert_eq!(table["apiVersion"], "meta.k8s.io/v1beta1");
            let cells = table["rows"][0]["cells"].as_array().unwrap();
            assert_eq!(cells.len(), table["columnDefinitions"].as_array().unwrap().len(), "{}", resource.kind);
            assert_eq!(
                table["columnDefinitions"][0]["name"].as_str().map(|n| n.contains("Name") || n.contains("Last")),
                Some(true)
            );
        }
    }

    #[test]
    fn include_object_is_read_from_the_query() {
        assert_eq!(IncludeObject::parse(None).unwrap(), IncludeObject::Metadata);
        assert_eq!(IncludeObject::parse(Some("Object")).unwrap(), IncludeObject::Object);
        assert!(IncludeObject::parse(Some("All")).unwrap_err().message.contains("\"All\""));
    }

    #[test]
    fn ages_grow_coarser() {
        let table = [
            ("2026-01-01T00:05:32Z", "<invalid>"),
            ("2026-01-01T00:05:31Z", "0s"),
            ("2026-01-01T00:03:31Z", "119s"),
            ("2026-01-01T00:03:30Z", "2m"),
            ("2025-12-31T22:05:30Z", "120m"),
            ("2025-12-31T19:00:30Z", "5h5m"),
            ("2025-12-30T12:05:30Z", "36h"),
            ("2025-12-28T20:05:30Z", "3d4h"),
            ("2025-12-01T00:00:00Z", "31d"),
            ("2022-01-01T00:00:00Z", "4y1d"),
            ("2010-01-01T00:00:00Z", "16y"),
            ("", "<unknown>"),
            ("yesterday", "<invalid>"),
        ];
        for (then, expected) in table {
            assert_eq!(age(then, now()), expected, "{then}");
        }
    }

    #[test]
    fn metadata_alone_is_a_kind_of_its_own() {
        let list = partial_metadata_list(&[&thing()], json!({ "resourceVersion": "9" }), MetaVersion::V1);
        assert_eq!(list["kind"], "PartialObjectMetadataList");
        assert_eq!(
            list["items"][0],
            json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": thing()["metadata"]
            })
        );
    }
}
