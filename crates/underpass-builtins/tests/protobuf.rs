//! Kubernetes' protobuf form: what Go's encoder writes is read as what Go's JSON encoder would have said, and what we write is read
//! back the same. `protobuf/samples.txt` holds Go's words (scripts/protobuf-table): per sample a line of base64, a line of JSON.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use proptest::prelude::*;
use serde_json::{Value, json};
use underpass_builtins::protobuf::{self, Problem};
use underpass_builtins::{all, definitions, reviews};

const SAMPLES: &str = include_str!("protobuf/samples.txt");
const MESSAGES: &str = include_str!("../src/protobuf/messages.txt");

#[test]
fn what_go_sends_is_what_go_says_in_json() {
    for (wire, said) in samples() {
        let decoded = protobuf::decode(wire).unwrap_or_else(|error| panic!("{}: {error}", said["kind"]));
        assert_eq!(decoded, *said, "{}", said["kind"]);
    }
}

#[test]
fn what_is_encoded_is_decoded_the_same() {
    for (_, said) in samples() {
        let encoded = protobuf::encode(said).unwrap_or_else(|error| panic!("{}: {error}", said["kind"]));
        assert_eq!(protobuf::decode(&encoded).unwrap(), *said, "{}", said["kind"]);
    }
}

#[test]
fn there_is_a_full_sample_of_every_kind() {
    let sampled: BTreeSet<(String, String)> =
        samples().iter().map(|(_, said)| (text(said, "apiVersion"), text(said, "kind"))).collect();
    let stored = all().iter().map(|kind| (kind.api_version(), kind.kind.to_owned()));
    let asked = reviews().iter().map(|review| (format!("{}/{}", review.group, review.version), review.kind.to_owned()));
    for (version, kind) in stored.chain(asked) {
        assert!(sampled.contains(&(version.clone(), kind.clone())), "{version} {kind}");
    }
    for kind in all() {
        let list = json!({"apiVersion": kind.api_version(), "kind": format!("{}List", kind.kind), "metadata": {}});
        assert_eq!(protobuf::decode(&protobuf::encode(&list).unwrap()).unwrap(), list);
    }
}

/// Each message has the fields of the definition that OpenAPI publishes, by the same names.
#[test]
fn fields_are_those_of_the_definitions() {
    let (mut compared, mut differences) = (0, Vec::new());
    for (name, mut fields) in messages() {
        let Some(properties) = definitions().get(&name).and_then(|definition| definition["properties"].as_object())
        else {
            continue;
        };
        let published: BTreeSet<String> = properties.keys().cloned().collect();
        let named_by_the_envelope = ["apiVersion", "kind"].map(str::to_owned);
        fields.extend(named_by_the_envelope.into_iter().filter(|field| published.contains(field)));
        if fields != published {
            differences.push(format!("{name}: {:?}", fields.symmetric_difference(&published).collect::<Vec<_>>()));
        }
        compared += 1;
    }
    assert!(compared > 200, "only {compared} messages have a definition");
    assert_eq!(differences, Vec::<String>::new());
}

#[test]
fn zeros_are_kept_where_they_mean_something() {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 0, "minReadySeconds": 0, "paused": false, "template": {"spec": {"containers": [{"name": "a"}]}}},
    });
    let decoded = protobuf::decode(&protobuf::encode(&object).unwrap()).unwrap();
    let expected = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 0, "strategy": {},
            "template": {"metadata": {}, "spec": {"containers": [{"name": "a", "resources": {}}]}},
        },
        "status": {},
    });
    assert_eq!(decoded, expected);
}

#[test]
fn unknown_fields_are_skipped() {
    let mut body =
        protobuf::encode(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})).unwrap();
    // Field 100 of the envelope, in each form.
    body.extend([0xa0, 6, 1, 0xa2, 6, 1, 7, 0xa5, 6, 1, 2, 3, 4, 0xa1, 6, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(protobuf::decode(&body).unwrap()["metadata"], json!({"name": "a"}));
}

#[test]
fn errors_say_where() {
    let wrong = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a"}, {"ports": [{"containerPort": "x"}]}]}});
    let error = protobuf::encode(&wrong).unwrap_err().to_string();
    assert_eq!(error, "spec.containers[1].ports[0].containerPort: is not an integer");

    let right = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a"}, {"name": "QQQ"}]}});
    let mut body = protobuf::encode(&right).unwrap();
    let place = body.windows(3).position(|three| three == b"QQQ").unwrap();
    body[place] = 0xff;
    assert_eq!(protobuf::decode(&body).unwrap_err().to_string(), "spec.containers[1].name: is not UTF-8");

    assert_eq!(protobuf::decode(b"{}").unwrap_err().problem, Problem::NoMagic);
    let unknown = protobuf::encode(&json!({"apiVersion": "example.com/v1", "kind": "Widget"})).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "the body is of the kind \"Widget\" of \"example.com/v1\", which has no protobuf form here"
    );
}

