//! Every good manifest passes, every bad one is refused where and because it says (`testdata/README.md` has the format).

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::{Value, json};
use underpass_resources::crds;
use underpass_schema::{Path as FieldPath, Schema, Validator};

/// One validator per `apiVersion` and `kind`.
static VALIDATORS: LazyLock<BTreeMap<(String, String), Validator>> = LazyLock::new(|| {
    let validator =
        |crd: k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition| {
            let version = &crd.spec.versions[0];
            let schema =
                serde_json::to_value(version.schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap()).unwrap();
            let schema = Schema::parse(&schema, &FieldPath::root()).unwrap();
            let structural = schema.check_structural(&FieldPath::root());
            assert!(structural.is_empty(), "{}: {structural:?}", crd.spec.names.kind);
            ((format!("{}/{}", crd.spec.group, version.name), crd.spec.names.kind), Validator::new(schema))
        };
    crds().into_iter().map(validator).collect()
});

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(folder: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    assert!(!files.is_empty(), "{folder} has no manifests");
    files
}

fn documents(path: &Path) -> Vec<Value> {
    serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn validator(document: &Value) -> Option<&'static Validator> {
    let text = |field: &str| document[field].as_str().unwrap_or_default().to_owned();
    VALIDATORS.get(&(text("apiVersion"), text("kind")))
}

/// What an API server does with a write under strict field validation: the object to store, and everything that is wrong with it as
/// (path, message).
fn admit(document: &Value, old: Option<&Value>) -> (Value, Vec<(String, String)>) {
    let validator = validator(document).expect("one of our kinds");
    let mut object = document.clone();
    let unknown = validator.schema().prune_object(&mut object);
    validator.schema().default_into(&mut object);
    let errors = match old {
        Some(old) => validator.validate_update(&object, old),
        None => validator.validate(&object),
    };
    let unknown = unknown.into_iter().map(|path| (path, "unknown field".to_owned()));
    let errors = errors.into_iter().map(|error| (error.path.to_string(), error.message()));
    (object, unknown.chain(errors).collect())
}

fn assert_accepted(document: &Value, path: &Path) {
    let (_, errors) = admit(document, None);
    assert!(errors.is_empty(), "{}: {errors:#?}", path.display());
}

#[test]
fn examples_are_accepted_and_cover_every_kind() {
    let mut kinds = std::collections::BTreeSet::new();
    for path in files("examples") {
        // An example brings the namespace it lives in, so that it can be applied as it is.
        for document in documents(&path).into_iter().filter(|document| document["kind"] != "Namespace") {
            assert_accepted(&document, &path);
            kinds.insert(document["kind"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(kinds.len(), crds().len(), "{kinds:?}");
}

#[test]
fn rust_reads_and_writes_what_the_schemas_admit() {
    for path in files("examples").into_iter().chain(files("testdata/seeds")).filter(|path| !is_patch(path)) {
        for document in documents(&path).into_iter().filter(|document| validator(document).is_some()) {
            let (admitted, _) = admit(&document, None);
            assert_eq!(through_rust(&admitted), admitted, "{}", path.display());
        }
    }
}

fn through_rust(object: &Value) -> Value {
    macro_rules! through {
        ($($kind:ident),*) => {
            match object["kind"].as_str().unwrap() {
                $(stringify!($kind) => {
                    let typed: underpass_resources::$kind = serde_json::from_value(object.clone()).unwrap();
                    serde_json::to_value(typed).unwrap()
                })*
                other => panic!("{other} is not ours"),
            }
        };
    }
    through!(
        ContainerNetwork,
        ContainerNetworkTunnelProxy,
        DHCPServer,
        DNSServer,
        EgressGateway,
        GatewayClient,
        Infra,
        InterceptRequest,
        ProxyServer,
        Workstation
    )
}

#[test]
fn manifests_of_the_seeds_are_accepted_as_printed() {
    let mut ours = 0;
    for path in files("testdata/seeds") {
        for document in documents(&path).into_iter().filter(|document| document.get("apiVersion").is_some()) {
            if validator(&document).is_some() && !is_patch(&path) {
                assert_accepted(&document, &path);
                ours += 1;
            }
        }
    }
    assert_eq!(ours, 2);
}

#[test]
fn fragments_of_the_seeds_are_accepted_on_top_of_the_sample() {
    let sample = &documents(&root().join("testdata/seeds/004-proxyserver.yaml"))[0];
    for path in files("testdata/seeds").into_iter().filter(|path| is_patch(path)) {
        let mut patched = sample.clone();
        merge(&mut patched, &documents(&path)[0]);
        // The seed shows its conditions without the time, which an API server demands.
        for condition in patched.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten() {
            condition["lastTransitionTime"] = "2026-01-01T00:00:00Z".into();
        }
        assert_accepted(&patched, &path);
    }
}

#[test]
fn the_longest_lists_are_accepted() {
    let sample = &documents(&root().join("testdata/seeds/004-proxyserver.yaml"))[0];
    for count in [50, 256] {
        let mut long = sample.clone();
        let backend = |index: usize| {
            let mut backend = sample["spec"]["backends"][0].clone();
            backend["name"] = format!("backend-{index}").into();
            backend["hostname"] = format!("api.cluster-{index}.example.com").into();
            backend
        };
        long["spec"]["backends"] = (0..count).map(backend).collect();
        assert_accepted(&long, Path::new("a long ProxyServer"));
    }
}

#[test]
fn bad_manifests_are_refused_with_path_and_reason() {
    let paths = files("testdata/bad");
    assert!(paths.len() >= 60);
    let failures: Vec<String> = paths.iter().filter_map(|path| check_bad(path).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// They are a set: whoever writes them down in another order changes nothing.
#[test]
fn aliases_may_stand_in_another_order() {
    let proxy = |aliases: [&str; 3]| {
        json!({
            "apiVersion": "underpass.dev/v1alpha1", "kind": "ContainerNetworkTunnelProxy", "metadata": { "name": "p" },
            "spec": { "containerNetworkName": "n", "aliases": aliases },
        })
    };
    let (old, errors) = admit(&proxy(["a", "b", "c"]), None);
    assert_eq!(errors, []);
    assert_eq!(admit(&proxy(["c", "a", "b"]), Some(&old)).1, []);
    assert_ne!(admit(&proxy(["c", "a", "other"]), Some(&old)).1, [], "other names are another thing");
}

fn check_bad(path: &Path) -> Result<(), String> {
    let name = path.file_name().unwrap().to_string_lossy();
    let documents = documents(path);
    let errors = match documents.as_slice() {
        [only] => admit(only, None).1,
        [before, after] => {
            let (old, errors) = admit(before, None);
            if !errors.is_empty() {
                return Err(format!("{name}: the first document is refused: {errors:?}"));
            }
            admit(after, Some(&old)).1
        }
        _ => return Err(format!("{name}: neither one document nor two")),
    };
    let expected = expectations(path);
    if expected.is_empty() {
        return Err(format!("{name}: expects nothing"));
    }
    for (field, reason) in expected {
        if !errors.iter().any(|(path, message)| *path == field && message.contains(&reason)) {
            return Err(format!("{name}: expected {field}: {reason}, got {errors:?}"));
        }
    }
    Ok(())
}

fn expectations(path: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("# expect: "));
    lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(field, reason)| (field.to_owned(), reason.to_owned()))
        .collect()
}

fn is_patch(path: &Path) -> bool {
    path.to_string_lossy().ends_with(".patch.yaml")
}

/// A JSON merge patch without removals, which the fragments do not have.
fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}
