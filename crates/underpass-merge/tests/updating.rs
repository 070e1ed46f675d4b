//! Ownership after writes that are not applies.

mod shapes;

use serde_json::{Value, json};
use shapes::{at, entry, everything, manager, object_with_spec, owned};
use underpass_merge::{Manager, apply, keep_times_if_unchanged, track_update};

fn created(name: &str, spec: &Value) -> Value {
    let mut object = object_with_spec(spec);
    track_update(&everything(), None, &mut object, &manager(name), &[]);
    object
}

/// The live object with another spec, written by somebody who sends the owners back.
fn updated(live: &Value, writer: &Manager<'_>, spec: &Value) -> Value {
    let mut new = live.clone();
    new["spec"] = spec.clone();
    track_update(&everything(), Some(live), &mut new, writer, &[]);
    new
}

fn owners(object: &Value) -> Vec<&str> {
    let entries = object["metadata"]["managedFields"].as_array();
    entries.into_iter().flatten().filter_map(|entry| entry["manager"].as_str()).collect()
}

#[test]
fn a_creator_owns_everything_structs_included() {
    let object = created("a", &json!({"number": 1, "map": {"x": "1"}, "items": [{"name": "i"}]}));
    let items = json!({".": {}, r#"k:{"name":"i"}"#: {".": {}, "f:name": {}}});
    assert_eq!(
        owned(&object, "a", "Update"),
        json!({"f:spec": {".": {}, "f:number": {}, "f:map": {".": {}, "f:x": {}}, "f:items": items}})
    );
    assert_eq!(entry(&object, "a", "Update").unwrap()["time"], "2030-01-01T00:00:00Z");
}

#[test]
fn a_nameless_writer_is_unknown() {
    assert_eq!(owners(&created("", &json!({"number": 1}))), ["unknown"]);
}

#[test]
fn who_changes_a_field_owns_it_and_nobody_else_does() {
    let object = created("a", &json!({"number": 1, "text": "t", "set": ["x"]}));
    let object = updated(&object, &manager("b"), &json!({"number": 2, "text": "t", "set": ["x", "y"]}));
    assert_eq!(
        owned(&object, "a", "Update"),
        json!({"f:spec": {".": {}, "f:text": {}, "f:set": {".": {}, "v:\"x\"": {}}}})
    );
    assert_eq!(owned(&object, "b", "Update"), json!({"f:spec": {"f:number": {}, "f:set": {"v:\"y\"": {}}}}));
    let object = updated(&object, &manager("b"), &json!({"number": 2, "text": "u", "set": ["x", "y"]}));
    assert_eq!(
        owned(&object, "b", "Update")["f:spec"],
        json!({"f:number": {}, "f:text": {}, "f:set": {"v:\"y\"": {}}})
    );
}

#[test]
fn what_is_removed_is_nobodys_and_an_emptied_entry_vanishes() {
    let object = created("a", &json!({"number": 1}));
    let object = updated(&object, &manager("b"), &json!({"number": 1, "text": "t"}));
    let object = updated(&object, &manager("c"), &json!({"number": 1}));
    assert_eq!(owners(&object), ["a"], "b is left with nothing, and c has set nothing");
}

#[test]
fn an_update_takes_fields_from_an_applier_of_the_same_name() {
    let object =
        apply(&everything(), None, &object_with_spec(&json!({"number": 1, "text": "t"})), &manager("a"), false, &[])
            .unwrap();
    let object = updated(&object, &manager("a"), &json!({"number": 2, "text": "t"}));
    assert_eq!(owned(&object, "a", "Apply"), json!({"f:spec": {"f:text": {}}}));
    assert_eq!(owned(&object, "a", "Update"), json!({"f:spec": {"f:number": {}}}));
}

#[test]
fn an_update_without_effect_changes_no_entry() {
    let object = created("a", &json!({"number": 1}));
    let mut new = object.clone();
    new["metadata"]["resourceVersion"] = json!("7");
    let expected = new.clone();
    track_update(&everything(), Some(&object), &mut new, &at("b", "2031-01-01T00:00:00Z"), &[]);
    assert_eq!(new, expected);
}

#[test]
fn only_the_writer_gets_a_new_time() {
    let object = created("a", &json!({"number": 1, "text": "t"}));
    let object = updated(&object, &at("b", "2031-01-01T00:00:00Z"), &json!({"number": 2, "text": "t"}));
    assert_eq!(entry(&object, "a", "Update").unwrap()["time"], "2030-01-01T00:00:00Z");
    assert_eq!(entry(&object, "b", "Update").unwrap()["time"], "2031-01-01T00:00:00Z");
}

#[test]
fn a_request_without_owners_keeps_the_live_ones() {
    let live = created("a", &json!({"number": 1, "text": "t"}));
    for sent in [None, Some(json!(null)), Some(json!([{"manager": "broken"}])), Some(json!("x"))] {
        let mut new = object_with_spec(&json!({"number": 2, "text": "t"}));
        if let Some(sent) = &sent {
            new["metadata"]["managedFields"] = sent.clone();
        }
        track_update(&everything(), Some(&live), &mut new, &manager("b"), &[]);
        assert_eq!(owners(&new), ["a", "b"], "{sent:?}");
    }
}

#[test]
fn a_request_can_rewrite_or_reset_the_owners() {
    let live = created("a", &json!({"number": 1}));
    let mut renamed = live.clone();
    renamed["metadata"]["managedFields"][0]["manager"] = json!("z");
    renamed["metadata"]["managedFields"][0]["operation"] = json!("Apply");
    track_update(&everything(), Some(&live), &mut renamed, &manager("b"), &[]);
    assert_eq!(
        owned(&renamed, "z", "Apply"),
        owned(&live, "a", "Update"),
        "kubectl moves from client-side apply like this"
    );
    for reset in [json!([]), json!([{}])] {
        let mut new = live.clone();
        new["metadata"]["managedFields"] = reset;
        track_update(&everything(), Some(&live), &mut new, &manager("b"), &[]);
        assert_eq!(new["metadata"].get("managedFields"), None);
        let next = updated(&new, &manager("b"), &json!({"number": 2}));
        assert_eq!(next["metadata"].get("managedFields"), None, "not tracked until the next apply");
    }
}

#[test]
fn a_subresource_cannot_rewrite_the_owners() {
    let live = created("a", &json!({"number": 1}));
    let mut new = live.clone();
    new["metadata"]["managedFields"] = json!([]);
    new["status"] = json!({"x": 1});
    let status = Manager { subresource: Some("status"), ..manager("a") };
    track_update(&shapes::deployment(), Some(&live), &mut new, &status, &["spec"]);
    let entries = new["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 2);
    assert_eq!((&entries[0]["subresource"], &entries[1]["subresource"]), (&Value::Null, &json!("status")));
}

#[test]
fn fields_that_the_endpoint_resets_do_not_change_hands() {
    let live = created("a", &json!({"number": 1}));
    let mut new = live.clone();
    new["spec"]["number"] = json!(2);
    track_update(&everything(), Some(&live), &mut new, &manager("b"), &["spec"]);
    assert_eq!(owners(&new), ["a"]);
}

#[test]
fn appliers_come_first_then_by_time_then_by_name() {
    let mut object = object_with_spec(&json!({"number": 1}));
    track_update(&everything(), None, &mut object, &at("z", "2030-01-01T00:00:00Z"), &[]);
    let apply_as = |object: &Value, name, time, spec: Value| {
        apply(&everything(), Some(object), &object_with_spec(&spec), &at(name, time), false, &[]).unwrap()
    };
    let object = apply_as(&object, "late", "2032-01-01T00:00:00Z", json!({"text": "t"}));
    let object = apply_as(&object, "early", "2031-01-01T00:00:00Z", json!({"map": {"x": "1"}}));
    let mut new = object.clone();
    new["spec"]["set"] = json!(["x"]);
    track_update(&everything(), Some(&object), &mut new, &at("b", "2030-01-01T00:00:00Z"), &[]);
    assert_eq!(owners(&new), ["early", "late", "b", "z"]);
}

#[test]
fn the_oldest_updaters_are_rolled_up() {
    let mut object = created("creator", &json!({"map": {}}));
    let mut map = serde_json::Map::new();
    for writer in 0..12 {
        map.insert(format!("k{writer}"), json!("v"));
        let (name, time) = (format!("w{writer}"), format!("2030-01-02T00:00:{writer:02}Z"));
        object = updated(&object, &at(&name, &time), &json!({"map": map}));
    }
    let expected = ["ancient-changes", "w3", "w4", "w5", "w6", "w7", "w8", "w9", "w10", "w11"];
    assert_eq!(owners(&object), expected);
    let rolled = entry(&object, "ancient-changes", "Update").unwrap();
    assert_eq!(rolled["time"], "2030-01-02T00:00:02Z");
    assert_eq!(rolled["fieldsV1"]["f:spec"], json!({".": {}, "f:map": {".": {}, "f:k0": {}, "f:k1": {}, "f:k2": {}}}));
    let newer = Manager { api_version: "example.com/v2", ..at("w12", "2030-01-02T00:00:12Z") };
    map.insert("k12".to_owned(), json!("v"));
    let object = updated(&object, &newer, &json!({"map": map}));
    assert_eq!(owners(&object)[..2], ["ancient-changes", "w4"], "only entries of one version are united");
}

#[test]
fn times_alone_are_no_change() {
    let live = created("a", &json!({"number": 1}));
    let mut later = live.clone();
    later["metadata"]["managedFields"][0]["time"] = json!("2031-01-01T00:00:00Z");
    let mut new = later.clone();
    keep_times_if_unchanged(&live, &mut new);
    assert_eq!(new, live);
    for (pointer, value) in
        [("/spec/number", json!(2)), ("/metadata/name", json!("b")), ("/metadata/managedFields/0/manager", json!("b"))]
    {
        let mut new = later.clone();
        *new.pointer_mut(pointer).unwrap() = value;
        let expected = new.clone();
        keep_times_if_unchanged(&live, &mut new);
        assert_eq!(new, expected, "{pointer}");
    }
}
