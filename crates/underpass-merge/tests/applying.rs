//! Server-side apply, rule by rule.

mod shapes;

use serde_json::{Value, json};
use shapes::{at, deployment, entry, everything, list, manager, object, object_with_spec, owned, text};
use underpass_merge::{ApplyError, Manager, apply, track_update};
use underpass_schema::Schema;

fn applied(live: Option<&Value>, name: &str, spec: &Value) -> Value {
    try_apply(live, name, spec, false).expect("nobody is in the way")
}

fn try_apply(live: Option<&Value>, name: &str, spec: &Value, force: bool) -> Result<Value, ApplyError> {
    apply(&everything(), live, &object_with_spec(spec), &manager(name), force, &["status"])
}

fn updated(live: &Value, name: &str, spec: &Value) -> Value {
    let mut new = live.clone();
    new["spec"] = spec.clone();
    track_update(&everything(), Some(live), &mut new, &manager(name), &["status"]);
    new
}

fn conflict_of(live: &Value, name: &str, spec: &Value) -> String {
    try_apply(Some(live), name, spec, false).expect_err("somebody is in the way").to_string()
}

#[test]
fn the_first_apply_creates_the_object_and_owns_what_it_says() {
    let object = applied(None, "a", &json!({"number": 1, "map": {"x": "1"}}));
    assert_eq!(object["spec"], json!({"number": 1, "map": {"x": "1"}}));
    assert_eq!(
        object["metadata"]["managedFields"],
        json!([{
            "manager": "a", "operation": "Apply", "apiVersion": "example.com/v1", "time": "2030-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:number": {}, "f:map": {"f:x": {}}}},
        }])
    );
}

#[test]
fn what_identifies_the_object_is_nobodys() {
    let mut config = object_with_spec(&json!({"number": 1}));
    config["metadata"] = json!({
        "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1", "generation": 1, "selfLink": "/",
        "creationTimestamp": null, "deletionTimestamp": "2030-01-01T00:00:00Z", "labels": {"l": "1"},
    });
    let object = apply(&everything(), None, &config, &manager("a"), false, &[]).unwrap();
    assert_eq!(
        owned(&object, "a", "Apply"),
        json!({"f:metadata": {"f:labels": {"f:l": {}}}, "f:spec": {"f:number": {}}})
    );
    assert_eq!(object["metadata"].get("creationTimestamp"), None, "null is no time");
}

#[test]
fn managed_fields_cannot_be_applied() {
    for list in [json!([]), json!([{}])] {
        let mut config = object_with_spec(&json!({}));
        config["metadata"]["managedFields"] = list;
        let error = apply(&everything(), None, &config, &manager("a"), false, &[]).unwrap_err();
        assert_eq!(error.to_string(), "metadata.managedFields must be nil");
    }
    let mut config = object_with_spec(&json!({}));
    config["metadata"]["managedFields"] = Value::Null;
    assert!(apply(&everything(), None, &config, &manager("a"), false, &[]).is_ok());
}

#[test]
fn an_apply_without_effect_leaves_the_object_as_it_is() {
    let spec = json!({"number": 1, "set": ["a"], "items": [{"name": "x", "value": 1}]});
    let object = applied(None, "a", &spec);
    let later = at("a", "2031-01-01T00:00:00Z");
    let again = apply(&everything(), Some(&object), &object_with_spec(&spec), &later, false, &[]).unwrap();
    assert_eq!(again, object);
}

#[test]
fn a_changed_value_gives_the_entry_a_new_time() {
    let object = applied(None, "a", &json!({"number": 1}));
    let later = at("a", "2031-01-01T00:00:00Z");
    let again =
        apply(&everything(), Some(&object), &object_with_spec(&json!({"number": 2})), &later, false, &[]).unwrap();
    assert_eq!(entry(&again, "a", "Apply").unwrap()["time"], "2031-01-01T00:00:00Z");
}

#[test]
fn whoever_applies_what_is_there_already_has_no_time() {
    let object = applied(None, "a", &json!({"number": 1}));
    let both = applied(Some(&object), "b", &json!({"number": 1}));
    assert_eq!(entry(&both, "b", "Apply").unwrap().get("time"), None, "{both}");
    assert_eq!(entry(&both, "a", "Apply"), entry(&object, "a", "Apply"));
}

