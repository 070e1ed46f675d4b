//! Which resources are served: Kubernetes' own kinds and whatever CustomResourceDefinitions are established right now.
//!
//! A `Registry` is immutable; a change of a definition makes a new one that is swapped in whole, so that a request sees one
//! consistent set from its first step to its last.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock, OnceLock};

use serde_json::Value;
use underpass_builtins::Builtin;
use underpass_schema::{AdditionalProperties, Path, Schema, Type, Validator};

use crate::jsonpath::JsonPath;
use crate::object;
use crate::status::Subject;

/// One resource in one version, as requests name it.
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) status: bool,
    pub(crate) scale: Option<Scale>,
    /// Where its objects are stored; shared by all versions of a resource.
    pub(crate) bucket: Arc<str>,
    pub(crate) origin: Origin,
}

pub(crate) enum Origin {
    Builtin(&'static Builtin),
    Custom(Box<Custom>),
}

/// A revision that becomes known only when nobody writes by the old schema any more; until then it is the largest number.
pub(crate) type Since = Arc<AtomicU64>;

/// One version of a CustomResourceDefinition.
pub(crate) struct Custom {
    pub(crate) schema: Arc<Schema>,
    /// Compiled when the first object is written: most kinds of most definitions are never used.
    validator: OnceLock<Validator>,
    /// The schema as it was written, for OpenAPI; `None` where the version has none that may be published.
    pub(crate) published: Option<Value>,
    pub(crate) storage_version: String,
    /// The schema of the stored version, where that is another one: nothing is stored that it does not declare.
    pub(crate) storage_schema: Option<Schema>,
    pub(crate) columns: Vec<PrinterColumn>,
    pub(crate) selectable_fields: Vec<JsonPath>,
    pub(crate) deprecated: Option<String>,
    /// The definition is being deleted: nothing new may be created.
    pub(crate) terminating: bool,
    /// Objects written after this revision already have the defaults of this schema; older ones get them when read.
    pub(crate) since: Since,
}

pub(crate) struct PrinterColumn {
    pub(crate) name: String,
    pub(crate) type_: String,
    pub(crate) format: String,
    pub(crate) description: String,
    pub(crate) priority: i64,
    pub(crate) path: JsonPath,
}

/// Where a resource keeps what `/scale` shows.
pub(crate) struct Scale {
    pub(crate) spec_replicas: JsonPath,
    pub(crate) status_replicas: JsonPath,
    pub(crate) selector: Option<JsonPath>,
}

#[derive(Default)]
pub(crate) struct Registry {
    /// (group, version, plural) -> resource
    resources: BTreeMap<(String, String, String), Arc<Resource>>,
    /// group -> versions, best first
    groups: BTreeMap<String, Vec<String>>,
    /// Changes with every registry, so that caches of discovery and OpenAPI know when they are old.
    pub(crate) generation: u64,
}

impl Registry {
    /// Kubernetes' own kinds and the given resources of established definitions.
    pub(crate) fn build(custom: impl IntoIterator<Item = Arc<Resource>>, generation: u64) -> Self {
        static OWN: LazyLock<Vec<Arc<Resource>>> =
            LazyLock::new(|| underpass_builtins::all().iter().map(|b| Arc::new(Resource::from_builtin(b))).collect());
        let mut registry = Self { generation, ..Self::default() };
        for resource in OWN.iter().cloned().chain(custom) {
            registry.add(resource);
        }
        for versions in registry.groups.values_mut() {
            versions.sort_by_key(|v| std::cmp::Reverse(version_priority(v)));
            versions.dedup();
        }
        registry
    }

    fn add(&mut self, resource: Arc<Resource>) {
        self.groups.entry(resource.group.clone()).or_default().push(resource.version.clone());
        let key = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
        self.resources.insert(key, resource);
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.resources.get(&(group.to_owned(), version.to_owned(), plural.to_owned())).cloned()
    }

