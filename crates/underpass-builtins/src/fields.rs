//! Reading and filling JSON by pointer (`/spec/type`). A value of an unexpected type reads as absent: the schema reports it.

use serde_json::{Map, Value};

pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn int(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

pub(crate) fn flag(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
}

pub(crate) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(crate) fn entries<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object.pointer(pointer).and_then(Value::as_object).into_iter().flatten()
}

pub(crate) fn count(object: &Value, pointer: &str) -> usize {
    entries(object, pointer).count()
}

/// The object at a key, made when absent. `None` when something else stands there.
pub(crate) fn section<'a>(object: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    let section = object.as_object_mut()?.entry(key).or_insert_with(|| Value::Object(Map::new()));
    section.is_object().then_some(section)
}

/// Sets a field that is absent. An empty text is absent too: Kubernetes cannot tell them apart.
pub(crate) fn fill(object: &mut Value, key: &str, value: impl Into<Value>) {
    let Some(fields) = object.as_object_mut() else { return };
    let absent = fields.get(key).is_none_or(|found| found.as_str().is_some_and(str::is_empty));
    if absent {
        fields.insert(key.to_owned(), value.into());
    }
}

/// The same for numbers whose zero value means absent.
pub(crate) fn fill_number(object: &mut Value, key: &str, value: i64) {
    let Some(fields) = object.as_object_mut() else { return };
    if fields.get(key).is_none_or(|found| found.as_i64() == Some(0)) {
        fields.insert(key.to_owned(), value.into());
    }
}

pub(crate) fn each_mut<'a>(object: &'a mut Value, pointer: &str) -> impl Iterator<Item = &'a mut Value> {
    object.pointer_mut(pointer).and_then(Value::as_array_mut).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fills_only_what_is_absent() {
        let mut object = json!({"a": "", "b": "kept", "n": 0, "m": 7});
        fill(&mut object, "a", "filled");
        fill(&mut object, "b", "filled");
        fill(&mut object, "c", 1);
        fill_number(&mut object, "n", 3);
        fill_number(&mut object, "m", 3);
        assert_eq!(object, json!({"a": "filled", "b": "kept", "c": 1, "n": 3, "m": 7}));
    }

    #[test]
    fn a_section_of_another_type_is_left_alone() {
        let mut object = json!({"spec": 1});
        assert!(section(&mut object, "spec").is_none());
        assert!(section(&mut object, "status").is_some());
    }
}
