//! Every keyword, and the words of its refusal.

use serde_json::{Value, json};
use underpass_schema::{Path, Schema};

fn field(field: &Value) -> Schema {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": field}}}});
    Schema::parse(&schema, &Path::root()).expect("the table holds well-formed schemas")
}

fn errors(schema: &Schema, x: &Value) -> Vec<String> {
    schema.validate(&json!({"spec": {"x": x}})).iter().map(ToString::to_string).collect()
}

#[test]
fn accepted() {
    let cases = [
        (json!({"type": "string"}), json!("a")),
        (json!({"type": "string", "nullable": true}), Value::Null),
        (json!({"type": "integer"}), json!(1.0)),
        (json!({"type": "number"}), json!(1)),
        (json!({"x-kubernetes-int-or-string": true}), json!("80%")),
        (json!({"x-kubernetes-int-or-string": true}), json!(80)),
        (json!({"x-kubernetes-preserve-unknown-fields": true}), json!([{"a": null}])),
        (json!({"type": "string", "enum": ["a", "b"]}), json!("b")),
        (json!({"type": "number", "enum": [1]}), json!(1.0)),
        (json!({"type": "integer", "minimum": 1, "maximum": 1}), json!(1)),
        (json!({"type": "number", "multipleOf": 0.1}), json!(0.3)),
        (json!({"type": "string", "maxLength": 2}), json!("éé")),
        (json!({"type": "string", "pattern": "b"}), json!("abc")),
        (json!({"type": "string", "format": "no-such-format"}), json!("x")),
        (json!({"type": "object", "additionalProperties": {"type": "string"}}), json!({"a": "b"})),
        (json!({"type": "string", "anyOf": [{"pattern": "^a"}, {"pattern": "^b"}]}), json!("b")),
        (json!({"type": "string", "oneOf": [{"pattern": "^a"}, {"pattern": "b$"}]}), json!("aa")),
        (json!({"type": "string", "allOf": [{"pattern": "^a"}, {"pattern": "b$"}]}), json!("ab")),
        (json!({"type": "string", "not": {"enum": ["a"]}}), json!("b")),
        (json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}), json!(["a", "b"])),
        (json!({"type": "array", "items": {"type": "string"}}), json!(["a", "a"])),
    ];
    for (schema, value) in cases {
        assert_eq!(errors(&field(&schema), &value), [""; 0], "{schema} {value}");
    }
}