    /// The resource that an owner reference names.
    pub(crate) fn find_kind(&self, api_version: &str, kind: &str) -> Option<Arc<Resource>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.resources.values().find(|r| r.group == group && r.version == version && r.kind == kind).cloned()
    }

    /// Group names with their versions, best first; the core group is "".
    pub(crate) fn groups(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.groups.iter().map(|(group, versions)| (group.as_str(), versions.as_slice()))
    }

    pub(crate) fn versions(&self, group: &str) -> &[String] {
        self.groups.get(group).map_or(&[], Vec::as_slice)
    }

    /// The resources of one group and version, by plural.
    pub(crate) fn resources_of(&self, group: &str, version: &str) -> impl Iterator<Item = &Arc<Resource>> {
        let from = (group.to_owned(), version.to_owned(), String::new());
        let wanted = (group.to_owned(), version.to_owned());
        self.resources
            .range(from..)
            .take_while(move |((g, v, _), _)| (g, v) == (&wanted.0, &wanted.1))
            .map(|(_, resource)| resource)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }

    /// One resource per bucket: what has to be emptied or counted, whatever its versions.
    pub(crate) fn buckets(&self) -> BTreeMap<Arc<str>, Arc<Resource>> {
        self.resources.values().map(|r| (r.bucket.clone(), r.clone())).collect()
    }
}

impl Resource {
    fn from_builtin(builtin: &'static Builtin) -> Self {
        let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        Self {
            group: builtin.group.to_owned(),
            version: builtin.version.to_owned(),
            kind: builtin.kind.to_owned(),
            list_kind: format!("{}List", builtin.kind),
            plural: builtin.plural.to_owned(),
            singular: builtin.singular.to_owned(),
            short_names: owned(builtin.short_names),
            categories: owned(builtin.categories),
            namespaced: builtin.namespaced,
            status: builtin.status,
            scale: builtin.scale.then(Scale::of_workloads),
            bucket: builtin.bucket.into(),
            origin: Origin::Builtin(builtin),
        }
    }

    /// The served versions of a definition. Objects written after `since` have the defaults of its schemas.
    pub(crate) fn from_definition(definition: &Value, since: &Since) -> Vec<Arc<Self>> {
        let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
        let served = versions.into_iter().flatten().filter(|v| v["served"].as_bool() == Some(true));
        served.map(|version| Arc::new(Self::from_version(definition, version, since))).collect()
    }

