//! CEL rules on documents.

use serde_json::{Value, json};
use underpass_schema::{ErrorKind, Path, Schema, Validator};

fn schema(json: &Value) -> Schema {
    let schema = Schema::parse(json, &Path::root()).expect("the table holds well-formed schemas");
    assert_eq!(schema.check_structural(&Path::root()), [], "{json}");
    schema
}

/// A schema with one field `x`.
fn field(field: &Value) -> Validator {
    Validator::new(schema(&json!({"type": "object", "properties": {"x": field}})))
}

/// The same of a schema that nobody could define: what runs is bounded all the same.
fn unchecked(field: &Value) -> Validator {
    let schema = json!({"type": "object", "properties": {"x": field}});
    Validator::new(Schema::parse(&schema, &Path::root()).expect("well-formed"))
}

fn texts(errors: &[underpass_schema::FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn on_create(field_schema: &Value, x: &Value) -> Vec<String> {
    texts(&field(field_schema).validate(&json!({"x": x})))
}

fn on_update(field_schema: &Value, new: &Value, old: &Value) -> Vec<String> {
    texts(&field(field_schema).validate_update(&json!({"x": new}), &json!({"x": old})))
}

#[test]
fn values_mean_what_the_schema_says() {
    let fields = json!({
        "i": {"type": "integer"}, "n": {"type": "number"}, "s": {"type": "string"}, "b": {"type": "boolean"},
        "t": {"type": "string", "format": "date-time"}, "day": {"type": "string", "format": "date"},
        "d": {"type": "string", "format": "duration"}, "raw": {"type": "string", "format": "byte"},
        "ios": {"x-kubernetes-int-or-string": true}, "nil": {"type": "string", "nullable": true}, "unset": {"type": "string"},
        "namespace": {"type": "string"}, "a-b.c/d": {"type": "string"}, "x__y": {"type": "string"},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"],
            "items": {"type": "object", "required": ["port"], "properties": {"port": {"type": "integer"}, "v": {"type": "string"}}}},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "string"}}},
        "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
    });
    let document = json!({"i": 1.0, "n": 2, "s": "a", "b": true, "t": "2024-05-06T07:08:09Z", "day": "2024-05-06", "d": "90s",
        "raw": "aGk=", "ios": 5, "nil": null, "namespace": "ns", "a-b.c/d": "e", "x__y": "u", "set": ["a", "b"],
        "ports": [{"port": 1, "v": "one"}, {"port": 2, "v": "two"}], "map": {"k-k": 1}, "open": {"known": "k", "more": 1},
        "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {}}}});
    let rules = [
        "self.i + 1 == 2 && self.n + 0.5 == 2.5 && self.s + 'b' == 'ab' && self.b",
        "self.t.getFullYear() == 2024 && self.day.getMonth() == 4 && self.d > duration('1m') && self.raw == b'hi'",
        "self.ios == 5 && type(self.ios) == int && (type(self.ios) == int ? self.ios > 4 : self.ios.endsWith('%'))",
        "has(self.nil) && self.nil == null && !has(self.unset)",
        "self.__namespace__ == 'ns' && self.a__dash__b__dot__c__slash__d == 'e' && self.x__underscores__y == 'u'",
        "self.set == ['b', 'a'] && self.set == self.set",
        "self.set + ['b', 'c'] == ['a', 'b', 'c'] && self.set != ['a']",
        "self.ports + [{'port': 2, 'v': 'zwei'}] == [{'port': 2, 'v': 'zwei'}, {'port': 1, 'v': 'one'}]",
        "self.map['k-k'] == 1 && 'k-k' in self.map && self.map.all(k, self.map[k] > 0)",
        "self.open.known == 'k'",
        "self.pod.kind == 'Pod' && self.pod.metadata.name == 'p' && !has(self.pod.metadata.generateName)",
        "self.ports.exists(p, p.port == 2 && p.v == 'two')",
    ];
    for rule in rules {
        let schema = json!({"type": "object", "properties": fields, "x-kubernetes-validations": [{"rule": rule}]});
        assert_eq!(on_create(&schema, &document), [""; 0], "{rule}");
    }
}

#[test]
fn a_failed_rule_says_so() {
    let rule = |rule: Value| {
        json!({"type": "object", "x-kubernetes-validations": [rule], "properties": {
        "a": {"type": "integer"}, "m": {"type": "object", "additionalProperties": {"type": "integer"}}}})
    };
    let cases = [
        (json!({"rule": "self.a > 0"}), r#"x: Invalid value: "object": failed rule: self.a > 0"#),
        (
            json!({"rule": "self.a > 0", "message": "must be positive"}),
            r#"x: Invalid value: "object": must be positive"#,
        ),
        (
            json!({"rule": "self.a > 0", "message": "no", "messageExpression": "'%d is not positive'.format([self.a])"}),
            r#"x: Invalid value: "object": -1 is not positive"#,
        ),
        (
            json!({"rule": "self.a > 0", "message": "kept", "messageExpression": "string(self.m['none'])"}),
            r#"x: Invalid value: "object": kept"#,
        ),
        (json!({"rule": "self.a > 0", "fieldPath": ".a"}), r#"x.a: Invalid value: "object": failed rule: self.a > 0"#),
        (
            json!({"rule": "self.a > 0", "fieldPath": ".m['k']"}),
            r#"x.m[k]: Invalid value: "object": failed rule: self.a > 0"#,
        ),
        (json!({"rule": "self.a > 0", "reason": "FieldValueForbidden", "message": "no"}), "x: Forbidden: no"),
        (json!({"rule": "self.a > 0", "reason": "FieldValueRequired", "message": "no"}), "x: Required value: no"),
        (
            json!({"rule": "self.a > 0", "reason": "FieldValueDuplicate", "message": "no"}),
            r#"x: Duplicate value: "object": no"#,
        ),
        (
            json!({"rule": "self.m['none'] == 1"}),
            r#"x: Invalid value: "object": no such key: none evaluating rule: self.m['none'] == 1"#,
        ),
        (
            json!({"rule": "1 / (self.a + 1) == 1"}),
            r#"x: Invalid value: "object": division by zero evaluating rule: 1 / (self.a + 1) == 1"#,
        ),
    ];
    for (given, want) in cases {
        assert_eq!(on_create(&rule(given.clone()), &json!({"a": -1, "m": {}})), [want], "{given}");
    }
}

#[test]
fn rules_run_where_they_stand() {
    let positive = json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0", "message": "no"}]});
    let list = json!({"type": "array", "items": positive});
    assert_eq!(on_create(&list, &json!([1, 0])), [r#"x[1]: Invalid value: "integer": no"#]);
    let map = json!({"type": "object", "additionalProperties": positive});
    assert_eq!(on_create(&map, &json!({"a/b": 0})), [r#"x[a/b]: Invalid value: "integer": no"#]);
    let nullable = json!({"type": "integer", "nullable": true, "x-kubernetes-validations": [{"rule": "self > 0"}]});
    assert_eq!(on_create(&nullable, &Value::Null), [""; 0]);
}

#[test]
fn the_root_knows_its_name() {
    let root = schema(&json!({"type": "object", "properties": {"spec": {"type": "object"}},
        "x-kubernetes-validations": [{"rule": "self.metadata.name.startsWith('a') && self.kind == 'K'", "message": "name"}]}));
    let object = |name: &str| json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": name, "uid": "u"}});
    assert_eq!(texts(&root.validate(&object("ab"))), [""; 0]);
    assert_eq!(texts(&root.validate(&object("b"))), [r#"<nil>: Invalid value: "object": name"#]);
}

#[test]
fn transition_rules_compare_with_what_was() {
    let immutable =
        json!({"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is immutable"}]});
    assert_eq!(on_create(&immutable, &json!("a")), [""; 0]);
    assert_eq!(on_update(&immutable, &json!("a"), &json!("a")), [""; 0]);
    assert_eq!(on_update(&immutable, &json!("b"), &json!("a")), [r#"x: Invalid value: "string": is immutable"#]);

    let grow =
        json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > oldSelf", "message": "must grow"}]});
    assert_eq!(on_update(&grow, &json!(1), &json!(1)), [r#"x: Invalid value: "integer": must grow"#]);

    let once = json!({"type": "string", "x-kubernetes-validations": [
        {"rule": "oldSelf.hasValue() || self == 'first'", "optionalOldSelf": true, "message": "begin with first"}]});
    assert_eq!(on_create(&once, &json!("x")), [r#"x: Invalid value: "string": begin with first"#]);
    assert_eq!(on_create(&once, &json!("first")), [""; 0]);
    assert_eq!(on_update(&once, &json!("x"), &json!("first")), [""; 0]);
}

#[test]
fn transition_rules_need_the_same_thing_before() {
    let rule = json!([{"rule": "self.v == oldSelf.v", "message": "is immutable"}]);
    let item = json!({"type": "object", "required": ["k"], "x-kubernetes-validations": rule,
        "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}});
    let by_key =
        json!({"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]});
    let old = json!([{"k": "a", "v": 1}, {"k": "b", "v": 2}]);
    let moved = json!([{"k": "c", "v": 9}, {"k": "b", "v": 2}, {"k": "a", "v": 5}]);
    assert_eq!(on_update(&by_key, &moved, &old), [r#"x[2]: Invalid value: "object": is immutable"#]);
    // Such a rule is refused with its schema; it must be harmless all the same.
    let atomic = json!({"type": "object", "properties": {"x": {"type": "array", "items": item}}});
    let atomic = Schema::parse(&atomic, &Path::root()).unwrap();
    assert_eq!(atomic.validate_update(&json!({"x": moved}), &json!({"x": old})), []);
    let map = json!({"type": "object", "additionalProperties": item});
    let (new, old) = (json!({"q": {"k": "", "v": 2}}), json!({"q": {"k": "", "v": 1}}));
    assert_eq!(on_update(&map, &new, &old), [r#"x[q]: Invalid value: "object": is immutable"#]);
    let atomic_map = json!({"type": "object", "additionalProperties": item, "x-kubernetes-map-type": "atomic"});
    assert_eq!(on_update(&atomic_map, &new, &old), [r#"x[q]: Invalid value: "object": is immutable"#]);
}

#[test]
fn what_was_wrong_before_is_tolerated() {
    let small = json!({"type": "object", "properties": {"a": {"type": "integer",
        "x-kubernetes-validations": [{"rule": "self < 10", "message": "too big"}]}, "note": {"type": "string"}}});
    assert_eq!(on_update(&small, &json!({"a": 99, "note": "new"}), &json!({"a": 99})), [""; 0]);
    assert_eq!(on_update(&small, &json!({"a": 98}), &json!({"a": 99})), [r#"x.a: Invalid value: "integer": too big"#]);
}

#[test]
fn rules_wait_for_a_sound_document() {
    let sized = json!({"type": "string", "maxLength": 1, "x-kubernetes-validations": [{"rule": "self == 'a'"}]});
    assert_eq!(
        on_create(&sized, &json!("bb")),
        [
            "x: Too long: may not be more than 1 byte",
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"
        ]
    );
}

#[test]
fn an_expensive_rule_is_stopped() {
    let rules =
        json!([{"rule": "self.all(a, self.all(b, self.all(c, self.all(d, a + b + c + d >= 0))))"}, {"rule": "false"}]);
    let list = json!({"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": rules});
    let errors = unchecked(&list).validate(&json!({"x": vec![1; 200]}));
    assert_eq!(errors.len(), 1, "nothing runs after the budget is spent: {errors:?}");
    assert_eq!(errors[0].kind, ErrorKind::Invalid);
    assert!(errors[0].detail.contains("call cost exceeds limit for rule"), "{}", errors[0]);
}

#[test]
fn many_rules_together_are_stopped() {
    // A match is paid for by text times pattern, so that few of them are many steps.
    let rule = format!("self.matches('^x{}')", "x".repeat(400));
    let item = json!({"type": "string", "x-kubernetes-validations": [{"rule": rule}]});
    let list = json!({"type": "array", "items": item});
    let errors = unchecked(&list).validate(&json!({"x": vec!["x".repeat(500); 3000]}));
    assert_eq!(errors.len(), 1);
    assert!(errors[0].detail.contains("running out of cost budget"), "{}", errors[0]);
}
