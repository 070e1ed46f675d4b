//! Our definitions against the OpenAPI document that Kubernetes publishes, when its source is in Go's module cache (the conformance
//! run puts it there). k8s-openapi may follow a later release: what that adds is tolerated, what it lacks is not.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Map, Value};
use underpass_builtins::{all, definitions, reviews};

const EXTENSIONS: [&str; 5] = [
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-patch-merge-key",
];

/// What became optional or required after the oldest release that we compare with.
const SINCE_CHANGED: [(&str, &str); 2] =
    [("io.k8s.api.authentication.v1.TokenReviewSpec", "token"), ("io.k8s.api.discovery.v1.EndpointSlice", "endpoints")];

#[test]
fn definitions_are_those_of_kubernetes() {
    let Some(path) = published() else {
        println!("SKIPPED: no k8s.io/kubernetes in Go's module cache, so the definitions were compared with nothing");
        return;
    };
    let document: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let theirs = document["definitions"].as_object().unwrap();
    let names = reachable(theirs);
    assert!(names.len() > 200, "only {} definitions are reachable in {}", names.len(), path.display());
    let differences: Vec<String> = names.iter().flat_map(|name| compare(name, &theirs[*name])).collect();
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
    println!("compared {} definitions with {}", names.len(), path.display());
}

/// A list of which nothing is said would be merged in a way that nobody chose.
#[test]
fn every_list_says_how_it_is_merged() {
    // Lists of which Kubernetes itself says nothing.
    let silent = |name: &str| name.ends_with("List") || name.ends_with("version.Info");
    let missing: Vec<String> = definitions()
        .iter()
        .filter(|(name, _)| !silent(name))
        .flat_map(|(name, definition)| {
            let properties = definition["properties"].as_object().into_iter().flatten();
            let lists = properties.filter(|(_, property)| property["type"] == "array");
            let missing = lists.filter(|(_, property)| property.get("x-kubernetes-list-type").is_none());
            missing.map(move |(field, _)| format!("{name}.{field}"))
        })
        .collect();
    // The verbs of a resource in discovery, as Kubernetes publishes them.
    assert_eq!(missing, ["io.k8s.apimachinery.pkg.apis.meta.v1.APIResource.verbs"]);
}

fn published() -> Option<PathBuf> {
    let go = Command::new("go").args(["env", "GOMODCACHE"]).output().ok();
    let cache = go.and_then(|output| String::from_utf8(output.stdout).ok()).map(|text| PathBuf::from(text.trim()));
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join("go/pkg/mod")))?;
    let versions = std::fs::read_dir(cache.join("k8s.io")).ok()?.flatten().map(|entry| entry.path());
    let mut versions: Vec<PathBuf> = versions
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("kubernetes@")))
        .map(|path| path.join("api/openapi-spec/swagger.json"))
        .filter(|path| path.is_file())
        .collect();
    versions.sort();
    versions.pop()
}

fn reachable(definitions: &Map<String, Value>) -> BTreeSet<&str> {
    let meta = ["APIGroupList", "APIResourceList", "APIVersions", "DeleteOptions", "Patch", "Status", "WatchEvent"];
    let mut open: Vec<String> =
        all().iter().flat_map(|kind| [kind.definition.to_owned(), format!("{}List", kind.definition)]).collect();
    open.extend(reviews().iter().map(|review| review.definition.to_owned()));
    open.extend(meta.map(|name| format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}")));
    open.push("io.k8s.api.autoscaling.v1.Scale".to_owned());
    let mut seen = BTreeSet::new();
    while let Some(name) = open.pop() {
        let (name, definition) = definitions.get_key_value(&name).unwrap_or_else(|| panic!("Kubernetes has no {name}"));
        if seen.insert(name.as_str()) {
            references(definition, &mut open);
        }
    }
    seen
}

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(reference(value).map(str::to_owned));
            fields.values().for_each(|field| references(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

fn reference(value: &Value) -> Option<&str> {
    value.get("$ref")?.as_str()?.strip_prefix("#/definitions/")
}

fn compare(name: &str, theirs: &Value) -> Vec<String> {
    let Some(ours) = definitions().get(name) else { return vec![format!("{name}: missing")] };
    let mut found = differing(name, ours, theirs, &["type", "format", "x-kubernetes-map-type"]);
    let required = |definition: &Value| -> BTreeSet<String> {
        let required = definition["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        required.filter(|field| !SINCE_CHANGED.contains(&(name, field))).map(str::to_owned).collect()
    };
    if required(ours) != required(theirs) {
        found.push(format!("{name}: required {:?}, not {:?}", required(ours), required(theirs)));
    }
    if !names_kind(ours, theirs) {
        found.push(format!("{name}: x-kubernetes-group-version-kind"));
    }
    for (field, theirs) in theirs["properties"].as_object().into_iter().flatten() {
        let path = format!("{name}.{field}");
        match ours["properties"].get(field) {
            Some(ours) => found.extend(compare_property(&path, ours, theirs)),
            None => found.push(format!("{path}: missing")),
        }
    }
    found
}

/// Those that exist in every group name the groups of the whole cluster; ours are fewer.
fn names_kind(ours: &Value, theirs: &Value) -> bool {
    let kinds =
        |definition: &Value| definition["x-kubernetes-group-version-kind"].as_array().cloned().unwrap_or_default();
    let (ours, theirs) = (kinds(ours), kinds(theirs));
    ours.is_empty() == theirs.is_empty() && ours.iter().all(|kind| theirs.contains(kind))
}

fn compare_property(path: &str, ours: &Value, theirs: &Value) -> Vec<String> {
    let mut found = differing(path, ours, theirs, &["type", "format"]);
    found.extend(differing(path, ours, theirs, &EXTENSIONS));
    if reference(ours) != reference(theirs) {
        found.push(format!("{path}: refers to {:?}, not {:?}", reference(ours), reference(theirs)));
    }
    for below in ["items", "additionalProperties"] {
        match (ours.get(below), theirs.get(below)) {
            (Some(ours), Some(theirs)) => found.extend(compare_property(&format!("{path}.{below}"), ours, theirs)),
            (None, None) => {}
            _ => found.push(format!("{path}: {below}")),
        }
    }
    found
}

fn differing(path: &str, ours: &Value, theirs: &Value, keys: &[&str]) -> Vec<String> {
    let differing = keys.iter().filter(|key| ours.get(**key) != theirs.get(**key));
    differing.map(|key| format!("{path}: {key} is {:?}, not {:?}", ours.get(*key), theirs.get(*key))).collect()
}
