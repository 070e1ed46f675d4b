//! The structured merge: what a document becomes when another is applied onto it.
//!
//! Nothing is removed here. Maps merge by field, associative lists and sets by item, everything else is replaced.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use underpass_schema::Schema;

use crate::node::{ListRules, Node, Shape};
use crate::path::PathElement;

/// The live document with the applied one merged in. Items of the applied lists that have no name are kept out: check first.
#[must_use]
pub fn merge(schema: &Schema, live: &Value, applied: &Value) -> Value {
    merge_values(Node::resource(schema), live, applied)
}

fn merge_values(node: Node<'_>, live: &Value, applied: &Value) -> Value {
    match node.shapes(applied, live) {
        (Shape::Map, Shape::Map) => merge_fields(node, live, applied),
        (Shape::List(rules), Shape::List(_)) => merge_items(rules, live, applied),
        _ => applied.clone(),
    }
}

fn merge_fields(node: Node<'_>, live: &Value, applied: &Value) -> Value {
    let none = Map::new();
    let (before, changes) = (live.as_object().unwrap_or(&none), applied.as_object().unwrap_or(&none));
    if before.is_empty() && changes.is_empty() {
        return applied.clone();
    }
    let mut merged = Map::new();
    for (name, value) in before {
        let value = match changes.get(name) {
            Some(change) => merge_values(node.field(name).node, value, change),
            None => value.clone(),
        };
        merged.insert(name.clone(), value);
    }
    for (name, value) in changes.iter().filter(|(name, _)| !before.contains_key(*name)) {
        merged.insert(name.clone(), value.clone());
    }
    Value::Object(merged)
}

fn merge_items(rules: ListRules<'_>, live: &Value, applied: &Value) -> Value {
    let items = |value: &'_ Value| value.as_array().map_or(0, Vec::len);
    if items(live) == 0 && items(applied) == 0 {
        return applied.clone();
    }
    Value::Array(Interleave::new(rules, live, applied).run())
}

/// The order of a merged list: the applied items keep their order among themselves, and the live ones among themselves
/// wherever the applied order does not forbid it.
struct Interleave<'v, 's> {
    rules: ListRules<'s>,
    /// A live item can lack a name, if it was written before the schema asked for one.
    live: Vec<(Option<PathElement>, &'v Value)>,
    applied: Vec<(PathElement, &'v Value)>,
    /// What an applied item of this name merges with; nothing if several live items have the name.
    partner: BTreeMap<PathElement, Option<&'v Value>>,
    applied_names: BTreeSet<PathElement>,
}

impl<'v, 's> Interleave<'v, 's> {
    fn new(rules: ListRules<'s>, live: &'v Value, applied: &'v Value) -> Self {
        let items = |value: &'v Value| value.as_array().map_or(&[][..], Vec::as_slice).iter();
        let live: Vec<_> = items(live).map(|item| (rules.element(item).ok(), item)).collect();
        let applied: Vec<_> = items(applied).filter_map(|item| Some((rules.element(item).ok()?, item))).collect();
        let mut partner = BTreeMap::new();
        for (name, item) in &live {
            if let Some(name) = name {
                partner.entry(name.clone()).and_modify(|only| *only = None).or_insert(Some(*item));
            }
        }
        let applied_names = applied.iter().map(|(name, _)| name.clone()).collect();
        Self { rules, live, applied, partner, applied_names }
    }

    fn run(&self) -> Vec<Value> {
        let mut merged = Vec::with_capacity(self.live.len().max(self.applied.len()));
        let mut placed = BTreeSet::new();
        let (mut live, mut applied) = (self.live.iter().peekable(), self.applied.iter().peekable());
        // The names that both sides have, in the order in which they must come out.
        let mut shared =
            self.applied.iter().map(|(name, _)| name).filter(|name| self.partner.contains_key(name)).peekable();
        loop {
            if let Some((name, item)) = live.peek() {
                let Some(name) = name.as_ref().filter(|name| self.applied_names.contains(name)) else {
                    merged.push((*item).clone());
                    live.next();
                    continue;
                };
                let next = applied.peek().map(|(name, _)| name);
                if next.is_some() && next != Some(name) && shared.peek().is_some_and(|wanted| *wanted != name) {
                    // It comes out later, or already did, where the applied order puts it.
                    live.next();
                    continue;
                }
                if next == Some(name) || placed.contains(name) {
                    live.next();
                }
            }
            match applied.next() {
                Some((name, item)) => {
                    merged.push(self.merged_item(name, item));
                    placed.insert(name);
                    shared.next_if_eq(&name);
                }
                None if live.peek().is_none() => return merged,
                None => {}
            }
        }
    }

    fn merged_item(&self, name: &PathElement, item: &Value) -> Value {
        match self.partner.get(name) {
            Some(Some(live)) => merge_values(self.rules.item, live, item),
            _ => item.clone(),
        }
    }
}
