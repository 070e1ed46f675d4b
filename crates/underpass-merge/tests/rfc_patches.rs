//! JSON Patch and JSON Merge Patch: the examples of RFC 6902 and RFC 7386, and this server's limits.

use serde_json::{Value, json};
use underpass_merge::{JsonPatchError, MAX_OPERATIONS, json_patch, merge_patch};

#[test]
fn json_patch_does_what_the_examples_of_rfc_6902_say() {
    let cases = [
        (
            "A.1",
            json!({"foo": "bar"}),
            json!([{"op": "add", "path": "/baz", "value": "qux"}]),
            json!({"baz": "qux", "foo": "bar"}),
        ),
        (
            "A.2",
            json!({"foo": ["bar", "baz"]}),
            json!([{"op": "add", "path": "/foo/1", "value": "qux"}]),
            json!({"foo": ["bar", "qux", "baz"]}),
        ),
        ("A.3", json!({"baz": "qux", "foo": "bar"}), json!([{"op": "remove", "path": "/baz"}]), json!({"foo": "bar"})),
        (
            "A.4",
            json!({"foo": ["bar", "qux", "baz"]}),
            json!([{"op": "remove", "path": "/foo/1"}]),
            json!({"foo": ["bar", "baz"]}),
        ),
        (
            "A.5",
            json!({"baz": "qux", "foo": "bar"}),
            json!([{"op": "replace", "path": "/baz", "value": "boo"}]),
            json!({"baz": "boo", "foo": "bar"}),
        ),
        (
            "A.6",
            json!({"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}}),
            json!([{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}]),
            json!({"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}}),
        ),
        (
            "A.7",
            json!({"foo": ["all", "grass", "cows", "eat"]}),
            json!([{"op": "move", "from": "/foo/1", "path": "/foo/3"}]),
            json!({"foo": ["all", "cows", "eat", "grass"]}),
        ),
        (
            "A.8",
            json!({"baz": "qux", "foo": ["a", 2, "c"]}),
            json!([{"op": "test", "path": "/baz", "value": "qux"}, {"op": "test", "path": "/foo/1", "value": 2}]),
            json!({"baz": "qux", "foo": ["a", 2, "c"]}),
        ),
        (
            "A.10",
            json!({"foo": "bar"}),
            json!([{"op": "add", "path": "/child", "value": {"grandchild": {}}}]),
            json!({"foo": "bar", "child": {"grandchild": {}}}),
        ),
        (
            "A.11",
            json!({"foo": "bar"}),
            json!([{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}]),
            json!({"foo": "bar", "baz": "qux"}),
        ),
        (
            "A.14",
            json!({"/": 9, "~1": 10}),
            json!([{"op": "test", "path": "/~01", "value": 10}]),
            json!({"/": 9, "~1": 10}),
        ),
        (
            "A.16",
            json!({"foo": ["bar"]}),
            json!([{"op": "add", "path": "/foo/-", "value": ["abc", "def"]}]),
            json!({"foo": ["bar", ["abc", "def"]]}),
        ),
        (
            "copy",
            json!({"a": {"b": 1}}),
            json!([{"op": "copy", "from": "/a", "path": "/c"}]),
            json!({"a": {"b": 1}, "c": {"b": 1}}),
        ),
    ];
    for (name, document, patch, expected) in cases {
        assert_eq!(json_patch(document, &patch).unwrap(), expected, "{name}");
    }
}

#[test]
fn json_patch_names_the_operation_that_failed() {
    let fine = json!({"op": "add", "path": "/a", "value": 1});
    let cases = [
        (
            "A.9",
            json!({"op": "test", "path": "/baz", "value": "bar"}),
            "operation 1 of the JSON patch (test /baz) failed: the value there is another one",
        ),
        (
            "A.12",
            json!({"op": "add", "path": "/missing/bat", "value": "qux"}),
            "operation 1 of the JSON patch (add /missing/bat) failed: there is no such path in the document",
        ),
        (
            "A.15",
            json!({"op": "test", "path": "/~01", "value": "10"}),
            "operation 1 of the JSON patch (test /~01) failed: the value there is another one",
        ),
        (
            "nothing to remove",
            json!({"op": "remove", "path": "/missing"}),
            "operation 1 of the JSON patch (remove /missing) failed: there is no such path in the document",
        ),
        (
            "nothing to copy",
            json!({"op": "copy", "from": "/missing/x", "path": "/b"}),
            "operation 1 of the JSON patch (copy /b) failed: there is nothing at the path in \"from\"",
        ),
        (
            "into itself",
            json!({"op": "move", "from": "/o", "path": "/o/x"}),
            "operation 1 of the JSON patch (move /o/x) failed: a value cannot be moved into itself",
        ),
        ("A.13", json!({"op": "hop", "path": "/a"}), "operation 1 of the JSON patch cannot be read"),
        ("no path", json!({"op": "remove"}), "operation 1 of the JSON patch cannot be read"),
    ];
    for (name, operation, expected) in cases {
        let document = json!({"baz": "qux", "/": 9, "~1": 10, "o": {}});
        let error = json_patch(document, &json!([fine, operation])).unwrap_err();
        assert_eq!(error.to_string(), expected, "{name}");
    }
}

#[test]
fn json_patch_has_limits() {
    let operation = json!({"op": "add", "path": "/a", "value": 1});
    let as_many = |count| Value::Array(vec![operation.clone(); count]);
    assert_eq!(json_patch(json!({}), &as_many(MAX_OPERATIONS)).unwrap(), json!({"a": 1}));
    let error = json_patch(json!({}), &as_many(MAX_OPERATIONS + 1)).unwrap_err();
    assert_eq!(error.to_string(), "The allowed maximum operations in a JSON patch is 10000, got 10001");
    assert!(matches!(json_patch(json!({}), &json!({"op": "add"})), Err(JsonPatchError::NotAList)));
}

#[test]
fn merge_patch_does_what_the_examples_of_rfc_7386_say() {
    let cases = [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
        (json!({"a": "b"}), json!(["c"]), json!(["c"])),
        (json!({"a": "foo"}), json!(null), json!(null)),
        (json!({"a": "foo"}), json!("bar"), json!("bar")),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
    ];
    for (document, patch, expected) in cases {
        let shown = format!("{document} patched with {patch}");
        assert_eq!(merge_patch(document, &patch), expected, "{shown}");
    }
}

#[test]
fn a_test_for_null_holds_for_an_absent_member() {
    let document = json!({ "metadata": { "name": "a" } });
    let test = |path: &str| json_patch(document.clone(), &json!([{ "op": "test", "path": path, "value": null }]));
    assert_eq!(test("/metadata/finalizers").unwrap(), document);
    assert!(test("/metadata/name").is_err(), "it is there");
    assert!(test("/status/phase").is_err(), "what it would be in is not there");
}

#[test]
fn json_patch_takes_what_kubernetes_takes() {
    let patched = |operation| json_patch(json!({"a": 1, "o": {}}), &json!([operation]));
    for (operation, expected) in [
        (json!({"op": "replace", "path": "/b", "value": 2}), json!({"a": 1, "o": {}, "b": 2})),
        (json!({"op": "copy", "from": "/o/x", "path": "/b"}), json!({"a": 1, "o": {}, "b": null})),
        (json!({"op": "add", "path": "/b"}), json!({"a": 1, "o": {}, "b": null})),
        (json!({"op": "replace", "path": "", "value": {}}), json!({})),
    ] {
        assert_eq!(patched(operation.clone()).unwrap(), expected, "{operation}");
    }
    assert!(matches!(patched(json!(1)), Err(JsonPatchError::NotAnOperation { index: 0 })));
    assert!(matches!(patched(json!(null)), Err(JsonPatchError::NoOperation { index: 0 })));
    assert!(matches!(
        patched(json!({"op": "add", "path": "", "value": {}})),
        Err(JsonPatchError::AddedWhole { index: 0 })
    ));
    let odd = json!([{"op": "remove", "path": "/a"}, {"op": "remove", "path": "/a", "foo": 1}]);
    assert_eq!(underpass_merge::unknown_members(&odd), ["[1].foo"]);
}
