//! Sets of fields: their text, their operations, and which fields documents have.

mod shapes;

use serde_json::{Value, json};
use shapes::{deployment, everything, list_map, object, object_with_spec, open, text};
use underpass_merge::{FieldSet, PathElement, compare, path_text, to_field_set};
use underpass_schema::Schema;

#[allow(clippy::needless_pass_by_value, reason = "so that the tables below read well")]
fn set(fields: Value) -> FieldSet {
    FieldSet::from_fields_v1(&fields).expect("the test writes a valid set")
}

#[test]
fn a_set_is_read_and_printed() {
    let cases = [
        json!({}),
        json!({"f:a": {}, "f:b": {".": {}, "f:c": {}}, "f:d": {"f:e": {}}}),
        json!({"f:ports": {r#"k:{"containerPort":80,"protocol":"TCP"}"#: {".": {}, "f:name": {}}}}),
        json!({"f:finalizers": {r#"v:"a/b""#: {}, "v:1": {}, "v:1.5": {}, "v:true": {}}}),
        json!({"f:list": {"i:0": {}, "i:7": {"f:x": {}}}}),
        json!({"f:set": {"v:\"\\u003ca\\u0026b\\u003e\"": {}}}),
    ];
    for fields in cases {
        assert_eq!(set(fields.clone()).to_fields_v1(), fields);
    }
}

#[test]
fn a_set_is_read_as_kubernetes_reads_it() {
    assert_eq!(set(json!({".": {}})), FieldSet::new(), "nobody owns the whole object");
    assert_eq!(set(json!({"f:a": {".": {}}})), set(json!({"f:a": {}})), "both say that the field is owned");
    assert_eq!(set(json!({"f:a": {}, "x:new": {"f:b": {}}})), set(json!({"f:a": {}})), "unknown kinds are skipped");
    assert_eq!(set(json!({r#"k:{"b":1,"a":2}"#: {}})), set(json!({r#"k:{"a":2,"b":1}"#: {}})), "keys are sorted");
    for (bad, message) in [
        (json!([]), r#"the fields below "." are not an object"#),
        (json!({"f:a": 1}), r#"the fields below "f:a" are not an object"#),
        (json!({"a": {}}), r#""a" does not name a field: it has no kind"#),
        (json!({"éa": {}}), r#""éa" does not name a field: it has no kind"#),
        (json!({"i:x": {}}), r#""i:x" does not name a list position"#),
        (json!({"k:[]": {}}), r#""k:[]" does not name a list item"#),
        (json!({"v:{": {}}), r#""v:{" holds no JSON value"#),
    ] {
        assert_eq!(FieldSet::from_fields_v1(&bad).unwrap_err().to_string(), message);
    }
}

#[test]
fn the_operations_go_path_by_path() {
    let a = || set(json!({"f:x": {".": {}, "f:y": {}}, "f:z": {}}));
    let b = || set(json!({"f:x": {"f:y": {}, "f:w": {}}}));
    let only_x = set(json!({"f:x": {}}));
    assert_eq!(a().union(b()), set(json!({"f:x": {".": {}, "f:y": {}, "f:w": {}}, "f:z": {}})));
    assert_eq!(a().intersection(&b()), set(json!({"f:x": {"f:y": {}}})));
    assert!(a().intersects(&b()) && !b().intersects(&only_x));
    assert_eq!(a().difference(&b()), set(json!({"f:x": {}, "f:z": {}})));
    assert_eq!(b().difference(&only_x), b(), "what is below a field is not the field");
    assert_eq!(b().recursive_difference(&only_x), FieldSet::new());
    assert_eq!(a().leaves(), set(json!({"f:x": {"f:y": {}}, "f:z": {}})));
    let field = |name: &str| PathElement::Field(name.to_owned());
    assert!(a().has(&[field("x"), field("y")]) && !b().has(&[field("x")]) && !a().has(&[]));
    let mut built = FieldSet::new();
    built.insert(&[field("x"), field("y")]);
    built.insert(&[field("x")]);
    built.insert(&[]);
    assert_eq!(built, set(json!({"f:x": {".": {}, "f:y": {}}})));
}

#[test]
fn paths_are_listed_with_containers_first_and_read_well() {
    let fields = set(json!({
        "f:a": {"f:b": {}},
        "f:p": {r#"k:{"containerPort":80,"protocol":"TCP"}"#: {".": {}, "f:n": {}}, "v:\"x\"": {}, "i:3": {}},
        "f:z": {},
    }));
    let mut paths = Vec::new();
    fields.for_each(|path| paths.push(path_text(path)));
    let key = r#".p[containerPort=80,protocol="TCP"]"#;
    assert_eq!(paths, [".z", ".a.b", key, r#".p[="x"]"#, ".p[3]", &format!("{key}.n")]);
}

#[test]
fn an_applied_document_owns_leaves_items_and_map_entries() {
    let cases = [
        ("scalars", json!({"number": 1, "text": null}), json!({"f:number": {}, "f:text": {}})),
        ("maps by entry", json!({"map": {"a": "1"}}), json!({"f:map": {"f:a": {}}})),
        ("empty maps", json!({"map": {}}), json!({"f:map": {}})),
        ("sets by value", json!({"set": ["a", "b"]}), json!({"f:set": {"v:\"a\"": {}, "v:\"b\"": {}}})),
        ("an empty list is nobody's", json!({"set": [], "items": []}), Value::Null),
        (
            "list items by key",
            json!({"items": [{"name": "a", "value": 1}]}),
            json!({"f:items": {r#"k:{"name":"a"}"#: {".": {}, "f:name": {}, "f:value": {}}}}),
        ),
        (
            "atomic ones whole",
            json!({"atomicList": ["a"], "atomicMap": {"a": "1"}}),
            json!({"f:atomicList": {}, "f:atomicMap": {}}),
        ),
        (
            "untyped maps by field, their lists whole",
            json!({"open": {"a": {"b": [1], "c": {}}}}),
            json!({"f:open": {"f:a": {".": {}, "f:b": {}, "f:c": {}}}}),
        ),
        (
            "duplicates together",
            json!({"items": [{"name": "a", "value": 1}, {"name": "a"}]}),
            json!({"f:items": {r#"k:{"name":"a"}"#: {}}}),
        ),
    ];
    for (name, spec, expected) in cases {
        let fields = to_field_set(&everything(), &json!({"spec": spec})).to_fields_v1();
        assert_eq!(fields["f:spec"], expected, "{name}");
    }
}

#[test]
fn metadata_is_known_to_every_kind() {
    let metadata = json!({
        "labels": {"a": "1"}, "finalizers": ["f"], "ownerReferences": [{"uid": "u", "name": "n"}],
    });
    let expected = json!({"f:metadata": {
        "f:labels": {"f:a": {}},
        "f:finalizers": {"v:\"f\"": {}},
        "f:ownerReferences": {r#"k:{"uid":"u"}"#: {}},
    }});
    for schema in [Schema::default(), everything()] {
        assert_eq!(to_field_set(&schema, &json!({"metadata": metadata})).to_fields_v1(), expected);
    }
    let embedded = object([("template", Schema { embedded_resource: true, ..open() })]);
    let fields = to_field_set(&embedded, &json!({"template": {"metadata": metadata}})).to_fields_v1();
    assert_eq!(fields, json!({"f:template": expected}));
}

#[test]
fn a_missing_key_takes_its_default() {
    let ports = json!([{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]);
    let object = json!({"spec": {"template": {"spec": {"containers": [{"name": "a", "ports": ports}]}}}});
    let fields = to_field_set(&deployment(), &object).to_fields_v1();
    let ports = &fields["f:spec"]["f:template"]["f:spec"]["f:containers"][r#"k:{"name":"a"}"#]["f:ports"];
    let names: Vec<_> = ports.as_object().unwrap().keys().collect();
    assert_eq!(names, [r#"k:{"containerPort":80,"protocol":"TCP"}"#, r#"k:{"containerPort":80,"protocol":"UDP"}"#]);
    let two_keys = object_schema(list_map(&["a", "b"], shapes::object([("a", text()), ("b", text())])));
    let fields = to_field_set(&two_keys, &json!({"list": [{"a": "x"}]})).to_fields_v1();
    assert_eq!(
        fields,
        json!({"f:list": {r#"k:{"a":"x"}"#: {".": {}, "f:a": {}}}}),
        "one without a default is left out"
    );
}

fn object_schema(list: Schema) -> Schema {
    object([("list", list)])
}

#[test]
fn a_comparison_says_what_came_changed_and_went() {
    let none = json!({});
    let cases = [
        ("nothing", json!({"set": ["a"]}), json!({"set": ["a"]}), [none.clone(), none.clone(), none.clone()]),
        ("a scalar", json!({"number": 1}), json!({"number": 2}), [none.clone(), json!({"f:number": {}}), none.clone()]),
        ("worth the same", json!({"number": 1}), json!({"number": 1.0}), [none.clone(), none.clone(), none.clone()]),
        (
            "a whole map comes",
            json!({}),
            json!({"map": {"a": "1"}}),
            [json!({"f:map": {".": {}, "f:a": {}}}), none.clone(), none.clone()],
        ),
        (
            "a map entry goes",
            json!({"map": {"a": "1", "b": "2"}}),
            json!({"map": {"b": "2"}}),
            [none.clone(), none.clone(), json!({"f:map": {"f:a": {}}})],
        ),
        (
            "the last map entry goes",
            json!({"map": {"a": "1"}}),
            json!({"map": {}}),
            [none.clone(), none.clone(), json!({"f:map": {"f:a": {}}})],
        ),
        (
            "null and empty differ",
            json!({"map": {}}),
            json!({"map": null}),
            [none.clone(), json!({"f:map": {}}), none.clone()],
        ),
        (
            "set items",
            json!({"set": ["a", "b"]}),
            json!({"set": ["c", "b"]}),
            [json!({"f:set": {"v:\"c\"": {}}}), none.clone(), json!({"f:set": {"v:\"a\"": {}}})],
        ),
        (
            "the order of items is nobody's",
            json!({"set": ["a", "b"]}),
            json!({"set": ["b", "a"]}),
            [none.clone(), none.clone(), none.clone()],
        ),
        (
            "list items",
            json!({"items": [{"name": "a", "value": 1}, {"name": "b"}]}),
            json!({"items": [{"name": "a", "value": 2}, {"name": "c"}]}),
            [
                json!({"f:items": {r#"k:{"name":"c"}"#: {".": {}, "f:name": {}}}}),
                json!({"f:items": {r#"k:{"name":"a"}"#: {"f:value": {}}}}),
                json!({"f:items": {r#"k:{"name":"b"}"#: {".": {}, "f:name": {}}}}),
            ],
        ),
        (
            "an atomic list",
            json!({"atomicList": ["a"]}),
            json!({"atomicList": ["b"]}),
            [none.clone(), json!({"f:atomicList": {}}), none.clone()],
        ),
        (
            "another type",
            json!({"open": {"a": {"b": 1}}}),
            json!({"open": {"a": [1]}}),
            [none.clone(), json!({"f:open": {"f:a": {}}}), json!({"f:open": {"f:a": {"f:b": {}}}})],
        ),
        (
            "duplicates come",
            json!({"items": [{"name": "a"}]}),
            json!({"items": [{"name": "a"}, {"name": "a"}]}),
            [
                json!({"f:items": {r#"k:{"name":"a"}"#: {}}}),
                none.clone(),
                json!({"f:items": {r#"k:{"name":"a"}"#: {".": {}, "f:name": {}}}}),
            ],
        ),
    ];
    for (name, old, new, expected) in cases {
        let comparison = compare(&everything(), &object_with_spec(&old), &object_with_spec(&new));
        let sets = [comparison.added, comparison.modified, comparison.removed];
        let below_spec = |set: FieldSet| set.to_fields_v1().get("f:spec").cloned().unwrap_or_else(|| json!({}));
        assert_eq!(sets.map(below_spec), expected, "{name}");
    }
}