    fn from_version(definition: &Value, version: &Value, since: &Since) -> Self {
        let names = if definition.pointer("/status/acceptedNames/plural").is_some_and(|p| p != "") {
            &definition["status"]["acceptedNames"]
        } else {
            &definition["spec"]["names"]
        };
        let group = object::text(definition, "/spec/group");
        let plural = object::text(names, "/plural");
        Self {
            group: group.to_owned(),
            version: object::text(version, "/name").to_owned(),
            kind: object::text(names, "/kind").to_owned(),
            list_kind: object::text(names, "/listKind").to_owned(),
            plural: plural.to_owned(),
            singular: object::text(names, "/singular").to_owned(),
            short_names: owned(object::strings(names, "/shortNames")),
            categories: owned(object::strings(names, "/categories")),
            namespaced: object::text(definition, "/spec/scope") == "Namespaced",
            status: version.pointer("/subresources/status").is_some_and(|s| !s.is_null()),
            scale: version.pointer("/subresources/scale").filter(|s| !s.is_null()).map(Scale::from_subresource),
            bucket: format!("{plural}.{group}").into(),
            origin: Origin::Custom(Box::new(Custom::new(definition, version, since))),
        }
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// For sentences about one object: `configmaps "a"`.
    pub(crate) fn subject(&self, name: &str) -> Subject {
        Subject { group: self.group.clone(), kind: self.plural.clone(), name: name.to_owned() }
    }

    /// For validation errors, which name the kind: `ConfigMap "a" is invalid`.
    pub(crate) fn kind_subject(&self, name: &str) -> Subject {
        Subject { group: self.group.clone(), kind: self.kind.clone(), name: name.to_owned() }
    }

    pub(crate) fn schema(&self) -> &Schema {
        match &self.origin {
            Origin::Builtin(builtin) => builtin.schema(),
            Origin::Custom(custom) => &custom.schema,
        }
    }

    pub(crate) fn custom(&self) -> Option<&Custom> {
        match &self.origin {
            Origin::Builtin(_) => None,
            Origin::Custom(custom) => Some(custom),
        }
    }

    /// The `apiVersion` that stored objects have.
    pub(crate) fn storage_version(&self) -> &str {
        self.custom().map_or(&self.version, |custom| &custom.storage_version)
    }

    pub(crate) fn is(&self, group: &str, kind: &str) -> bool {
        self.group == group && self.kind == kind
    }

    /// Key prefix of the objects of a namespace; everything where `namespace` is empty.
    pub(crate) fn prefix(&self, namespace: &str) -> String {
        if self.namespaced && !namespace.is_empty() { format!("{namespace}/") } else { String::new() }
    }
}

impl Custom {
    fn new(definition: &Value, version: &Value, since: &Since) -> Self {
        let text = |v: &Value, f: &str| v[f].as_str().unwrap_or_default().to_owned();
        let versions = definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
        let storage = versions.into_iter().find(|v| v["storage"] == true);
        let other_storage = storage.filter(|storage| storage["name"] != version["name"]);
        let columns = version["additionalPrinterColumns"].as_array().into_iter().flatten();
        let fields = version["selectableFields"].as_array().into_iter().flatten();
        let deprecated = (version["deprecated"] == true).then(|| match version["deprecationWarning"].as_str() {
            Some(warning) => warning.to_owned(),
            None => deprecation(definition, version),
        });
        Self {
            schema: Arc::new(schema_of(definition, version)),
            validator: OnceLock::new(),
            published: version.pointer("/schema/openAPIV3Schema").cloned(),
            storage_version: storage.map(|v| text(v, "name")).unwrap_or_default(),
            storage_schema: other_storage.map(|storage| schema_of(definition, storage)),
            columns: columns.filter_map(PrinterColumn::from_json).collect(),
            selectable_fields: fields.filter_map(|f| JsonPath::parse(f["jsonPath"].as_str()?).ok()).collect(),
            deprecated,
            terminating: object::is_being_deleted(definition),
            since: since.clone(),
        }
    }
}

impl Custom {
    pub(crate) fn validator(&self) -> &Validator {
        self.validator.get_or_init(|| Validator::new(self.schema.clone()))
    }
}

/// Points to the best version that is served and not deprecated, if it is better than this one.
fn deprecation(definition: &Value, version: &Value) -> String {
    let named = |version: &Value| {
        let [group, kind] = ["/spec/group", "/spec/names/kind"].map(|field| object::text(definition, field));
        format!("{group}/{} {kind}", object::text(version, "/name"))
    };
    let priority = |version: &Value| version_priority(object::text(version, "/name"));
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
    let good = versions.filter(|v| v["served"] == true && v["deprecated"] != true);
    match good.max_by_key(|v| priority(v)).filter(|v| priority(v) > priority(version)) {
        Some(better) => format!("{} is deprecated; use {}", named(version), named(better)),
        None => format!("{} is deprecated", named(version)),
    }
}

impl PrinterColumn {
    fn from_json(column: &Value) -> Option<Self> {
        let text = |f: &str| column[f].as_str().unwrap_or_default().to_owned();
        Some(Self {
            name: text("name"),
            type_: text("type"),
            format: text("format"),
            description: text("description"),
            priority: column["priority"].as_i64().unwrap_or(0),
            path: JsonPath::parse(column["jsonPath"].as_str()?).ok()?,
        })
    }
}

impl Scale {
    fn of_workloads() -> Self {
        let path = |p| JsonPath::parse(p).expect("a constant path");
        Self { spec_replicas: path(".spec.replicas"), status_replicas: path(".status.replicas"), selector: None }
    }

