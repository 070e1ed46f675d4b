//! apiextensions.k8s.io/v1 CustomResourceDefinition. Whether its schemas are structural is for the reader of schemas to say.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use underpass_schema::{FieldError, Path};

use crate::checks::Errors;
use crate::{Builtin, Column, cells, fields, names};

const WEBHOOK_PORT: i64 = 443;
const APPROVAL: &str = "api-approved.kubernetes.io";
const MOST_SELECTABLE: usize = 8;
const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] =
    &["binary", "bsonobjectid", "byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

const COLUMNS: &[Column] = &[
    Column::name("Name of the definition: the plural name of its kind, a dot, its group."),
    Column { type_: "date", ..Column::text("Created At", "When it was created.") },
];

pub(crate) const fn builtin() -> Builtin {
    Builtin {
        group: "apiextensions.k8s.io",
        version: "v1",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        singular: "customresourcedefinition",
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        namespaced: false,
        status: true,
        scale: false,
        generation: true,
        bucket: "customresourcedefinitions.apiextensions.k8s.io",
        definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
        columns: COLUMNS,
        name: names::dns_subdomain,
        define: |generator| {
            generator.subschema_for::<CustomResourceDefinition>();
        },
        row,
        prepare_update: |_, _| {},
        default,
        validate,
        built: OnceLock::new(),
    }
}

fn row(object: &Value, _now: Timestamp) -> Vec<Value> {
    vec![cells::name(object), fields::text(object, "/metadata/creationTimestamp").into()]
}

fn default(object: &mut Value) {
    if let Some(spec) = fields::section(object, "spec") {
        let kind = fields::text(spec, "/names/kind").to_owned();
        if let Some(names) = fields::section(spec, "names")
            && !kind.is_empty()
        {
            fields::fill(names, "singular", kind.to_lowercase());
            fields::fill(names, "listKind", format!("{kind}List"));
        }
        fields::fill(spec, "conversion", json!({"strategy": "None"}));
        if let Some(service) = spec.pointer_mut("/conversion/webhook/clientConfig/service") {
            fields::fill(service, "port", WEBHOOK_PORT);
        }
    }
    let stored: Vec<Value> = storage_versions(object).into_iter().take(1).map(Value::from).collect();
    if let Some(status) = fields::section(object, "status")
        && fields::list(status, "/storedVersions").is_empty()
        && !stored.is_empty()
    {
        status["storedVersions"] = stored.into();
    }
}

fn versions(object: &Value) -> &[Value] {
    fields::list(object, "/spec/versions")
}

fn storage_versions(object: &Value) -> Vec<String> {
    let storage = versions(object).iter().filter(|version| fields::flag(version, "/storage"));
    storage.map(|version| fields::text(version, "/name").to_owned()).collect()
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let path = Path::from("spec");
    validate_group(new, &path, &mut errors);
    if old.is_none() {
        validate_approval(new, &mut errors);
    }
    if fields::flag(new, "/spec/preserveUnknownFields") {
        let detail =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.invalid(&path.field("preserveUnknownFields"), true, detail);
    }
    errors.one_of(&path.field("scope"), fields::text(new, "/spec/scope"), &["Cluster", "Namespaced"]);
    validate_versions(new, &path.field("versions"), &mut errors);
    validate_names(&new["spec"]["names"], &path.field("names"), &mut errors);
    validate_conversion(&new["spec"]["conversion"], &path.field("conversion"), &mut errors);
    validate_stored(new, &mut errors);
    if let Some(old) = old {
        validate_update(new, old, &mut errors);
    }
    errors.done()
}

fn validate_group(object: &Value, path: &Path, errors: &mut Errors) {
    let [group, plural, name] =
        ["/spec/group", "/spec/names/plural", "/metadata/name"].map(|field| fields::text(object, field));
    if name != format!("{plural}.{group}") {
        errors.invalid(&Path::from("metadata.name"), name, "must be spec.names.plural+\".\"+spec.group");
    }
    let wrong = names::dns_subdomain(group);
    if group.is_empty() {
        errors.required(&path.field("group"), "");
    } else if !wrong.is_empty() {
        errors.invalid(&path.field("group"), group, wrong.join(","));
    } else if !group.contains('.') {
        errors.invalid(&path.field("group"), group, "should be a domain with at least one dot");
    }
}

/// What a definition says of its approval. Groups of Kubernetes are for its reviewed APIs, and for those who say openly that theirs
/// is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approval {
    Given(String),
    Bypassed(String),
    /// With what is asked for.
    Missing(String),
    Invalid(String),
}

