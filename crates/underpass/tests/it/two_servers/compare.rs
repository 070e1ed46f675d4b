//! Where two answers differ, apart from what every server has its own of.

use std::fmt;

use serde_json::{Map, Value};

use super::requests::Ask;

/// Fields whose values are each server's own; that they are there is compared.
const OWN: [&str; 7] =
    ["uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "time", "lastTransitionTime", "responseHash"];
const LONGEST: usize = 600;

pub(crate) struct Difference {
    pub(crate) what: String,
    /// Below which field, as a JSON pointer.
    pub(crate) place: String,
    ours: Option<Value>,
    theirs: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |value: &Option<Value>| {
            let text = value.as_ref().map_or("nothing".to_owned(), Value::to_string);
            text.chars().take(LONGEST).collect::<String>()
        };
        let (ours, theirs) = (short(&self.ours), short(&self.theirs));
        write!(formatter, "{} {}\n    ours:   {ours}\n    theirs: {theirs}", self.what, self.place)
    }
}

pub(crate) fn differences(ask: &Ask, ours: &Value, theirs: &Value) -> Vec<Difference> {
    let (mut ours, mut theirs) = (ours.clone(), theirs.clone());
    mask(&mut ours);
    mask(&mut theirs);
    let mut found = Vec::new();
    compare(String::new(), Some(&ours), Some(&theirs), &mut |place, ours, theirs| {
        found.push(Difference { what: ask.what.clone(), place, ours: ours.cloned(), theirs: theirs.cloned() });
    });
    found
}

fn compare(
    place: String,
    ours: Option<&Value>,
    theirs: Option<&Value>,
    differ: &mut impl FnMut(String, Option<&Value>, Option<&Value>),
) {
    match (ours, theirs) {
        (Some(Value::Object(ours)), Some(Value::Object(theirs))) => {
            let mut keys: Vec<_> = ours.keys().chain(theirs.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                compare(format!("{place}/{}", key.replace('/', "~1")), ours.get(key), theirs.get(key), differ);
            }
        }
        (Some(Value::Array(ours)), Some(Value::Array(theirs))) if ours.len() == theirs.len() => {
            for (index, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                compare(format!("{place}/{index}"), Some(ours), Some(theirs), differ);
            }
        }
        // 1.0 is 1: JSON has one kind of number.
        (Some(Value::Number(ours)), Some(Value::Number(theirs))) if ours.as_f64() == theirs.as_f64() => {}
        _ if ours == theirs => {}
        _ => differ(place, ours, theirs),
    }
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            mask_order_of_causes(fields);
            for (name, field) in fields {
                match field {
                    Value::String(text) if OWN.contains(&name.as_str()) => "*".clone_into(text),
                    // Sorted by time, which is the same for two of them or is not.
                    Value::Array(entries) if name == "managedFields" => {
                        entries.iter_mut().for_each(mask);
                        entries.sort_by_key(|entry| {
                            ["manager", "operation", "subresource"].map(|key| entry[key].to_string())
                        });
                    }
                    Value::Array(cells) if name == "cells" => cells.iter_mut().for_each(mask_age),
                    // Kubernetes names them in any order.
                    Value::Array(resources) if name == "resources" => {
                        resources.iter_mut().for_each(mask);
                        resources.sort_by_key(|it| it["name"].to_string() + &it["resource"].to_string());
                    }
                    other => mask(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::String(text) => *text = text.split_inclusive([' ', '(', ')', '"']).map(without_uid).collect(),
        _ => {}
    }
}

fn mask_age(cell: &mut Value) {
    match cell {
        Value::String(text) if is_age(text) => "*".clone_into(text),
        other => mask(other),
    }
}

/// Kubernetes finds them in any order, and names them in that order in the message.
fn mask_order_of_causes(fields: &mut Map<String, Value>) {
    let Some(causes) = fields.get_mut("details").and_then(|it| it.get_mut("causes")).and_then(Value::as_array_mut)
    else {
        return;
    };
    if causes.len() > 1 {
        causes.sort_by_key(Value::to_string);
        let message = fields.get("message").and_then(Value::as_str).unwrap_or_default();
        let sentence = message.split_once(": [").map_or(message, |(about, _)| about).to_owned();
        fields.insert("message".to_owned(), Value::String(sentence));
    }
}

/// A uid in a message, between brackets.
fn without_uid(word: &str) -> &str {
    if word.len() == 37 && word.ends_with(')') && word.matches('-').count() == 4 { "*)" } else { word }
}

/// As in the last column of a table.
fn is_age(text: &str) -> bool {
    text.strip_suffix('s').is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}