    fn from_subresource(scale: &Value) -> Self {
        let path = |f: &str| scale[f].as_str().and_then(|p| JsonPath::parse(p).ok());
        let workload = Self::of_workloads();
        Self {
            spec_replicas: path("specReplicasPath").unwrap_or(workload.spec_replicas),
            status_replicas: path("statusReplicasPath").unwrap_or(workload.status_replicas),
            selector: path("labelSelectorPath"),
        }
    }
}

/// The schema of one version of a definition; a version without one takes anything.
fn schema_of(definition: &Value, version: &Value) -> Schema {
    let written = version.pointer("/schema/openAPIV3Schema");
    let mut schema = written
        .and_then(|json| Schema::parse(json, &Path::root()).ok())
        .unwrap_or_else(|| Schema { preserve_unknown_fields: true, ..Schema::default() });
    if definition.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true)) {
        schema.preserve_unknown_fields = true;
    }
    add_object_fields(&mut schema);
    add_embedded_metadata(&mut schema);
    schema
}

/// Every object has these, whether its definition says so or not; owners of fields need their shape.
fn add_object_fields(schema: &mut Schema) {
    let text = || Schema { type_: Some(Type::String), ..Schema::default() };
    schema.type_ = Some(Type::Object);
    schema.properties.entry("apiVersion".to_owned()).or_insert_with(text);
    schema.properties.entry("kind".to_owned()).or_insert_with(text);
    let declared = schema.properties.remove("metadata").unwrap_or_default();
    let mut metadata = object_metadata().clone();
    // A definition may narrow the name, nothing else.
    for (name, narrowed) in declared.properties {
        metadata.properties.insert(name, narrowed);
    }
    schema.properties.insert("metadata".to_owned(), metadata);
}

fn add_embedded_metadata(schema: &mut Schema) {
    if schema.embedded_resource {
        add_object_fields(schema);
    }
    let additional = match &mut schema.additional_properties {
        Some(AdditionalProperties::Schema(values)) => Some(values.as_mut()),
        _ => None,
    };
    for below in schema.properties.values_mut().chain(schema.items.as_deref_mut()).chain(additional) {
        add_embedded_metadata(below);
    }
}

/// The schema of ObjectMeta, which all of Kubernetes' kinds share.
pub(crate) fn object_metadata() -> &'static Schema {
    let any = underpass_builtins::all().iter().find(|b| b.kind == "ConfigMap").expect("ConfigMap is served");
    &any.schema().properties["metadata"]
}

fn owned(list: Vec<&str>) -> Vec<String> {
    list.into_iter().map(str::to_owned).collect()
}

/// Kubernetes' order of versions: v2 before v1 before v1beta2 before v1beta1 before v1alpha1 before anything else by name.
fn version_priority(version: &str) -> (u8, u64, u64, String) {
    let parsed = || {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major: u64 = rest[..digits].parse().ok()?;
        let (stage, minor) = match &rest[digits..] {
            "" => (3, "0"),
            tail => tail.strip_prefix("beta").map(|m| (2, m)).or(tail.strip_prefix("alpha").map(|m| (1, m)))?,
        };
        Some((stage, major, minor.parse().ok()?))
    };
    match parsed() {
        Some((stage, major, minor)) => (stage, major, minor, String::new()),
        None => (0, 0, 0, version.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_stand_in_the_order_of_kubernetes() {
        let mut versions = ["v1alpha1", "v10beta3", "v1", "foo1", "v2", "v1beta1", "v11alpha2"];
        versions.sort_by_key(|v| std::cmp::Reverse(version_priority(v)));
        assert_eq!(versions, ["v2", "v1", "v10beta3", "v1beta1", "v11alpha2", "v1alpha1", "foo1"]);
    }
}