#[test]
fn what_is_no_longer_applied_goes() {
    let before = json!({
        "number": 1, "text": "t", "map": {"x": "1", "y": "2"}, "set": ["a", "b"], "atomicList": ["l"],
        "items": [{"name": "i", "value": 1, "other": "o"}, {"name": "j"}], "open": {"deep": {"er": 1}},
    });
    let object = applied(None, "a", &before);
    let after = json!({"number": 1, "map": {"y": "2"}, "set": ["b"], "items": [{"name": "i", "value": 1}]});
    let object = applied(Some(&object), "a", &after);
    assert_eq!(object["spec"], after);
    let object = applied(Some(&object), "a", &json!({}));
    assert_eq!(object["spec"], json!({}));
    let nothing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a", "namespace": "n"}});
    let object = apply(&everything(), Some(&object), &nothing, &manager("a"), false, &[]).unwrap();
    assert_eq!(object, nothing, "neither a value nor an owner is left");
}

#[test]
fn what_somebody_else_owns_too_stays() {
    let object = applied(None, "a", &json!({"number": 1, "text": "t", "set": ["x", "y"]}));
    let object = applied(Some(&object), "b", &json!({"number": 1, "set": ["x"]}));
    assert_eq!(owned(&object, "b", "Apply"), json!({"f:spec": {"f:number": {}, "f:set": {"v:\"x\"": {}}}}));
    let object = applied(Some(&object), "a", &json!({"text": "t"}));
    assert_eq!(object["spec"], json!({"number": 1, "text": "t", "set": ["x"]}));
    assert_eq!(owned(&object, "a", "Apply"), json!({"f:spec": {"f:text": {}}}));
}

#[test]
fn a_list_item_goes_with_all_that_is_in_it() {
    let object = applied(None, "a", &json!({"items": [{"name": "i", "value": 1}], "number": 1}));
    let object =
        updated(&object, "controller", &json!({"items": [{"name": "i", "value": 1, "other": "o"}], "number": 1}));
    let object = applied(Some(&object), "a", &json!({"number": 1}));
    assert_eq!(object["spec"], json!({"number": 1}));
    assert_eq!(entry(&object, "controller", "Update"), None);
}

#[test]
fn a_container_that_somebody_holds_stays_when_it_is_emptied() {
    let object = applied(None, "a", &json!({"map": {}, "items": [{"name": "i"}]}));
    let object = updated(&object, "b", &json!({"map": {}, "items": [{"name": "i", "value": 1}], "set": []}));
    let object = applied(Some(&object), "c", &json!({"map": {"x": "1"}, "set": ["y"]}));
    let object = applied(Some(&object), "c", &json!({"number": 1}));
    assert_eq!(object["spec"], json!({"map": {}, "set": [], "items": [{"name": "i", "value": 1}], "number": 1}));
    assert_eq!(owned(&object, "a", "Apply")["f:spec"]["f:map"], json!({}));
    assert_eq!(owned(&object, "b", "Update")["f:spec"]["f:set"], json!({}));
}

#[test]
fn what_others_put_into_a_struct_holds_the_struct() {
    let object = applied(None, "a", &json!({"open": {"x": {"mine": 1}}}));
    let object = updated(&object, "controller", &json!({"open": {"x": {"mine": 1}}, "map": {"k": "v"}}));
    let object = applied(Some(&object), "a", &json!({}));
    assert_eq!(object["spec"], json!({"map": {"k": "v"}}));
}

