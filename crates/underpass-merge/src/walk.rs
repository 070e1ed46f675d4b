//! From documents to sets of fields, and from sets back: which fields a document has, and a document without some of them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;
use underpass_schema::Schema;

use crate::fieldset::{Branch, FieldSet};
use crate::node::{ListRules, Node, Shape};
use crate::path::PathElement;

/// The fields that somebody who applies this document owns: every leaf, item and map entry. A struct that only holds such
/// fields is not owned itself.
#[must_use]
pub fn to_field_set(schema: &Schema, document: &Value) -> FieldSet {
    owned_below(Node::resource(schema), document)
}

/// Every field there is below a value, structs included.
pub(crate) fn all_below(node: Node<'_>, value: &Value) -> FieldSet {
    let mut all = FieldSet::new();
    match (node.shape(value), value) {
        (Shape::Map, Value::Object(fields)) => {
            for (name, value) in fields {
                all.put(PathElement::Field(name.clone()), true, all_below(node.field(name).node, value));
            }
        }
        (Shape::List(rules), Value::Array(items)) => {
            for (element, item) in index(rules, items) {
                let below = item.single().map(|item| all_below(rules.item, item)).unwrap_or_default();
                all.put(element, true, below);
            }
        }
        _ => {}
    }
    all
}

/// The items of a list that have the same name. Only a list that was never applied can have more than one.
pub(crate) enum Named<'v> {
    One(&'v Value),
    Many(Vec<&'v Value>),
}

impl<'v> Named<'v> {
    pub(crate) fn single(&self) -> Option<&'v Value> {
        match self {
            Self::One(item) => Some(item),
            Self::Many(_) => None,
        }
    }

    fn add(&mut self, item: &'v Value) {
        match self {
            Self::One(first) => *self = Self::Many(vec![first, item]),
            Self::Many(items) => items.push(item),
        }
    }
}

/// The items of a list by name. Items without a name belong to nobody.
pub(crate) fn index<'v>(rules: ListRules<'_>, items: &'v [Value]) -> BTreeMap<PathElement, Named<'v>> {
    let mut named = BTreeMap::new();
    for item in items {
        if let Ok(element) = rules.element(item) {
            named.entry(element).and_modify(|others: &mut Named<'v>| others.add(item)).or_insert(Named::One(item));
        }
    }
    named
}

/// What becomes of a container that is not to be removed itself, when all that was in it goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Emptied<'f> {
    /// It becomes `null`, which counts as a field of its own even where an empty list does not.
    Nulled,
    /// It goes too, unless it is in this set: then it stays, empty.
    GoneUnless(&'f FieldSet),
}

/// The document without the fields of the set.
pub(crate) fn without(schema: &Schema, mut document: Value, fields: &FieldSet, emptied: Emptied<'_>) -> Value {
    remove_below(Node::resource(schema), &mut document, fields, emptied);
    document
}

/// The set with every struct that holds a field of it: to remove `.spec` because all that was applied below it is gone.
pub(crate) fn with_structs(schema: &Schema, set: &FieldSet) -> FieldSet {
    let mut set = set.clone();
    add_structs(Node::resource(schema), &mut set);
    set
}

/// Follows a schema in which a list or map has become one value since the set was written: who owned parts owns the whole.
pub(crate) fn collapse(schema: &Schema, set: &mut FieldSet) -> bool {
    collapse_below(Node::resource(schema), set)
}

fn owned_below(node: Node<'_>, value: &Value) -> FieldSet {
    let mut owned = FieldSet::new();
    match (node.shape(value), value) {
        (Shape::Map, Value::Object(fields)) => {
            for (name, value) in fields {
                let field = node.field(name);
                let is_leaf = matches!(field.node.shape(value), Shape::Leaf);
                let is_empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
                let member = is_leaf || is_empty || !field.declared;
                owned.put(PathElement::Field(name.clone()), member, owned_below(field.node, value));
            }
        }
        (Shape::List(rules), Value::Array(items)) => {
            for (element, item) in index(rules, items) {
                let below = item.single().map(|item| owned_below(rules.item, item)).unwrap_or_default();
                owned.put(element, true, below);
            }
        }
        _ => {}
    }
    owned
}

/// Whether the value has been emptied.
fn remove_below(node: Node<'_>, value: &mut Value, fields: &FieldSet, emptied: Emptied<'_>) -> bool {
    match (node.shape(value), value) {
        (Shape::Map, Value::Object(object)) if !object.is_empty() => {
            for (element, branch) in fields.branches() {
                let PathElement::Field(name) = element else { continue };
                let Some(value) = object.get_mut(name) else { continue };
                if !stays(node.field(name).node, value, branch, emptied.at(element)) {
                    object.remove(name);
                }
            }
            object.is_empty()
        }
        (Shape::List(rules), Value::Array(items)) if !items.is_empty() => {
            items.retain_mut(|item| {
                let Ok(element) = rules.element(item) else { return true };
                fields.get(&element).is_none_or(|branch| stays(rules.item, item, branch, emptied.at(&element)))
            });
            items.is_empty()
        }
        _ => false,
    }
}

/// Removes what the set says about one part of a container, and says whether the part itself stays.
fn stays(node: Node<'_>, value: &mut Value, branch: &Branch, emptied: (bool, Emptied<'_>)) -> bool {
    if branch.member {
        return false;
    }
    let (kept, emptied) = emptied;
    if !remove_below(node, value, &branch.below, emptied) {
        return true;
    }
    if matches!(emptied, Emptied::Nulled) {
        *value = Value::Null;
    }
    kept
}

impl<'f> Emptied<'f> {
    /// Whether a part of a container stays when it is emptied, and what holds below it.
    fn at(self, element: &PathElement) -> (bool, Self) {
        match self {
            Self::Nulled => (true, self),
            Self::GoneUnless(held) => match held.get(element) {
                Some(branch) => (branch.member, Self::GoneUnless(&branch.below)),
                None => (false, Self::GoneUnless(&NOTHING)),
            },
        }
    }
}

static NOTHING: LazyLock<FieldSet> = LazyLock::new(FieldSet::new);

/// The node below an element of a set; sets know no values, so it is read from the schema alone.
fn node_below<'s>(node: Node<'s>, element: &PathElement) -> Node<'s> {
    match element {
        PathElement::Field(name) => node.field(name).node,
        _ => node.item(),
    }
}

fn add_structs(node: Node<'_>, set: &mut FieldSet) {
    for (element, branch) in set.branches_mut() {
        if let PathElement::Field(name) = element {
            branch.member |= node.field(name).declared;
        }
        add_structs(node_below(node, element), &mut branch.below);
    }
}

fn collapse_below(node: Node<'_>, set: &mut FieldSet) -> bool {
    let mut changed = false;
    for (element, branch) in set.branches_mut() {
        if branch.below.is_empty() {
            continue;
        }
        let below = node_below(node, element);
        if below.is_one_value() {
            branch.member = true;
            branch.below = FieldSet::new();
            changed = true;
        } else {
            changed |= collapse_below(below, &mut branch.below);
        }
    }
    changed
}