#[test]
fn documents_have_bounds() {
    let mut schema = json!({});
    for _ in 0..200 {
        schema = json!({"not": schema});
    }
    let version = |schema: Value| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]},
        })
    };
    assert_eq!(protobuf::encode(&version(schema)).unwrap_err().problem, Problem::TooDeep);

    // Field 2 of the spec is the list of containers; each empty item becomes a whole one.
    let containers = [0x12, 0x00].repeat(1_000_000);
    let spec = [&[0x12][..], &varint(containers.len()), &containers].concat();
    assert_eq!(protobuf::decode(&enveloped("Pod", &spec)).unwrap_err().problem, Problem::TooMany);

    let nested = (0..100).fold(Vec::new(), |inner: Vec<u8>, _| [&[0x0a][..], &varint(inner.len()), &inner].concat());
    assert!(protobuf::decode(&enveloped("Pod", &nested)).is_err());
}

#[test]
fn an_event_is_framed_by_its_length() {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}, "spec": {}, "status": {}});
    let frame = protobuf::watch_frame("ADDED", &object).unwrap();
    let (length, event) = frame.split_first_chunk().unwrap();
    assert_eq!(u32::from_be_bytes(*length) as usize, event.len());
    assert!(event.starts_with(b"\x0a\x05ADDED\x12"));
    let start = event.windows(4).position(|four| four == b"k8s\0").unwrap();
    assert_eq!(protobuf::decode(&event[start..]).unwrap(), object);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(kind in kinds(), raw in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = protobuf::decode(&raw);
        let _ = protobuf::decode(&enveloped_as(&kind.0, &kind.1, &raw));
    }

    /// Damage to good bytes reaches deeper than noise. What is still read can be written.
    #[test]
    fn damaged_samples_never_panic(sample in 0..samples().len(), place in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let mut wire = samples()[sample].0.clone();
        let place = place.index(wire.len());
        wire[place] = byte;
        if cut {
            wire.truncate(place);
        }
        if let Ok(decoded) = protobuf::decode(&wire) {
            let encoded = protobuf::encode(&decoded).unwrap();
            prop_assert_eq!(protobuf::decode(&encoded).unwrap(), decoded);
        }
    }
}

fn kinds() -> impl Strategy<Value = (String, String)> {
    prop::sample::select(
        samples().iter().map(|(_, said)| (text(said, "apiVersion"), text(said, "kind"))).collect::<Vec<_>>(),
    )
}

fn samples() -> &'static [(Vec<u8>, Value)] {
    static ALL: LazyLock<Vec<(Vec<u8>, Value)>> = LazyLock::new(|| {
        let lines: Vec<&str> = SAMPLES.lines().collect();
        lines.chunks_exact(2).map(|pair| sample(pair[0], pair[1])).collect()
    });
    &ALL
}

fn sample(wire: &str, said: &str) -> (Vec<u8>, Value) {
    let mut said = serde_json::from_str(said).expect("every second line is JSON");
    drop_nulls(&mut said);
    (BASE64.decode(wire).expect("every first line is base64"), said)
}

/// Go writes null for times and lists that are not there. Inside free JSON null means itself; there it stands in lists.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// The messages by name, with the names of their fields; those of inlined messages count as their own.
fn messages() -> Vec<(String, BTreeSet<String>)> {
    let mut messages: Vec<(String, Vec<Vec<String>>)> = Vec::new();
    for line in MESSAGES.lines() {
        match line.strip_prefix(' ') {
            Some(field) => messages
                .last_mut()
                .expect("a message comes first")
                .1
                .push(field.split(' ').map(str::to_owned).collect()),
            None => messages.push((line.to_owned(), Vec::new())),
        }
    }
    fn names(messages: &[(String, Vec<Vec<String>>)], message: &str) -> BTreeSet<String> {
        let (_, fields) = messages.iter().find(|(name, _)| name == message).expect("every message is in the table");
        let inner = |field: &Vec<String>| {
            if field[2] == "inline" { names(messages, &field[3]) } else { [field[1].clone()].into() }
        };
        fields.iter().flat_map(inner).collect()
    }
    messages.iter().map(|(name, _)| (name.clone(), names(&messages, name))).collect()
}

fn enveloped(kind: &str, raw: &[u8]) -> Vec<u8> {
    enveloped_as("v1", kind, raw)
}

fn enveloped_as(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2][..], &varint(bytes.len()), bytes].concat();
    let type_ = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &type_), field(2, raw)].concat()
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn text(object: &Value, field: &str) -> String {
    object[field].as_str().unwrap_or_default().to_owned()
}
