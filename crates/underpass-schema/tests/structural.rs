//! Schemas that a CustomResourceDefinition may not have.

use serde_json::{Value, json};
use underpass_schema::{Path, Schema};

fn errors(schema: &Value) -> Vec<String> {
    let schema = Schema::parse(schema, &Path::root()).expect("the table holds well-formed schemas");
    schema.check_structural(&Path::root()).iter().map(ToString::to_string).collect()
}

/// The field `x` of an otherwise good schema.
fn field_errors(field: &Value) -> Vec<String> {
    errors(&json!({"type": "object", "properties": {"x": field}}))
}

#[test]
fn good_schemas_pass() {
    let fields = [
        json!({"type": "string", "default": "a", "enum": ["a"]}),
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
        json!({"x-kubernetes-preserve-unknown-fields": true}),
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
        json!({"type": "object", "properties": {"a": {"type": "integer"}}, "oneOf": [{"required": ["a"]}, {"properties": {"a": {"minimum": 1}}}]}),
        json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
        json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}}),
        json!({"type": "object", "default": {}, "properties": {"a": {"type": "integer", "default": 1, "minimum": 1}}}),
        json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]}),
    ];
    for field in fields {
        assert_eq!(field_errors(&field), [""; 0], "{field}");
    }
}

#[test]
fn roots() {
    assert_eq!(errors(&json!({})), ["type: Required value: must not be empty at the root"]);
    assert_eq!(
        errors(&json!({"type": "object", "additionalProperties": true, "nullable": true})),
        [
            "nullable: Forbidden: nullable cannot be true at the root",
            "additionalProperties: Forbidden: must not be used at the root"
        ]
    );
    assert_eq!(
        errors(&json!({"type": "array", "items": {"type": "string"}})),
        [r#"type: Invalid value: "array": must be object at the root"#]
    );
    assert_eq!(
        errors(&json!({"type": "object", "properties": {"metadata":
            {"type": "object", "properties": {"name": {"type": "string"}, "labels": {"type": "object"}}}}})),
        [
            "properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"
        ]
    );
    assert_eq!(
        errors(&json!({"type": "object", "properties": {"metadata":
            {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}}}})),
        [""; 0]
    );
}

#[test]
fn branches_of_the_root_talk_about_declared_fields() {
    assert_eq!(
        errors(&json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}},
            "anyOf": [{"required": ["a"]}, {"properties": {"b": {}}}], "not": {"properties": {"a": {"items": {"items": {}}}}}})),
        [
            "properties[b]: Required value: because it is defined in anyOf[1].properties[b]",
            "properties[a].items.items: Required value: because it is defined in not.properties[a].items.items",
        ]
    );
}

#[test]
fn old_values_need_a_place_of_their_own() {
    let rule = json!([{"rule": "self == oldSelf"}]);
    let inner = json!({"type": "object", "properties": {"y": {"type": "integer", "x-kubernetes-validations": rule}}});
    let want = r#"Invalid value: "self == oldSelf": oldSelf cannot be used on the uncorrelatable portion of the schema within properties[x]"#;
    assert_eq!(
        field_errors(&json!({"type": "array", "items": inner})),
        [format!("properties[x].items.properties[y].x-kubernetes-validations[0].rule: {want}")]
    );
    let atomic_map = json!({"type": "object", "x-kubernetes-map-type": "atomic", "properties": inner["properties"]});
    assert_eq!(field_errors(&atomic_map), [""; 0]);
}

#[test]
fn identity_has_no_defaults() {
    assert_eq!(
        errors(&json!({"type": "object", "properties": {"kind": {"type": "string", "default": "K"}}})),
        ["properties[kind].default: Forbidden: must not be set in top-level kind"]
    );
}

