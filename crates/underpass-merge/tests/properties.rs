//! What must hold for every document, patch and sequence of writers.

#![allow(unreachable_pub, reason = "the model is shared only with itself")]

mod model;
mod shapes;

use std::collections::{BTreeMap, BTreeSet};

use model::{Fact, Facts, Model, from_object, owners_of, to_spec};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use shapes::{deployment, everything, manager, object_with_spec};
use underpass_merge::{
    ApplyError, FieldSet, PathElement, Scalar, apply, compare, merge_patch, strategic_merge_patch, to_field_set,
    track_update,
};

#[derive(Debug, Clone)]
enum Write {
    Apply { manager: &'static str, config: Facts, force: bool },
    Update { manager: &'static str, new: Facts },
}

fn facts() -> impl Strategy<Value = Facts> {
    let name = || prop::sample::select(vec!["a", "b", "c", "d"]).prop_map(str::to_owned);
    let entries = prop::collection::btree_map(name().prop_map(Fact::Entry), 0..3_i64, 0..3);
    let members = prop::collection::btree_map(name().prop_map(Fact::Member), Just(0_i64), 0..3);
    let items = prop::collection::btree_map(name(), prop::option::of(0..3_i64), 0..3);
    (entries, members, items).prop_map(|(entries, members, items)| {
        let mut facts: Facts = entries.into_iter().chain(members).collect();
        for (name, value) in items {
            facts.insert(Fact::Item(name.clone()), 0);
            facts.extend(value.map(|value| (Fact::ItemValue(name), value)));
        }
        facts
    })
}

fn write() -> impl Strategy<Value = Write> {
    let name = || prop::sample::select(vec!["one", "two"]);
    prop_oneof![
        3 => (name(), facts(), any::<bool>()).prop_map(|(manager, config, force)| Write::Apply { manager, config, force }),
        1 => (name(), facts()).prop_map(|(manager, new)| Write::Update { manager, new }),
    ]
}

/// Does the write to the object; a conflict leaves it and is counted.
fn execute(object: &mut Value, write: &Write) -> Result<(), usize> {
    match write {
        Write::Apply { manager: name, config, force } => {
            let config = object_with_spec(&to_spec(config));
            match apply(&everything(), Some(object), &config, &manager(name), *force, &[]) {
                Ok(applied) => *object = applied,
                Err(ApplyError::Conflicts(conflicts)) => return Err(conflicts.len()),
                Err(other) => panic!("{other}"),
            }
        }
        Write::Update { manager: name, new } => {
            let live = object.clone();
            object["spec"] = to_spec(new);
            track_update(&everything(), Some(&live), object, &manager(name), &[]);
        }
    }
    Ok(())
}

fn model_execute(model: &mut Model, write: &Write) -> Result<(), usize> {
    match write {
        Write::Apply { manager, config, force } => model.apply(manager, config, *force),
        Write::Update { manager, new } => {
            model.update(manager, new);
            Ok(())
        }
    }
}

proptest! {
    #[test]
    fn writers_leave_the_values_and_owners_of_the_model(first in facts(), writes in prop::collection::vec(write(), 1..8)) {
        let mut model = Model::default();
        let mut object = object_with_spec(&to_spec(&first));
        // A label that nobody touches keeps the object tracked when its spec has no owner.
        object["metadata"]["labels"] = json!({"tracked": "yes"});
        model.update("creator", &first);
        track_update(&everything(), None, &mut object, &manager("creator"), &[]);
        for write in &writes {
            prop_assert_eq!(execute(&mut object, write), model_execute(&mut model, write), "{:?}", write);
            prop_assert_eq!(from_object(&object), model.facts.clone(), "{:?}", write);
            prop_assert_eq!(owners_of(&object), model.owners.clone(), "{:?}", write);
        }
    }

    #[test]
    fn applying_twice_is_applying_once(first in facts(), config in facts()) {
        let mut object = object_with_spec(&to_spec(&first));
        track_update(&everything(), None, &mut object, &manager("creator"), &[]);
        let write = Write::Apply { manager: "one", config, force: true };
        execute(&mut object, &write).expect("it is forced");
        let once = object.clone();
        execute(&mut object, &write).expect("it is forced");
        prop_assert_eq!(object, once);
    }

    #[test]
    fn a_comparison_is_the_difference_of_the_fields(old in facts(), new in facts()) {
        // With one field that stays, the spec itself never comes or goes.
        let object = |facts: &Facts| {
            let mut object = object_with_spec(&to_spec(facts));
            object["spec"]["number"] = json!(1);
            object
        };
        let (old, new) = (object(&old), object(&new));
        let comparison = compare(&everything(), &old, &new);
        let (had, has) = (to_field_set(&everything(), &old), to_field_set(&everything(), &new));
        prop_assert_eq!(has.clone().difference(&had), comparison.added.intersection(&has));
        prop_assert_eq!(had.clone().difference(&has), comparison.removed.intersection(&had));
        prop_assert_eq!(comparison.is_same(), old == new);
    }

    #[test]
    fn a_set_survives_its_text(set in field_set()) {
        let text = set.to_fields_v1();
        prop_assert_eq!(FieldSet::from_fields_v1(&text).expect("it was just printed"), set);
    }

    #[test]
    fn sets_are_sets_of_paths(a in field_set(), b in field_set()) {
        let (of_a, of_b) = (paths(&a), paths(&b));
        let below = |path: &[PathElement]| (1..=path.len()).any(|end| of_b.contains(&path[..end]));
        prop_assert_eq!(paths(&a.clone().union(b.clone())), &of_a | &of_b);
        prop_assert_eq!(paths(&a.intersection(&b)), &of_a & &of_b);
        prop_assert_eq!(a.intersects(&b), !of_a.is_disjoint(&of_b));
        prop_assert_eq!(paths(&a.clone().difference(&b)), &of_a - &of_b);
        prop_assert_eq!(paths(&a.clone().recursive_difference(&b)), of_a.iter().filter(|path| !below(path)).cloned().collect());
        prop_assert!(of_a.iter().all(|path| a.has(path)));
    }

    #[test]
    fn a_merge_patch_of_the_difference_leads_there(from in document(), to in document()) {
        let patch = difference(&from, &to);
        prop_assert_eq!(merge_patch(from, &patch), to);
    }

    #[test]
    fn a_strategic_merge_patch_is_idempotent(live in pod(false), patch in pod(true)) {
        let once = strategic_merge_patch(&deployment(), live, &patch).expect("the patch is valid");
        let twice = strategic_merge_patch(&deployment(), once.clone(), &patch).expect("the patch is valid");
        prop_assert_eq!(once, twice);
    }
}

fn path_element() -> impl Strategy<Value = PathElement> {
    let scalar = || {
        prop_oneof![
            "[a-c<&\"\\\\/é]{0,3}".prop_map(|text| json!(text)),
            (-2..3_i64).prop_map(|number| json!(number)),
            any::<bool>().prop_map(|truth| json!(truth)),
        ]
        .prop_map(Scalar)
    };
    prop_oneof![
        "[a-c./:]{0,2}".prop_map(PathElement::Field),
        prop::collection::btree_map("[a-b]", scalar(), 1..3)
            .prop_map(|key| PathElement::Key(key.into_iter().collect())),
        scalar().prop_map(PathElement::Value),
        (0..3_i64).prop_map(PathElement::Index),
    ]
}

fn field_set() -> impl Strategy<Value = FieldSet> {
    let path = prop::collection::vec(path_element(), 1..4);
    prop::collection::vec(path, 0..8).prop_map(|paths| {
        let mut set = FieldSet::new();
        paths.iter().for_each(|path| set.insert(path));
        set
    })
}

fn paths(set: &FieldSet) -> BTreeSet<Vec<PathElement>> {
    let mut paths = BTreeSet::new();
    set.for_each(|path| {
        paths.insert(path.to_vec());
    });
    paths
}

/// An object without `null`, which a merge patch cannot state.
fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        (0..3_i64).prop_map(|number| json!(number)),
        prop::collection::vec(0..2_i64, 0..2).prop_map(|list| json!(list))
    ];
    let objects = leaf
        .prop_recursive(3, 16, 4, |inner| prop::collection::btree_map("[a-d]", inner, 0..4).prop_map(|map| json!(map)));
    prop::collection::btree_map("[a-d]", objects, 0..4).prop_map(|map| json!(map))
}