#[test]
fn refused() {
    let cases = [
        (
            json!({"type": "integer"}),
            json!("a"),
            r#"spec.x: Invalid value: "string": spec.x in body must be of type integer: "string""#,
        ),
        (
            json!({"type": "integer"}),
            json!(1.5),
            r#"spec.x: Invalid value: "number": spec.x in body must be of type integer: "number""#,
        ),
        (
            json!({"type": "string"}),
            json!(null),
            r#"spec.x: Invalid value: "null": spec.x in body must be of type string: "null""#,
        ),
        (
            json!({"type": "object"}),
            json!([]),
            r#"spec.x: Invalid value: "array": spec.x in body must be of type object: "array""#,
        ),
        (
            json!({"type": "array", "items": {"type": "boolean"}}),
            json!([true, 1]),
            r#"spec.x[1]: Invalid value: "integer": spec.x[1] in body must be of type boolean: "integer""#,
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            r#"spec.x: Invalid value: "boolean": spec.x in body must be of type integer,string: "boolean""#,
        ),
        (json!({"type": "object", "required": ["y"]}), json!({}), "spec.x.y: Required value"),
        (
            json!({"type": "string", "enum": ["A", "B"]}),
            json!("Z"),
            r#"spec.x: Unsupported value: "Z": supported values: "A", "B""#,
        ),
        (
            json!({"type": "integer", "enum": [1, 2]}),
            json!(3),
            r#"spec.x: Unsupported value: 3: supported values: "1", "2""#,
        ),
        (
            json!({"type": "integer", "maximum": 65535}),
            json!(65536),
            "spec.x: Invalid value: 65536: spec.x in body should be less than or equal to 65535",
        ),
        (
            json!({"type": "integer", "minimum": 1}),
            json!(0),
            "spec.x: Invalid value: 0: spec.x in body should be greater than or equal to 1",
        ),
        (
            json!({"type": "number", "maximum": 1, "exclusiveMaximum": true}),
            json!(1),
            "spec.x: Invalid value: 1: spec.x in body should be less than 1",
        ),
        (
            json!({"type": "number", "minimum": 0.5, "exclusiveMinimum": true}),
            json!(0.5),
            "spec.x: Invalid value: 0.5: spec.x in body should be greater than 0.5",
        ),
        (
            json!({"type": "integer", "multipleOf": 5}),
            json!(7),
            "spec.x: Invalid value: 7: spec.x in body should be a multiple of 5",
        ),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(3_000_000_000u64),
            "spec.x: Invalid value: 3000000000: spec.x in body must be of type int32: 3000000000",
        ),
        (
            json!({"type": "string", "pattern": "^[a-z]+$"}),
            json!("A"),
            r#"spec.x: Invalid value: "A": spec.x in body should match '^[a-z]+$'"#,
        ),
        (
            json!({"type": "string", "minLength": 2}),
            json!("a"),
            r#"spec.x: Invalid value: "a": spec.x in body should be at least 2 chars long"#,
        ),
        (json!({"type": "string", "maxLength": 2}), json!("abc"), "spec.x: Too long: may not be more than 2 bytes"),
        (json!({"type": "string", "maxLength": 1}), json!("abc"), "spec.x: Too long: may not be more than 1 byte"),
        (
            json!({"type": "string", "format": "ipv4"}),
            json!("1.2.3"),
            r#"spec.x: Invalid value: "1.2.3": spec.x in body must be of type ipv4: "1.2.3""#,
        ),
        (
            json!({"type": "array", "items": {"type": "integer"}, "minItems": 1}),
            json!([]),
            "spec.x: Invalid value: 0: spec.x in body should have at least 1 items",
        ),
        (
            json!({"type": "array", "items": {"type": "integer"}, "maxItems": 1}),
            json!([1, 2]),
            "spec.x: Too many: 2: must have at most 1 item",
        ),
        (
            json!({"type": "array", "items": {"type": "integer"}, "uniqueItems": true}),
            json!([1, 1]),
            r#"spec.x: Invalid value: "": spec.x in body shouldn't contain duplicates"#,
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1}),
            json!({}),
            "spec.x: Invalid value: 0: spec.x in body should have at least 1 properties",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 2}),
            json!({"a": "", "b": "", "c": ""}),
            "spec.x: Too many: 3: must have at most 2 items",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            json!({"a": 1}),
            r#"spec.x.a: Invalid value: "integer": spec.x.a in body must be of type string: "integer""#,
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
            json!(["a", "b", "a"]),
            r#"spec.x[2]: Duplicate value: "a""#,
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                "items": {"type": "object", "properties": {
                    "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}}}}),
            json!([{"port": 80, "protocol": "TCP"}, {"port": 80, "protocol": "UDP"}, {"port": 80}]),
            r#"spec.x[2]: Duplicate value: {"port":80,"protocol":"TCP"}"#,
        ),
        (
            json!({"type": "string", "not": {"enum": ["a"]}}),
            json!("a"),
            r#"spec.x: Invalid value: "": "spec.x" must not validate the schema (not)"#,
        ),
        (
            json!({"type": "string", "oneOf": [{"pattern": "^a"}, {"pattern": "b$"}]}),
            json!("ab"),
            r#"spec.x: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
        ),
    ];
    for (schema, value, want) in cases {
        assert_eq!(errors(&field(&schema), &value), [want], "{schema} {value}");
    }
}