#[test]
fn another_value_is_a_conflict_with_its_owner() {
    let object = applied(None, "a", &json!({"number": 1, "set": ["x"], "items": [{"name": "i", "value": 1}]}));
    assert_eq!(
        conflict_of(&object, "b", &json!({"number": 2})),
        r#"Apply failed with 1 conflict: conflict with "a": .spec.number"#
    );
    assert_eq!(
        conflict_of(&object, "b", &json!({"number": 2, "items": [{"name": "i", "value": 2}]})),
        "Apply failed with 2 conflicts: conflicts with \"a\":\n- .spec.number\n- .spec.items[name=\"i\"].value"
    );
    let object =
        updated(&object, "c", &json!({"number": 1, "text": "t", "set": ["x"], "items": [{"name": "i", "value": 1}]}));
    assert_eq!(
        conflict_of(&object, "b", &json!({"number": 2, "text": "u"})),
        "Apply failed with 2 conflicts: conflicts with \"a\":\n- .spec.number\nconflicts with \"c\" using example.com/v1:\n- .spec.text"
    );
    let Err(ApplyError::Conflicts(conflicts)) = try_apply(Some(&object), "b", &json!({"text": "u"}), false) else {
        panic!()
    };
    assert_eq!(
        (conflicts[0].manager.as_str(), conflicts[0].field.as_str()),
        (r#""c" using example.com/v1"#, ".spec.text")
    );
}

#[test]
fn a_conflict_names_the_subresource() {
    let mut object = object_with_spec(&json!({}));
    object["status"] = json!({"readyReplicas": 1});
    let status = Manager { subresource: Some("status"), ..manager("controller") };
    track_update(&deployment(), None, &mut object, &status, &["spec"]);
    let mut config = object_with_spec(&json!({}));
    config["status"] = json!({"readyReplicas": 2});
    let error = apply(&deployment(), Some(&object), &config, &manager("b"), false, &[]).unwrap_err();
    let owner = r#""controller" with subresource "status" using example.com/v1"#;
    assert_eq!(
        error.to_string(),
        format!("Apply failed with 1 conflict: conflict with {owner}: .status.readyReplicas")
    );
    let applier = Manager { subresource: Some("status"), ..manager("applier") };
    let object = apply(&deployment(), Some(&object), &config, &applier, true, &["spec"]).unwrap();
    config["status"] = json!({"readyReplicas": 3});
    let error = apply(&deployment(), Some(&object), &config, &manager("b"), false, &[]).unwrap_err();
    let owner = r#""applier" with subresource "status""#;
    assert_eq!(
        error.to_string(),
        format!("Apply failed with 1 conflict: conflict with {owner}: .status.readyReplicas")
    );
}

#[test]
fn force_takes_the_field_and_an_emptied_entry_vanishes() {
    let object = applied(None, "a", &json!({"number": 1}));
    let object = try_apply(Some(&object), "b", &json!({"number": 2}), true).unwrap();
    assert_eq!(object["spec"]["number"], 2);
    assert_eq!(entry(&object, "a", "Apply"), None);
    assert_eq!(owned(&object, "b", "Apply"), json!({"f:spec": {"f:number": {}}}));
}

#[test]
fn removing_a_shared_field_from_ones_configuration_is_no_conflict() {
    let object = applied(None, "a", &json!({"number": 1, "text": "t"}));
    let object = applied(Some(&object), "b", &json!({"number": 1}));
    let object = applied(Some(&object), "b", &json!({}));
    assert_eq!(object["spec"], json!({"number": 1, "text": "t"}));
    assert_eq!(owned(&object, "b", "Apply"), json!({"f:spec": {}}), "an empty struct is applied, too");
}

#[test]
fn an_object_from_before_any_tracking_gets_an_owner() {
    let live = object_with_spec(&json!({"number": 1, "map": {"x": "1"}}));
    let error = try_apply(Some(&live), "a", &json!({"number": 2}), false).unwrap_err();
    let owner = r#""before-first-apply" using example.com/v1"#;
    assert_eq!(error.to_string(), format!("Apply failed with 1 conflict: conflict with {owner}: .spec.number"));
    let object = applied(Some(&live), "a", &json!({"number": 1}));
    assert_eq!(
        owned(&object, "before-first-apply", "Update"),
        json!({"f:spec": {".": {}, "f:number": {}, "f:map": {".": {}, "f:x": {}}}})
    );
}

#[test]
fn fields_that_the_endpoint_resets_are_neither_written_nor_owned() {
    let mut config = object_with_spec(&json!({"replicas": 1}));
    config["status"] = json!({"readyReplicas": 9});
    let object = apply(&deployment(), None, &config, &manager("a"), false, &["status"]).unwrap();
    assert_eq!(object.get("status"), None);
    assert_eq!(owned(&object, "a", "Apply"), json!({"f:spec": {"f:replicas": {}}}));
    let status = Manager { subresource: Some("status"), ..manager("a") };
    let object = apply(&deployment(), Some(&object), &config, &status, false, &["spec"]).unwrap();
    assert_eq!(object["status"], json!({"readyReplicas": 9}));
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 2, "the subresource has an entry of its own");
    assert_eq!(entries[1]["subresource"], "status");
    assert_eq!(entries[1]["fieldsV1"], json!({"f:status": {"f:readyReplicas": {}}}));
}