/// `None` for a group that needs no approval.
pub fn approval(object: &Value) -> Option<Approval> {
    let group = fields::text(object, "/spec/group");
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|suffix| group.strip_suffix(suffix).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')));
    if !is_protected {
        return None;
    }
    let given = approval_annotation(object);
    let rule = format!("protected groups must have approval annotation {APPROVAL:?}");
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    let is_url = given.split_once("://").is_some_and(|(scheme, host)| !scheme.is_empty() && !host.is_empty());
    Some(match given {
        "" => Approval::Missing(format!("{rule}, {see}")),
        _ if given.starts_with("unapproved") => Approval::Bypassed(format!("not approved: {given:?}")),
        _ if is_url => Approval::Given(format!("approved in {given}")),
        _ => Approval::Invalid(format!("{rule} with either a URL or a reason starting with \"unapproved\", {see}")),
    })
}

fn approval_annotation(object: &Value) -> &str {
    object.pointer("/metadata/annotations").and_then(|all| all.get(APPROVAL)?.as_str()).unwrap_or_default()
}

fn validate_approval(object: &Value, errors: &mut Errors) {
    let path = Path::from("metadata.annotations").key(APPROVAL);
    match approval(object) {
        Some(Approval::Missing(rule)) => errors.required(&path, &rule),
        Some(Approval::Invalid(rule)) => errors.invalid(&path, approval_annotation(object), rule),
        Some(Approval::Given(_) | Approval::Bypassed(_)) | None => {}
    }
}

fn validate_versions(object: &Value, path: &Path, errors: &mut Errors) {
    let versions = versions(object);
    let mut seen = BTreeSet::new();
    let mut repeated = false;
    for (index, version) in versions.iter().enumerate() {
        let path = path.index(index);
        let name = fields::text(version, "/name");
        repeated |= !seen.insert(name);
        let wrong = names::dns_1035_label(name);
        if !wrong.is_empty() {
            errors.invalid(&path.field("name"), name, wrong.join(","));
        }
        if version.pointer("/schema/openAPIV3Schema").is_none() {
            errors.required(&path.field("schema").field("openAPIV3Schema"), "");
        }
        for (index, column) in fields::list(version, "/additionalPrinterColumns").iter().enumerate() {
            validate_column(column, &path.field("additionalPrinterColumns").index(index), errors);
        }
        validate_subresources(version, &path.field("subresources"), errors);
        validate_selectable(version, &path.field("selectableFields"), errors);
    }
    if repeated {
        errors.invalid(path, versions.to_vec(), "must contain unique version names");
    }
    if storage_versions(object).len() != 1 {
        errors.invalid(path, versions.to_vec(), "must have exactly one version marked as storage version");
    }
}

fn validate_column(column: &Value, path: &Path, errors: &mut Errors) {
    for (field, shown) in [("/name", "name"), ("/jsonPath", "JSONPath")] {
        if fields::text(column, field).is_empty() {
            errors.required(&path.field(shown), "");
        }
    }
    let type_ = fields::text(column, "/type");
    let types = format!("must be one of {}", COLUMN_TYPES.join(","));
    if type_.is_empty() {
        errors.required(&path.field("type"), &types);
    } else if !COLUMN_TYPES.contains(&type_) {
        errors.invalid(&path.field("type"), type_, types);
    }
    let format = fields::text(column, "/format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        errors.invalid(&path.field("format"), format, format!("must be one of {}", COLUMN_FORMATS.join(",")));
    }
}

