//! What holds for every schema and every document.

use proptest::prelude::*;
use serde_json::{Value, json};
use underpass_schema::{Path, Schema, Validator};

/// Few names, so that documents meet their schemas.
fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "metadata", "kind", "x-y"]).prop_map(str::to_owned)
}

fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3i64..3).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c0-9:./-]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name(), inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

fn scalar_schema() -> impl Strategy<Value = Value> {
    let string = (prop::sample::select(vec!["", "date-time", "ipv4", "byte", "duration", "cidr", "uri"]), 0..4u64)
        .prop_map(|(format, max)| {
            json!({"type": "string", "format": format, "maxLength": max, "pattern": "^[a-c]*",
                "x-kubernetes-validations": [{"rule": "self == self"}, {"rule": "self == oldSelf"}]})
        });
    let rule =
        prop::sample::select(vec!["self > 0", "self / (self - 1) == 1", "self in [1, 2]", "string(self).size() < 3"]);
    let integer = (rule, -2..2i64).prop_map(
        |(rule, minimum)| json!({"type": "integer", "minimum": minimum, "x-kubernetes-validations": [{"rule": rule}]}),
    );
    let other = prop::sample::select(vec![
        json!({"x-kubernetes-int-or-string": true, "x-kubernetes-validations": [{"rule": "self < 3"}]}),
        json!({"x-kubernetes-preserve-unknown-fields": true}),
        json!({"type": "number", "multipleOf": 0.5}),
        json!({"type": "boolean", "nullable": true, "default": true}),
        json!({"type": "string", "default": "b", "enum": ["a", "b"]}),
        json!({}),
    ]);
    prop_oneof![string, integer, other]
}

fn schema_json() -> impl Strategy<Value = Value> {
    scalar_schema().prop_recursive(4, 24, 3, |inner| {
        let list = (inner.clone(), prop::sample::select(vec!["atomic", "set", "map"])).prop_map(|(items, kind)| {
            json!({"type": "array", "items": items, "maxItems": 3, "x-kubernetes-list-type": kind,
                "x-kubernetes-list-map-keys": ["a"], "x-kubernetes-validations": [{"rule": "self == oldSelf || self.size() < 9"}]})
        });
        let map = inner.clone().prop_map(|value| json!({"type": "object", "additionalProperties": value}));
        let object = (prop::collection::btree_map(name(), inner, 0..4), any::<[bool; 3]>(), prop::option::of(document()))
            .prop_map(|(properties, [open, embedded, choice], default)| {
                let mut schema = json!({"type": "object", "properties": properties, "required": ["a"],
                    "x-kubernetes-preserve-unknown-fields": open, "x-kubernetes-embedded-resource": embedded,
                    "x-kubernetes-validations": [{"rule": "has(self.a) && self.a == self.b || has(self.b)"}]});
                if choice {
                    schema["oneOf"] = json!([{"required": ["a"]}, {"required": ["b"]}]);
                }
                if let Some(default) = default {
                    schema["default"] = default;
                }
                schema
            });
        prop_oneof![list, map, object]
    })
}

fn schema() -> impl Strategy<Value = Schema> {
    schema_json()
        .prop_map(|json| Schema::parse(&json, &Path::root()).expect("the generator writes well-formed schemas"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn nothing_panics(schema in schema(), mut new in document(), old in document()) {
        schema.prune_object(&mut new);
        schema.default_into(&mut new);
        let validator = Validator::new(schema);
        validator.validate(&new);
        validator.validate_update(&new, &old);
        validator.schema().check_structural(&Path::root());
    }

    #[test]
    fn pruning_twice_is_pruning_once(schema in schema(), mut value in document()) {
        schema.prune(&mut value);
        let once = value.clone();
        prop_assert_eq!(schema.prune(&mut value), Vec::<String>::new());
        prop_assert_eq!(value, once);
    }

    #[test]
    fn defaulting_twice_is_defaulting_once(schema in schema(), mut value in document()) {
        schema.default_into(&mut value);
        let once = value.clone();
        schema.default_into(&mut value);
        prop_assert_eq!(value, once);
    }

    /// Transition rules of the generator hold where nothing changed; all else tolerates what was there before.
    #[test]
    fn an_unchanged_document_is_accepted(schema in schema(), value in document()) {
        prop_assert_eq!(schema.validate_update(&value, &value), vec![]);
    }

    #[test]
    fn schemas_survive_writing(schema in schema()) {
        prop_assert_eq!(Schema::parse(&schema.to_json(), &Path::root()), Ok(schema));
    }

    #[test]
    fn rules_of_any_text_do_not_panic(rule in "[a-z0-9 .()\\[\\]{}'\"?:&|+*/!<>=,\\\\é-]{0,40}") {
        let json = json!({"type": "object", "properties": {"a": {"type": "string"}}, "x-kubernetes-validations": [{"rule": rule}]});
        let schema = Schema::parse(&json, &Path::root()).expect("a rule is any text");
        schema.check_structural(&Path::root());
        schema.validate(&json!({"a": "b"}));
    }
}
