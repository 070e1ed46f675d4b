//! `metadata.managedFields`: who owns which fields, and since when.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::fields_v1::FieldsError;
use crate::fieldset::FieldSet;

const FIELDS_TYPE: &str = "FieldsV1";

/// The writer of a request, as `metadata.managedFields` names it.
#[derive(Debug, Clone, Copy)]
pub struct Manager<'a> {
    /// The `fieldManager` parameter, or what the server takes instead.
    pub name: &'a str,
    pub api_version: &'a str,
    pub subresource: Option<&'a str>,
    /// The time of the request, RFC 3339 in UTC with seconds.
    pub time: &'a str,
}

#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("metadata.managedFields is not a list")]
    NotAList,
    #[error("operation must be `Apply` or `Update` in managed fields entry {0}")]
    Operation(usize),
    #[error("apiVersion must not be empty in managed fields entry {0}")]
    ApiVersion(usize),
    #[error("fieldsType must be `{FIELDS_TYPE}` in managed fields entry {0}")]
    FieldsType(usize),
    #[error("managed fields entry {index} has fields that cannot be read")]
    Fields { index: usize, source: FieldsError },
}

/// How fields became somebody's. The order is that of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

/// What tells two entries apart. One who applies has one entry, whatever version it applies in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OwnerId {
    pub(crate) name: String,
    pub(crate) operation: Operation,
    /// Empty for `Apply`.
    pub(crate) api_version: String,
    /// Empty for the object itself.
    pub(crate) subresource: String,
}

#[derive(Debug, Clone)]
pub(crate) struct Owner {
    pub(crate) api_version: String,
    /// Empty if the entry has none.
    pub(crate) time: String,
    pub(crate) fields: FieldSet,
    /// The entry as it was read, while it still says the same.
    pub(crate) entry: Option<Value>,
}

/// All owners of an object's fields; none without a field.
#[derive(Debug, Clone, Default)]
pub(crate) struct Owners(pub(crate) BTreeMap<OwnerId, Owner>);

/// Takes the list of owners out of an object. `None` is an object without the field or with `null` there.
pub(crate) fn take_managed_fields(object: &mut Value) -> Option<Value> {
    let fields = object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")?;
    (!fields.is_null()).then_some(fields)
}

pub(crate) fn managed_fields(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields").filter(|fields| !fields.is_null())
}

/// Sets the list of owners; an empty list is no field.
pub(crate) fn put_managed_fields(object: &mut Value, fields: Option<Value>) {
    take_managed_fields(object);
    if let (Some(fields), Some(object)) = (fields, object.as_object_mut()) {
        let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("managedFields".to_owned(), fields);
        }
    }
}

/// Keeps the times of `live` in `new` if nothing else differs, so that a write without effect stays one.
/// Call it last, when defaults and the server's own fields are filled in.
pub fn keep_times_if_unchanged(live: &Value, new: &mut Value) {
    let (Some(old), Some(current)) = (managed_fields(live), managed_fields(new)) else { return };
    if old != current && timeless(old) == timeless(current) && same_but_managed_fields(live, new) {
        put_managed_fields(new, Some(old.clone()));
    }
}

/// Whether two objects are the same, whoever owns their fields.
pub(crate) fn same_but_managed_fields(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return a == b };
    let metadata = (a.get("metadata").and_then(Value::as_object), b.get("metadata").and_then(Value::as_object));
    same_but(a, b, "metadata")
        && match metadata {
            (Some(a), Some(b)) => same_but(a, b, "managedFields"),
            (a, b) => a == b,
        }
}

fn same_but(a: &Map<String, Value>, b: &Map<String, Value>, ignored: &str) -> bool {
    let others = |object: &Map<String, Value>| object.len() - usize::from(object.contains_key(ignored));
    others(a) == others(b) && a.iter().all(|(name, value)| name == ignored || b.get(name) == Some(value))
}