fn validate_subresources(version: &Value, path: &Path, errors: &mut Errors) {
    let Some(scale) = version.pointer("/subresources/scale") else { return };
    let path = path.field("scale");
    for (field, root, needed) in [
        ("specReplicasPath", ".spec.", true),
        ("statusReplicasPath", ".status.", true),
        ("labelSelectorPath", "", false),
    ] {
        let value = fields::text(scale, &format!("/{field}"));
        if value.is_empty() && needed {
            errors.required(&path.field(field), "");
        } else if !value.is_empty() && !root.is_empty() && !value.starts_with(root) {
            let detail = format!("should be a json path under {}", root.trim_end_matches('.'));
            errors.invalid(&path.field(field), value, detail);
        } else if !value.is_empty() && !value.starts_with(".spec.") && !value.starts_with(".status.") {
            errors.invalid(&path.field(field), value, "should be a json path under either .spec or .status");
        }
    }
}

/// Field selectors compare texts, so only fields that are one value, and are there for sure, can be selected by.
fn validate_selectable(version: &Value, path: &Path, errors: &mut Errors) {
    let listed = fields::list(version, "/selectableFields");
    if listed.len() > MOST_SELECTABLE {
        errors.too_many(path, listed.len(), MOST_SELECTABLE);
    }
    let schema = version.pointer("/schema/openAPIV3Schema").unwrap_or(&Value::Null);
    let mut seen = BTreeSet::new();
    for (index, field) in listed.iter().enumerate() {
        let (path, given) = (path.index(index).field("jsonPath"), fields::text(field, "/jsonPath"));
        if given.is_empty() {
            errors.required(&path, "");
        } else if let Err(why) = selectable(schema, given) {
            errors.invalid(&path, given, why);
        } else {
            errors.unique(&path, given, &mut seen);
        }
    }
}

fn selectable(schema: &Value, path: &str) -> Result<(), String> {
    let Some(fields) = path.strip_prefix('.') else {
        let got = path.split(['.', '[']).next().unwrap_or_default();
        return Err(format!(
            "is an invalid path: expected [ or . but got: {}",
            got.get(..1).filter(|c| *c == "$").unwrap_or(got)
        ));
    };
    if path.contains('[') {
        return Err("is an invalid path: array notation is not allowed".to_owned());
    }
    let below = |node: &'_ Value, name: &str| -> Option<Value> {
        let declared = node.get("properties").and_then(|all| all.get(name));
        declared.or_else(|| node.get("additionalProperties").filter(|values| values.is_object())).cloned()
    };
    let found = fields.split('.').try_fold(schema.clone(), |node, name| below(&node, name));
    let found = found.ok_or("is an invalid path: does not refer to a valid field")?;
    if matches!(fields::text(&found, "/type"), "string" | "boolean" | "integer") {
        return Ok(());
    }
    Err("must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."
        .to_owned())
}

fn validate_names(given: &Value, path: &Path, errors: &mut Errors) {
    for field in ["plural", "singular", "kind", "listKind"] {
        let name = fields::text(given, &format!("/{field}"));
        if name.is_empty() {
            errors.required(&path.field(field), "");
            continue;
        }
        let mixed = field.to_lowercase().contains("kind");
        let wrong = names::dns_1035_label(&if mixed { name.to_lowercase() } else { name.to_owned() });
        if !wrong.is_empty() {
            let start = if mixed { "may have mixed case, but should otherwise match: " } else { "" };
            errors.invalid(&path.field(field), name, format!("{start}{}", wrong.join(",")));
        }
    }
    for field in ["shortNames", "categories"] {
        let listed = fields::list(given, &format!("/{field}"));
        for (index, name) in listed.iter().filter_map(Value::as_str).enumerate() {
            let wrong = names::dns_1035_label(name);
            if !wrong.is_empty() {
                errors.invalid(&path.field(field).index(index), name, wrong.join(","));
            }
        }
    }
    let kind = fields::text(given, "/kind");
    if !kind.is_empty() && kind == fields::text(given, "/listKind") {
        errors.invalid(&path.field("listKind"), kind, "kind and listKind may not be the same");
    }
}

