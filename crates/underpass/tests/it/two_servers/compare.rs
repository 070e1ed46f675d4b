//! Where two answers differ, apart from what every server has its own of.

use std::fmt;

use serde_json::Value;

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
        _ if ours == theirs => {}
        _ => differ(place, ours, theirs),
    }
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::String(text) if OWN.contains(&name.as_str()) => "*".clone_into(text),
                    // Sorted by time, which is the same for two of them or is not.
                    Value::Array(entries) if name == "managedFields" => {
                        entries.iter_mut().for_each(mask);
                        entries.sort_by_key(|entry| ["manager", "operation", "subresource"].map(|key| entry[key].to_string()));
                    }
                    other => mask(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::String(text) if is_age(text) => "*".clone_into(text),
        _ => {}
    }
}

/// As in the last column of a table.
fn is_age(text: &str) -> bool {
    text.strip_suffix('s').is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}