impl Manager<'_> {
    pub(crate) fn id(&self, operation: Operation) -> OwnerId {
        OwnerId {
            name: if self.name.is_empty() { "unknown" } else { self.name }.to_owned(),
            operation,
            api_version: if operation == Operation::Update { self.api_version.to_owned() } else { String::new() },
            subresource: self.subresource.unwrap_or_default().to_owned(),
        }
    }
}

impl OwnerId {
    /// The owner as Kubernetes' conflicts name it.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("{:?}", self.name);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }
}

impl Owner {
    pub(crate) fn new(manager: &Manager<'_>, fields: FieldSet) -> Self {
        let (api_version, time) = (manager.api_version.to_owned(), manager.time.to_owned());
        Self { api_version, time, fields, entry: None }
    }

    /// Changes the fields; the entry is printed anew.
    pub(crate) fn change(&mut self, change: impl FnOnce(FieldSet) -> FieldSet) {
        self.fields = change(std::mem::take(&mut self.fields));
        self.entry = None;
    }
}

impl Owners {
    pub(crate) fn decode(list: Option<&Value>) -> Result<Self, DecodeError> {
        let Some(list) = list else { return Ok(Self::default()) };
        let entries = list.as_array().ok_or(DecodeError::NotAList)?;
        let entries = entries.iter().enumerate().map(|(index, entry)| decode_entry(index, entry));
        Ok(Self(entries.collect::<Result<_, _>>()?))
    }

    /// The list as the object carries it: who applied first, then by time. `None` is an object that nobody owns.
    pub(crate) fn encode(self) -> Option<Value> {
        let mut owners: Vec<_> = self.0.into_iter().collect();
        owners.sort_by(|(a, an), (b, bn)| {
            (a.operation, &an.time, &a.name, &an.api_version, &a.subresource).cmp(&(
                b.operation,
                &bn.time,
                &b.name,
                &bn.api_version,
                &b.subresource,
            ))
        });
        let entries: Vec<_> = owners.into_iter().map(|(id, owner)| encode_entry(&id, owner)).collect();
        (!entries.is_empty()).then_some(Value::Array(entries))
    }
}

fn decode_entry(index: usize, entry: &Value) -> Result<(OwnerId, Owner), DecodeError> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let operation = match text("operation").as_str() {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err(DecodeError::Operation(index)),
    };
    let api_version = text("apiVersion");
    if api_version.is_empty() {
        return Err(DecodeError::ApiVersion(index));
    }
    if text("fieldsType") != FIELDS_TYPE {
        return Err(DecodeError::FieldsType(index));
    }
    let fields = match entry.get("fieldsV1").filter(|fields| !fields.is_null()) {
        Some(fields) => FieldSet::from_fields_v1(fields).map_err(|source| DecodeError::Fields { index, source })?,
        None => FieldSet::new(),
    };
    let id = OwnerId {
        name: text("manager"),
        operation,
        api_version: if operation == Operation::Update { api_version.clone() } else { String::new() },
        subresource: text("subresource"),
    };
    Ok((id, Owner { api_version, time: text("time"), fields, entry: Some(entry.clone()) }))
}

fn encode_entry(id: &OwnerId, owner: Owner) -> Value {
    if let Some(entry) = owner.entry {
        return entry;
    }
    let operation = match id.operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    let mut entry = json!({
        "manager": id.name,
        "operation": operation,
        "apiVersion": owner.api_version,
        "fieldsType": FIELDS_TYPE,
        "fieldsV1": owner.fields.to_fields_v1(),
    });
    for (name, value) in [("time", &owner.time), ("subresource", &id.subresource)] {
        if !value.is_empty() {
            entry[name] = Value::String(value.clone());
        }
    }
    entry
}

fn timeless(list: &Value) -> Vec<Value> {
    let mut entries = list.as_array().cloned().unwrap_or_default();
    for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
        entry.remove("time");
    }
    entries
}