fn validate_conversion(conversion: &Value, path: &Path, errors: &mut Errors) {
    let strategy = fields::text(conversion, "/strategy");
    errors.one_of(&path.field("strategy"), strategy, &["None", "Webhook"]);
    if strategy == "None" && conversion.pointer("/webhook/clientConfig").is_some() {
        errors.forbidden(&path.field("webhookClientConfig"), "should not be set when strategy is not set to Webhook");
    }
    if strategy == "Webhook" && conversion.pointer("/webhook/clientConfig").is_none() {
        errors.required(&path.field("webhookClientConfig"), "required when strategy is set to Webhook");
    }
}

/// Every version that an object may be stored in must still be there to read it.
fn validate_stored(object: &Value, errors: &mut Errors) {
    let path = Path::from("status.storedVersions");
    let stored = fields::list(object, "/status/storedVersions");
    if stored.is_empty() {
        return errors.invalid(&path, stored.to_vec(), "must have at least one stored version");
    }
    for storage in storage_versions(object).into_iter().filter(|storage| !stored.iter().any(|name| name == storage)) {
        errors.invalid(&path, stored.to_vec(), format!("must have the storage version {storage}"));
    }
    for (index, name) in stored.iter().filter_map(Value::as_str).enumerate() {
        if !versions(object).iter().any(|version| fields::text(version, "/name") == name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage \
                 migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.invalid(&path.index(index), name, detail);
        }
    }
}