#[test]
fn bad_fields_are_named() {
    let cases = [
        (json!({}), "properties[x].type: Required value: must not be empty for specified object fields"),
        (
            json!({"type": "array", "items": {}}),
            "properties[x].items.type: Required value: must not be empty for specified array items",
        ),
        (json!({"type": "array"}), "properties[x].items: Required value: must be specified"),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
            "properties[x].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            json!({"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true}),
            "properties[x].x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if x-kubernetes-int-or-string is true",
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"kind": {"type": "integer"}}}),
            r#"properties[x].properties[kind].type: Invalid value: "integer": must be string"#,
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-map-keys": ["k"]}),
            "properties[x].x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
            "properties[x].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ),
        (
            json!({"type": "string", "x-kubernetes-list-type": "atomic"}),
            r#"properties[x].type: Invalid value: "string": must be array if x-kubernetes-list-type is specified"#,
        ),
        (
            json!({"type": "string", "x-kubernetes-map-type": "atomic"}),
            r#"properties[x].type: Invalid value: "string": must be object if x-kubernetes-map-type is specified"#,
        ),
        (
            json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}),
            "properties[x].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
        ),
        (
            json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}),
            r#"properties[x].x-kubernetes-list-map-keys: Invalid value: ["k"]: entries must all be names of item properties"#,
        ),
        (
            json!({"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}},
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}),
            "properties[x].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
        ),
        (
            json!({"type": "array", "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "object"}}},
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}),
            r#"properties[x].items.properties[k].type: Invalid value: "object": must be a scalar type if parent array's x-kubernetes-list-type is map"#,
        ),
        (
            json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"}),
            r#"properties[x].items.x-kubernetes-map-type: Invalid value: "": must be atomic as item of a list with x-kubernetes-list-type=set"#,
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true}),
            "properties[x].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ),
        (
            json!({"type": "string", "anyOf": [{"type": "string"}]}),
            "properties[x].anyOf[0].type: Forbidden: must be empty to be structural",
        ),
        (
            json!({"type": "object", "not": {"properties": {"metadata": {}}}}),
            "properties[x].not.properties[metadata]: Forbidden: must not be specified in a nested context",
        ),
        (
            json!({"type": "string", "pattern": "("}),
            r#"properties[x].pattern: Invalid value: "(": must be a valid regular expression, but isn't: error: unclosed group"#,
        ),
        (
            json!({"type": "integer", "default": "a"}),
            r#"properties[x].default: Invalid value: "string": properties[x].default in body must be of type integer: "string""#,
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "default": {"b": 1}}),
            r#"properties[x].default: Invalid value: {"b":1}: must not have unknown fields: b"#,
        ),
        (
            json!({"type": "object", "default": {}, "properties": {"a": {"type": "integer", "default": 1}}, "required": ["a"]}),
            "properties[x].default.a: Required value",
        ),
        (
            json!({"type": "integer", "default": 0, "x-kubernetes-validations": [{"rule": "self > 0"}]}),
            r#"properties[x].default: Invalid value: "integer": failed rule: self > 0"#,
        ),
    ];
    for (field, want) in cases {
        assert_eq!(field_errors(&field), [want], "{field}");
    }
}

#[test]
fn rules_are_checked_against_the_schema() {
    let cases = [
        (json!({"rule": "self.z > 0"}), "[0].rule", "undefined field 'z'"),
        (json!({"rule": "self.a >"}), "[0].rule", "Syntax error: mismatched input"),
        (json!({"rule": "self.a"}), "[0].rule", "must evaluate to a bool"),
        (
            json!({"rule": "self.a == 'x'"}),
            "[0].rule",
            "found no matching overload for '_==_' applied to '(int, string)'",
        ),
        (json!({"rule": "self.open == 1"}), "[0].rule", "undefined field 'open'"),
        (
            json!({"rule": "self.m.anything == 'x' && self.l[0].b == 1.5 && self.t < timestamp('2024-01-01T00:00:00Z')"}),
            "",
            "",
        ),
        (json!({"rule": "self.l.all(i, i.nope)"}), "[0].rule", "undefined field 'nope'"),
        (json!({"rule": " "}), "[0].rule", "rule is not specified"),
        (json!({"rule": "true", "messageExpression": "1"}), "[0].messageExpression", "must evaluate to a string"),
        (json!({"rule": "true", "message": "a\nb"}), "[0].message", "must not contain line breaks"),
        (json!({"rule": "true\n|| false"}), "[0].message", "message must be specified if rule contains line breaks"),
        (json!({"rule": "true", "reason": "Because"}), "[0].reason", "supported values"),
        (json!({"rule": "true", "fieldPath": ".zz"}), "[0].fieldPath", "does not exist"),
        (json!({"rule": "true", "fieldPath": "a"}), "[0].fieldPath", "must be a valid path"),
        (json!({"rule": "true", "optionalOldSelf": true}), "[0].optionalOldSelf", "oldSelf is not used"),
        (json!({"rule": "oldSelf.hasValue() || self.a > 0", "optionalOldSelf": true}), "", ""),
        (json!({"rule": "oldSelf.orValue(self).a > 0"}), "[0].rule", "found no matching overload for 'orValue'"),
    ];
    for (rule, place, words) in cases {
        let errors = field_errors(&json!({"type": "object", "x-kubernetes-validations": [rule], "properties": {
            "a": {"type": "integer"},
            "open": {"x-kubernetes-preserve-unknown-fields": true},
            "m": {"type": "object", "additionalProperties": {"type": "string"}},
            "l": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "number"}}}},
            "t": {"type": "string", "format": "date-time"},
        }}));
        if words.is_empty() {
            assert_eq!(errors, [""; 0], "{rule}");
            continue;
        }
        let path = format!("properties[x].x-kubernetes-validations{place}: ");
        assert!(errors.len() == 1 && errors[0].starts_with(&path) && errors[0].contains(words), "{rule}: {errors:?}");
    }
}

