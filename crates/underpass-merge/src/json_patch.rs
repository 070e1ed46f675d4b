//! JSON Patch (RFC 6902).
//!
//! The operations are read one by one, so that a malformed one can be named; the `json-patch` crate executes them.

use ::json_patch::jsonptr::PointerBuf;
use ::json_patch::{AddOperation, PatchError, PatchErrorKind, PatchOperation, patch_unsafe};
use serde::Deserialize;
use serde_json::Value;

/// kube-apiserver's limit: a patch of a few bytes per operation can otherwise keep a core busy for minutes.
pub const MAX_OPERATIONS: usize = 10_000;
/// Copies may add this many bytes together: each can double the document.
const MAX_COPIED: usize = 3 << 20;
/// No value may be put deeper than this: moves could otherwise build a tree that no stack can walk.
const MAX_DEPTH: usize = 120;

#[derive(Debug, thiserror::Error)]
pub enum JsonPatchError {
    #[error("a JSON patch is a list of operations")]
    NotAList,
    #[error("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {0}")]
    TooManyOperations(usize),
    #[error("operation {index} of the JSON patch is no object")]
    NotAnOperation { index: usize },
    #[error("operation {index} of the JSON patch is null, which says nothing to do")]
    NoOperation { index: usize },
    #[error("operation {index} of the JSON patch cannot be read")]
    Malformed { index: usize, source: serde_json::Error },
    #[error("operation {index} of the JSON patch adds a whole document: replace it instead")]
    AddedWhole { index: usize },
    #[error("operation {index} of the JSON patch makes the document larger or deeper than is allowed")]
    TooLarge { index: usize },
    #[error("operation {index} of the JSON patch ({operation} {path}) failed: {reason}")]
    Failed { index: usize, operation: &'static str, path: String, reason: &'static str },
}

/// The patched document; all operations are carried out, or none.
pub fn json_patch(mut document: Value, patch: &Value) -> Result<Value, JsonPatchError> {
    let operations = read(patch)?;
    let mut copied = 0;
    for (index, operation) in operations.iter().enumerate() {
        copied += copied_bytes(operation, &document);
        if copied > MAX_COPIED || depth_after(operation, &document) > MAX_DEPTH {
            return Err(JsonPatchError::TooLarge { index });
        }
        if tests_for_absence(operation, &document) {
            continue;
        }
        let lenient = leniently(operation, &document);
        let operation = lenient.as_ref().unwrap_or(operation);
        if matches!(operation, PatchOperation::Add(add) if add.path.is_root()) {
            return Err(JsonPatchError::AddedWhole { index });
        }
        // The document is ours and is dropped on failure, so there is nothing to undo.
        let done = patch_unsafe(&mut document, std::slice::from_ref(operation));
        done.map_err(|error| failed(index, operation, &error))?;
    }
    Ok(document)
}

/// The members of operations that no operation has, as strict decoding names them: `[0].foo`.
#[must_use]
pub fn unknown_members(patch: &Value) -> Vec<String> {
    const KNOWN: [&str; 4] = ["from", "op", "path", "value"];
    let operations = patch.as_array().into_iter().flatten().enumerate();
    let members = operations.flat_map(|(index, operation)| {
        operation.as_object().into_iter().flatten().map(move |(member, _)| (index, member))
    });
    members
        .filter(|(_, member)| !KNOWN.contains(&member.as_str()))
        .map(|(i, member)| format!("[{i}].{member}"))
        .collect()
}

/// Where kube-apiserver takes more than RFC 6902 allows: a replaced member need not exist, and a copy of an absent one is null.
fn leniently(operation: &PatchOperation, document: &Value) -> Option<PatchOperation> {
    let (path, value) = match operation {
        PatchOperation::Replace(replace) if is_absent_member(&replace.path, document) => {
            (&replace.path, replace.value.clone())
        }
        PatchOperation::Copy(copy) if is_absent_member(&copy.from, document) => (&copy.path, Value::Null),
        _ => return None,
    };
    Some(PatchOperation::Add(AddOperation { path: path.clone(), value }))
}