fn difference(from: &Value, to: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (from, to) else { return to.clone() };
    let gone = old.keys().filter(|name| !new.contains_key(*name)).map(|name| (name.clone(), Value::Null));
    let changed = new.iter().filter(|(name, value)| old.get(*name) != Some(value));
    let changed = changed.map(|(name, value)| {
        (name.clone(), old.get(name).map_or_else(|| value.clone(), |before| difference(before, value)))
    });
    Value::Object(gone.chain(changed).collect::<Map<_, _>>())
}

/// A Deployment's pod, or a strategic merge patch of one.
fn pod(is_patch: bool) -> impl Strategy<Value = Value> {
    let deletions = if is_patch { 0..4_u8 } else { 1..4 };
    let name = || prop::sample::select(vec!["a", "b", "c", "d"]);
    let env = prop::collection::btree_map(name(), 0..3_u8, 0..3).prop_map(|env| {
        env.into_iter().map(|(name, value)| json!({"name": name, "value": value.to_string()})).collect::<Vec<_>>()
    });
    let container = (prop::option::of(0..3_u8), env, deletions);
    let containers = prop::collection::btree_map(name(), container, 0..4).prop_shuffle_values();
    let finalizers = prop::collection::vec(name(), 0..4).prop_map(|names| names.into_iter().collect::<BTreeSet<_>>());
    (containers, finalizers).prop_map(move |(containers, finalizers)| {
        let containers: Vec<_> =
            containers.into_iter().map(|(name, container)| container_json(name, container)).collect();
        json!({"metadata": {"finalizers": finalizers}, "spec": {"template": {"spec": {"containers": containers}}}})
    })
}

fn container_json(name: &str, (image, env, deletion): (Option<u8>, Vec<Value>, u8)) -> Value {
    if deletion == 0 {
        return json!({"name": name, "$patch": "delete"});
    }
    let mut container = json!({"name": name, "env": env});
    if let Some(image) = image {
        container["image"] = json!(image.to_string());
    }
    container
}

/// Lists in any order, not only in that of their keys.
trait ShuffleValues<V> {
    fn prop_shuffle_values(self) -> impl Strategy<Value = Vec<(&'static str, V)>>;
}

impl<V: Clone + std::fmt::Debug, S: Strategy<Value = BTreeMap<&'static str, V>>> ShuffleValues<V> for S {
    fn prop_shuffle_values(self) -> impl Strategy<Value = Vec<(&'static str, V)>> {
        self.prop_map(|map| map.into_iter().collect::<Vec<_>>()).prop_shuffle()
    }
}