fn rules(rule: &str) -> Value {
    json!([{ "rule": rule }])
}

/// The factors are those that kube-apiserver 1.34 tells for the same schemas.
#[test]
fn rules_that_could_cost_too_much() {
    let often = |part: &str, times: usize| rules(&vec![part; times].join(" && "));
    let list = |items: Value| json!({"type": "array", "items": items});
    let of = |format: &str, times| {
        list(json!({"type": "string", "format": format, "x-kubernetes-validations": often("self == self", times)}))
    };
    let bounded = json!({"type": "array", "maxItems": 1000, "items": {"type": "object", "additionalProperties":
        {"type": "integer", "x-kubernetes-validations": rules("self > 1 && self > 2 && self > 3&& self > 3&& self > 3&& self > 3")}}});
    let required = json!({"type": "object", "required": ["abc", "d"], "properties": {
        "abc": {"type": "string"}, "d": {"type": "integer"}}, "x-kubernetes-validations": often("self.d > 1", 10)});
    for (field, factor) in [
        (list(json!({"type": "boolean", "x-kubernetes-validations": often("self", 20)})), "1.258290x"),
        (of("date-time", 60), "5.1x"),
        (of("duration", 20), "9.4x"),
        (of("date", 40), "3.9x"),
        (bounded, "1.9x"),
        (json!({"type": "string", "x-kubernetes-validations": rules("self.contains(self)")}), "more than 100x"),
    ] {
        let found = field_errors(&field);
        let wanted = format!("rule: Forbidden: estimated rule cost exceeds budget by factor of {factor}: ");
        assert!(found.first().is_some_and(|error| error.contains(&wanted)), "{found:?}");
    }
    assert_eq!(field_errors(&list(required)), [""; 0]);
}

#[test]
fn messages_that_could_cost_too_much() {
    let with_message = |message: &str| json!([{ "rule": "self == 'a'", "messageExpression": message }]);
    let text = json!({"type": "string", "x-kubernetes-validations": with_message("self.contains(self) ? 'a' : 'b'")});
    assert!(field_errors(&text)[0].contains("messageExpression: Forbidden: estimated messageExpression cost exceeds"));
    let text = json!({"type": "string", "x-kubernetes-validations": with_message("self == self ? 'a' : 'b'")});
    let list = json!({"type": "array", "maxItems": 1000, "items": text});
    assert_eq!(field_errors(&list), [""; 0], "there is one message, however many items");
}

#[test]
fn rules_that_together_could_cost_too_much() {
    let integer =
        json!({"type": "integer", "x-kubernetes-validations": rules("self > 1 && self > 2 && self > 3 && self > 4")});
    let fields = (0..14).map(|n| (format!("l{n}"), json!({"type": "array", "maxItems": 1_000_000, "items": integer})));
    let found = errors(&json!({"type": "object", "properties": fields.collect::<serde_json::Map<_, _>>()}));
    let [only] = found.as_slice() else { panic!("{found:?}") };
    assert!(
        only.starts_with(
            "<nil>: Forbidden: estimated cost of all rules together exceeds budget by factor of 1.120000x"
        ),
        "{only}"
    );
}