#[test]
fn an_applier_has_one_entry_whatever_its_version() {
    let object = applied(None, "a", &json!({"number": 1}));
    let newer = Manager { api_version: "example.com/v2", ..manager("a") };
    let object =
        apply(&everything(), Some(&object), &object_with_spec(&json!({"text": "t"})), &newer, false, &[]).unwrap();
    assert_eq!(object["spec"], json!({"text": "t"}));
    assert_eq!(object["metadata"]["managedFields"].as_array().unwrap().len(), 1);
    assert_eq!(entry(&object, "a", "Apply").unwrap()["apiVersion"], "example.com/v2");
}

#[test]
fn a_list_that_became_atomic_is_owned_whole() {
    let granular = everything();
    let atomic = object([("spec", object([("set", list(text())), ("number", shapes::number())]))]);
    let live =
        apply(&granular, None, &object_with_spec(&json!({"set": ["a"], "number": 1})), &manager("a"), false, &[])
            .unwrap();
    let object =
        apply(&atomic, Some(&live), &object_with_spec(&json!({"number": 1})), &manager("b"), false, &[]).unwrap();
    assert_eq!(owned(&object, "a", "Apply"), json!({"f:spec": {"f:set": {}, "f:number": {}}}));
    let error =
        apply(&atomic, Some(&live), &object_with_spec(&json!({"set": ["b"]})), &manager("b"), false, &[]).unwrap_err();
    assert_eq!(error.to_string(), r#"Apply failed with 1 conflict: conflict with "a": .spec.set"#);
}

#[test]
fn merged_lists_keep_the_applied_order_and_otherwise_the_live_one() {
    let cases = [
        ("appended", json!(["a", "b"]), json!(["c"]), json!(["a", "b", "c"])),
        ("the applied order wins", json!(["a", "b", "c"]), json!(["c", "a"]), json!(["b", "c", "a"])),
        ("in between", json!(["a", "b"]), json!(["a", "x", "b"]), json!(["a", "x", "b"])),
        ("before", json!(["a", "b"]), json!(["x", "a"]), json!(["x", "a", "b"])),
        ("nothing applied", json!(["a"]), json!([]), json!(["a"])),
    ];
    for (name, live, config, expected) in cases {
        let object = object_with_spec(&json!({"set": live}));
        let object = applied(Some(&object), "a", &json!({"set": config}));
        assert_eq!(object["spec"]["set"], expected, "{name}");
        let items =
            |names: &Value| -> Vec<_> { names.as_array().unwrap().iter().map(|name| json!({"name": name})).collect() };
        let object = object_with_spec(&json!({"items": items(&live)}));
        let object = applied(Some(&object), "a", &json!({"items": items(&config)}));
        assert_eq!(object["spec"]["items"], json!(items(&expected)), "{name}, by key");
    }
}

#[test]
fn an_object_that_cannot_be_merged_is_refused_with_every_field() {
    let refused = |spec: Value| try_apply(None, "a", &spec, false).unwrap_err().to_string();
    let object = "failed to create typed patch object (n/a; example.com/v1, Kind=Thing)";
    let cases = [
        (json!({"nmuber": 1}), ".spec.nmuber: field not declared in schema"),
        (json!({"items": [{"name": "x", "valeu": 1}]}), r#".spec.items[name="x"].valeu: field not declared in schema"#),
        (json!({"items": [{"name": "x"}, {"name": "x"}]}), r#".spec.items: duplicate entries for key [name="x"]"#),
        (json!({"set": ["x", "x"]}), r#".spec.set: duplicate entries for key [="x"]"#),
        (
            json!({"items": [{"value": 1}]}),
            r#".spec.items: element 0: the item has none of the key fields ["name"], and they have no default"#,
        ),
        (json!({"items": ["x"]}), ".spec.items: element 0: an item of an associative list must be an object"),
        (json!({"set": [["x"]]}), ".spec.set: element 0: an item of a set must be a scalar"),
        (json!({"number": "1"}), ".spec.number: expected numeric (int or float), got string"),
        (json!({"text": 1}), ".spec.text: expected string, got number"),
        (json!({"map": ["a"]}), ".spec.map: expected map, got list"),
        (json!({"set": {}}), ".spec.set: expected list, got map"),
        (json!({"atomicList": [1]}), ".spec.atomicList[0]: expected string, got number"),
    ];
    for (spec, expected) in cases {
        assert_eq!(refused(spec), format!("{object}: {expected}"));
    }
    let both = refused(json!({"number": "1", "nope": 1}));
    assert_eq!(
        both,
        format!(
            "{object}: errors:\n  .spec.nope: field not declared in schema\n  .spec.number: expected numeric (int or float), got string"
        )
    );
    let mut config = object_with_spec(&json!({"open": {"any": {"thing": 1}}}));
    config["metadata"]["unknownMeta"] = json!(1);
    let error = apply(&everything(), None, &config, &manager("a"), false, &[]).unwrap_err();
    assert_eq!(error.to_string(), format!("{object}: .metadata.unknownMeta: field not declared in schema"));
    assert!(apply(&Schema::default(), None, &object_with_spec(&json!({"any": 1})), &manager("a"), false, &[]).is_ok());
}

#[test]
fn unreadable_owners_stop_an_apply() {
    let mut live = object_with_spec(&json!({}));
    live["metadata"]["managedFields"] = json!([{"manager": "x", "operation": "Delete", "apiVersion": "v1"}]);
    let error = try_apply(Some(&live), "a", &json!({}), false).unwrap_err();
    assert!(matches!(error, ApplyError::Undecodable(_)), "{error}");
}

mod from_client_side_apply {
    use super::*;

    const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

    /// An object as `kubectl apply` leaves it, then changed by somebody else if asked.
    fn live(annotated: &Value, spec: &Value) -> Value {
        let mut object = object_with_spec(spec);
        object["metadata"]["annotations"] = json!({ANNOTATION: object_with_spec(annotated).to_string()});
        track_update(&everything(), None, &mut object, &manager("kubectl-client-side-apply"), &[]);
        object
    }

    #[test]
    fn kubectl_takes_over_what_it_applied_before() {
        let live = live(&json!({"number": 1, "text": "t"}), &json!({"number": 1, "text": "t"}));
        let object = applied(Some(&live), "kubectl", &json!({"number": 2}));
        assert_eq!(object["spec"]["number"], 2);
        assert_eq!(owned(&object, "kubectl", "Apply"), json!({"f:spec": {"f:number": {}}}));
        let annotation = object["metadata"]["annotations"][ANNOTATION].as_str().unwrap();
        let annotation: Value = serde_json::from_str(annotation).unwrap();
        assert_eq!(annotation, object_with_spec(&json!({"number": 2})), "the annotation follows");
    }

    #[test]
    fn but_not_what_has_changed_since() {
        let live = live(&json!({"number": 1, "text": "t"}), &json!({"number": 5, "text": "t"}));
        let owner = r#""kubectl-client-side-apply" using example.com/v1"#;
        assert_eq!(
            conflict_of(&live, "kubectl", &json!({"number": 2, "text": "u"})),
            format!("Apply failed with 1 conflict: conflict with {owner}: .spec.number")
        );
    }

    #[test]
    fn and_nobody_else_does() {
        let live = live(&json!({"number": 1}), &json!({"number": 1}));
        assert!(conflict_of(&live, "other", &json!({"number": 2})).contains(".spec.number"));
        let object = applied(Some(&live), "other", &json!({"number": 1}));
        assert_eq!(object["metadata"]["annotations"], live["metadata"]["annotations"]);
    }
}