#[test]
fn a_junctor_says_what_came_closest() {
    let schema = field(&json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a", "b"]}, {"required": ["a"]}]}));
    assert_eq!(
        errors(&schema, &json!({})),
        [
            r#"spec.x: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found none valid"#,
            "spec.x.a: Required value",
        ]
    );
    let schema = field(&json!({"type": "string", "anyOf": [{"pattern": "^a"}]}));
    assert_eq!(
        errors(&schema, &json!("b")),
        [
            r#"spec.x: Invalid value: "": "spec.x" must validate at least one schema (anyOf)"#,
            r#"spec.x: Invalid value: "b": spec.x in body should match '^a'"#,
        ]
    );
}

#[test]
fn embedded_resources_name_themselves() {
    let schema = field(&json!({"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true}));
    assert_eq!(
        errors(&schema, &json!({"kind": ""})),
        ["spec.x.apiVersion: Required value", r#"spec.x.kind: Invalid value: "": must not be empty"#]
    );
    assert_eq!(errors(&schema, &json!({"apiVersion": "v1", "kind": "Pod", "a": 1})), [""; 0]);
}

#[test]
fn what_was_wrong_before_is_tolerated() {
    let schema =
        field(&json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string"}, "port": {"type": "integer", "maximum": 10}, "note": {"type": "string"}}}}));
    let document = |list: &Value| json!({"spec": {"x": list}});
    let old = document(&json!([{"name": "a", "port": 99}, {"name": "b", "port": 5}]));
    let update = |new: &Value| -> Vec<String> {
        schema.validate_update(&document(new), &old).iter().map(ToString::to_string).collect()
    };
    assert_eq!(update(&json!([{"name": "b", "port": 6}, {"name": "a", "port": 99, "note": "moved"}])), [""; 0]);
    assert_eq!(
        update(&json!([{"name": "a", "port": 98}])),
        ["spec.x[0].port: Invalid value: 98: spec.x[0].port in body should be less than or equal to 10"]
    );
    assert_eq!(
        update(&json!([{"name": "c", "port": 99}])),
        ["spec.x[0].port: Invalid value: 99: spec.x[0].port in body should be less than or equal to 10"]
    );
}

#[test]
fn parse_and_write_are_inverse() {
    let schema = json!({"type": "object", "description": "d", "required": ["a"], "minProperties": 1, "maxProperties": 9,
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "a": {"type": "string", "format": "ipv4", "default": "1.1.1.1", "nullable": true, "enum": ["1.1.1.1"],
                "pattern": "^1", "minLength": 1, "maxLength": 20},
            "b": {"type": "number", "minimum": 0.5, "maximum": 10, "exclusiveMinimum": true, "exclusiveMaximum": true,
                "multipleOf": 0.5},
            "c": {"type": "array", "items": {"type": "object", "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true}, "minItems": 1, "maxItems": 2,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "x-kubernetes-patch-merge-key": "k", "x-kubernetes-patch-strategy": "merge,retainKeys"},
            "d": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "e": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "f": {"type": "object", "additionalProperties": true, "not": {"required": ["x"]}},
        },
        "x-kubernetes-validations": [{"rule": "true", "message": "m", "messageExpression": "'m'", "reason": "FieldValueInvalid",
            "fieldPath": ".a", "optionalOldSelf": true}]});
    let parsed = Schema::parse(&schema, &Path::root()).unwrap();
    assert_eq!(parsed.to_json(), schema);
}

#[test]
fn a_malformed_schema_is_refused_by_field() {
    let cases = [
        (
            json!({"type": "objekt"}),
            r#"s.type: Unsupported value: "objekt": supported values: "object", "array", "string", "integer", "number", "boolean""#,
        ),
        (json!({"type": 1}), "s.type: Invalid value: 1: must be a string"),
        (json!({"properties": {"a": 1}}), "s.properties[a]: Invalid value: 1: must be a schema"),
        (json!({"items": [{}]}), "s.items: Invalid value: [{}]: must be a schema"),
        (json!({"maxItems": -1}), "s.maxItems: Invalid value: -1: must be a non-negative integer"),
        (json!({"required": [1]}), "s.required: Invalid value: [1]: must be an array of strings"),
        (json!({"$ref": "#/x"}), "s.$ref: Forbidden: $ref is not supported"),
        (
            json!({"x-kubernetes-validations": ["x"]}),
            r#"s.x-kubernetes-validations[0]: Invalid value: "x": must be a validation rule"#,
        ),
    ];
    for (schema, want) in cases {
        let errors = Schema::parse(&schema, &Path::from("s")).unwrap_err();
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [want], "{schema}");
    }
}