/// Once the kind is served, clients know it by these.
fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    errors.immutable(new, old, "spec.group");
    errors.immutable(new, old, "spec.names.plural");
    let established = fields::list(old, "/status/conditions").iter().any(|condition| {
        fields::text(condition, "/type") == "Established" && fields::text(condition, "/status") == "True"
    });
    if established {
        errors.immutable(new, old, "spec.scope");
        errors.immutable(new, old, "spec.names.kind");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::texts;

    fn definition(changes: &[(&str, Value)]) -> Value {
        let mut object = json!({
            "metadata": {"name": "widgets.example.com", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        });
        builtin().default(&mut object);
        for (pointer, value) in changes {
            *object.pointer_mut(pointer).unwrap() = value.clone();
        }
        object
    }

    #[test]
    fn filled_and_shown() {
        let object = definition(&[]);
        assert_eq!(object["spec"]["names"]["singular"], "widget");
        assert_eq!(object["spec"]["names"]["listKind"], "WidgetList");
        assert_eq!(object["spec"]["conversion"], json!({"strategy": "None"}));
        assert_eq!(object["status"], json!({"storedVersions": ["v1"]}));
        assert_eq!(row(&object, Timestamp::UNIX_EPOCH), [json!("widgets.example.com"), json!("2026-01-01T00:00:00Z")]);
        assert!(validate(&object, Some(&object)).is_empty());
    }

    #[test]
    fn refused() {
        for (pointer, value, expected) in [
            (
                "/metadata/name",
                json!("widgets"),
                "metadata.name: Invalid value: \"widgets\": must be spec.names.plural+\".\"+spec.group",
            ),
            ("/spec/scope", json!(""), "spec.scope: Required value"),
            ("/spec/versions/0/schema", json!({}), "spec.versions[0].schema.openAPIV3Schema: Required value"),
            (
                "/spec/names/listKind",
                json!("Widget"),
                "spec.names.listKind: Invalid value: \"Widget\": kind and listKind may not be the same",
            ),
            (
                "/spec/conversion/strategy",
                json!("Magic"),
                "spec.conversion.strategy: Unsupported value: \"Magic\": supported values: \"None\", \"Webhook\"",
            ),
            (
                "/status/storedVersions",
                json!([]),
                "status.storedVersions: Invalid value: []: must have at least one stored version",
            ),
        ] {
            assert_eq!(texts(&validate(&definition(&[(pointer, value)]), None)), [expected]);
        }
        let found = texts(&validate(&definition(&[("/spec/versions/0/storage", json!(false))]), None));
        assert!(found[0].ends_with("must have exactly one version marked as storage version"), "{found:?}");
    }

    #[test]
    fn fields_to_select_by_are_declared_and_simple() {
        let properties = json!({
            "text": {"type": "string"}, "number": {"type": "integer"}, "list": {"type": "array", "items": {"type": "string"}},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
        });
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
        let unknown = "is an invalid path: does not refer to a valid field";
        let other = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
        for (path, wrong) in [
            (".spec.text", None),
            (".spec.number", None),
            (".spec.map.key", None),
            (".spec.gone", Some(unknown)),
            (".metadata.name", Some(unknown)),
            (".spec.text.below", Some(unknown)),
            (".spec.list", Some(other)),
            (".spec.list[0]", Some("is an invalid path: array notation is not allowed")),
            ("spec.text", Some("is an invalid path: expected [ or . but got: spec")),
        ] {
            let mut object = definition(&[("/spec/versions/0/schema/openAPIV3Schema", schema.clone())]);
            object["spec"]["versions"][0]["selectableFields"] = json!([{ "jsonPath": path }]);
            let expected = wrong
                .map(|why| format!("spec.versions[0].selectableFields[0].jsonPath: Invalid value: {path:?}: {why}"));
            assert_eq!(texts(&validate(&object, None)), Vec::from_iter(expected));
        }
        let mut object = definition(&[("/spec/versions/0/schema/openAPIV3Schema", schema)]);
        object["spec"]["versions"][0]["selectableFields"] =
            json!([{ "jsonPath": ".spec.text" }, { "jsonPath": ".spec.text" }]);
        let twice = "spec.versions[0].selectableFields[1].jsonPath: Duplicate value: \".spec.text\"";
        assert_eq!(texts(&validate(&object, None)), [twice]);
    }

    #[test]
    fn groups_of_kubernetes_need_approval() {
        let of = |group: &str, approval: Option<&str>| {
            let mut object =
                definition(&[("/spec/group", json!(group)), ("/metadata/name", json!(format!("widgets.{group}")))]);
            if let Some(approval) = approval {
                object["metadata"]["annotations"] = json!({ APPROVAL: approval });
            }
            (validate(&object, None).len(), validate(&object, Some(&object)).len())
        };
        for group in ["k8s.io", "a.k8s.io", "a.b.kubernetes.io"] {
            assert_eq!(of(group, None), (1, 0), "{group}");
            assert_eq!(of(group, Some("why not")), (1, 0), "{group}");
            assert_eq!(of(group, Some("unapproved, an experiment")), (0, 0), "{group}");
            assert_eq!(of(group, Some("https://example.com/1")), (0, 0), "{group}");
        }
        assert_eq!(of("a.x-k8s.io", None), (0, 0));
    }

    #[test]
    fn unknown_fields_are_kept_by_schemas_only() {
        let mut object = definition(&[]);
        object["spec"]["preserveUnknownFields"] = json!(true);
        assert!(
            texts(&validate(&object, None))[0]
                .starts_with("spec.preserveUnknownFields: Invalid value: true: cannot set")
        );
    }

    #[test]
    fn the_scope_stays_once_served() {
        let mut old = definition(&[]);
        let new = definition(&[("/spec/scope", json!("Cluster"))]);
        assert!(validate(&new, Some(&old)).is_empty());
        old["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
        assert_eq!(texts(&validate(&new, Some(&old))), ["spec.scope: Invalid value: \"Cluster\": field is immutable"]);
    }
}