fn is_absent_member(path: &PointerBuf, document: &Value) -> bool {
    let Some((parent, member)) = path.split_back() else { return false };
    let parent = document.pointer(parent.as_str()).and_then(Value::as_object);
    parent.is_some_and(|object| !object.contains_key(member.decoded().as_ref()))
}

fn copied_bytes(operation: &PatchOperation, document: &Value) -> usize {
    let PatchOperation::Copy(copy) = operation else { return 0 };
    document.pointer(copy.from.as_str()).map_or(0, |value| value.to_string().len())
}

/// How deep the value stands that an operation puts in place.
fn depth_after(operation: &PatchOperation, document: &Value) -> usize {
    let (path, value) = match operation {
        PatchOperation::Add(add) => (&add.path, Some(&add.value)),
        PatchOperation::Replace(replace) => (&replace.path, Some(&replace.value)),
        PatchOperation::Move(moved) => (&moved.path, document.pointer(moved.from.as_str())),
        PatchOperation::Copy(copy) => (&copy.path, document.pointer(copy.from.as_str())),
        PatchOperation::Remove(_) | PatchOperation::Test(_) => return 0,
    };
    path.count() + value.map_or(0, depth)
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Where RFC 6902 knows no way to say "this must not be there", kube-apiserver takes a test for null: it holds for an absent member of
/// a present object. Clients rely on it, such as kube-rs when it adds the first finalizer.
fn tests_for_absence(operation: &PatchOperation, document: &Value) -> bool {
    let PatchOperation::Test(test) = operation else { return false };
    test.value.is_null() && is_absent_member(&test.path, document)
}

fn read(patch: &Value) -> Result<Vec<PatchOperation>, JsonPatchError> {
    let operations = patch.as_array().ok_or(JsonPatchError::NotAList)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(JsonPatchError::TooManyOperations(operations.len()));
    }
    operations.iter().enumerate().map(|(index, operation)| read_one(index, operation)).collect()
}

/// An operation that needs a value and has none means null, as it does for kube-apiserver.
fn read_one(index: usize, operation: &Value) -> Result<PatchOperation, JsonPatchError> {
    if operation.is_null() {
        return Err(JsonPatchError::NoOperation { index });
    }
    let malformed = |source| JsonPatchError::Malformed { index, source };
    let members = operation.as_object().ok_or(JsonPatchError::NotAnOperation { index })?;
    let needs_value = matches!(members.get("op").and_then(Value::as_str), Some("add" | "replace" | "test"));
    if needs_value && !members.contains_key("value") {
        let mut completed = members.clone();
        completed.insert("value".to_owned(), Value::Null);
        return PatchOperation::deserialize(Value::Object(completed)).map_err(malformed);
    }
    PatchOperation::deserialize(operation).map_err(malformed)
}

fn failed(index: usize, operation: &PatchOperation, error: &PatchError) -> JsonPatchError {
    JsonPatchError::Failed {
        index,
        operation: name(operation),
        path: error.path.to_string(),
        reason: reason(&error.kind),
    }
}

fn name(operation: &PatchOperation) -> &'static str {
    match operation {
        PatchOperation::Add(_) => "add",
        PatchOperation::Remove(_) => "remove",
        PatchOperation::Replace(_) => "replace",
        PatchOperation::Move(_) => "move",
        PatchOperation::Copy(_) => "copy",
        PatchOperation::Test(_) => "test",
    }
}

fn reason(kind: &PatchErrorKind) -> &'static str {
    match kind {
        PatchErrorKind::TestFailed => "the value there is another one",
        PatchErrorKind::InvalidFromPointer => "there is nothing at the path in \"from\"",
        PatchErrorKind::CannotMoveInsideItself => "a value cannot be moved into itself",
        _ => "there is no such path in the document",
    }
}
