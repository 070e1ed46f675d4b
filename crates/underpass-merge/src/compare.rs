//! Which fields differ between two documents.

use serde_json::{Map, Value};
use underpass_schema::Schema;

use crate::fieldset::FieldSet;
use crate::node::{ListRules, Node, Shape};
use crate::path::{PathElement, same};
use crate::walk::{Named, all_below, index};

/// The fields that differ between an old and a new document; none is in more than one of the sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    pub added: FieldSet,
    pub modified: FieldSet,
    pub removed: FieldSet,
}

/// Compares two documents field by field. Nothing is cloned but the paths of what differs.
#[must_use]
pub fn compare(schema: &Schema, old: &Value, new: &Value) -> Comparison {
    let mut comparison = Comparison::default();
    differ(Node::resource(schema), old, new, &mut comparison);
    comparison
}

impl Comparison {
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// The comparison without these fields and what is below them.
    #[must_use]
    pub fn without_recursive(self, fields: &FieldSet) -> Self {
        self.each(|set| set.recursive_difference(fields))
    }

    /// The comparison without exactly these fields.
    #[must_use]
    pub fn without(self, fields: &FieldSet) -> Self {
        self.each(|set| set.difference(fields))
    }

    fn each(self, change: impl Fn(FieldSet) -> FieldSet) -> Self {
        Self { added: change(self.added), modified: change(self.modified), removed: change(self.removed) }
    }

    /// Takes in what differs in one part of a container.
    fn nest(&mut self, element: PathElement, modified: bool, below: Self) {
        if !modified && below.is_same() {
            return;
        }
        self.added.put(element.clone(), false, below.added);
        self.removed.put(element.clone(), false, below.removed);
        self.modified.put(element, modified, below.modified);
    }
}

/// Fills in what differs below, and says whether the value as a whole was modified.
fn differ(node: Node<'_>, old: &Value, new: &Value, into: &mut Comparison) -> bool {
    match node.shapes(old, new) {
        (Shape::Leaf, Shape::Leaf) => !same(old, new),
        (Shape::Map, Shape::Map) => differ_in_fields(node, old, new, into),
        (Shape::List(rules), Shape::List(_)) => differ_in_items(rules, old, new, into),
        (was, is) => {
            let replaced = goes_whole(node, was, old, &mut into.removed);
            goes_whole(node, is, new, &mut into.added) || replaced
        }
    }
}

/// A value whose shape the other side does not have: its parts all come or go, or, without any, it is modified.
fn goes_whole(node: Node<'_>, shape: Shape<'_>, value: &Value, into: &mut FieldSet) -> bool {
    let below = all_below(node, value);
    if matches!(shape, Shape::Leaf) || below.is_empty() {
        return true;
    }
    *into = std::mem::take(into).union(below);
    false
}

fn differ_in_fields(node: Node<'_>, old: &Value, new: &Value, into: &mut Comparison) -> bool {
    let none = Map::new();
    let (before, after) = (old.as_object().unwrap_or(&none), new.as_object().unwrap_or(&none));
    if before.is_empty() && after.is_empty() {
        return old != new;
    }
    for (name, value) in before {
        let field = node.field(name).node;
        match after.get(name) {
            Some(new_value) => {
                let mut below = Comparison::default();
                let modified = differ(field, value, new_value, &mut below);
                if modified || !below.is_same() {
                    into.nest(PathElement::Field(name.clone()), modified, below);
                }
            }
            None => into.removed.put(PathElement::Field(name.clone()), true, all_below(field, value)),
        }
    }
    for (name, value) in after.iter().filter(|(name, _)| !before.contains_key(*name)) {
        into.added.put(PathElement::Field(name.clone()), true, all_below(node.field(name).node, value));
    }
    false
}

fn differ_in_items(rules: ListRules<'_>, old: &Value, new: &Value, into: &mut Comparison) -> bool {
    if old == new {
        return false;
    }
    let items = |value: &'_ Value| -> usize { value.as_array().map_or(0, Vec::len) };
    if items(old) == 0 && items(new) == 0 {
        return true;
    }
    let before = index(rules, old.as_array().map_or(&[], Vec::as_slice));
    let mut after = index(rules, new.as_array().map_or(&[], Vec::as_slice));
    for (element, was) in before {
        match after.remove(&element) {
            Some(is) => differ_in_item(rules.item, element, &was, &is, into),
            None => into.removed.put(element, true, below(rules.item, &was)),
        }
    }
    for (element, is) in after {
        into.added.put(element, true, below(rules.item, &is));
    }
    false
}

/// Items that share their name are one value together.
fn differ_in_item(node: Node<'_>, element: PathElement, was: &Named<'_>, is: &Named<'_>, into: &mut Comparison) {
    match (was, is) {
        (Named::One(old), Named::One(new)) => {
            let mut below = Comparison::default();
            let modified = differ(node, old, new, &mut below);
            into.nest(element, modified, below);
        }
        (Named::Many(old), Named::Many(new)) => into.modified.put(element, old != new, FieldSet::new()),
        (Named::Many(_), Named::One(_)) => {
            into.added.put(element.clone(), true, below(node, is));
            into.removed.put(element, true, FieldSet::new());
        }
        (Named::One(_), Named::Many(_)) => {
            into.removed.put(element.clone(), true, below(node, was));
            into.added.put(element, true, FieldSet::new());
        }
    }
}

fn below(node: Node<'_>, items: &Named<'_>) -> FieldSet {
    items.single().map(|item| all_below(node, item)).unwrap_or_default()
}
