//! JSON Patch (RFC 6902).
//!
//! The operations are read one by one, so that a malformed one can be named; the `json-patch` crate executes them.

use ::json_patch::{PatchError, PatchErrorKind, PatchOperation, patch_unsafe};
use serde::Deserialize;
use serde_json::Value;

/// kube-apiserver's limit: a patch of a few bytes per operation can otherwise keep a core busy for minutes.
pub const MAX_OPERATIONS: usize = 10_000;

#[derive(Debug, thiserror::Error)]
pub enum JsonPatchError {
    #[error("a JSON patch is a list of operations")]
    NotAList,
    #[error("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {0}")]
    TooManyOperations(usize),
    #[error("operation {index} of the JSON patch cannot be read")]
    Malformed { index: usize, source: serde_json::Error },
    #[error("operation {index} of the JSON patch ({operation} {path}) failed: {reason}")]
    Failed { index: usize, operation: &'static str, path: String, reason: &'static str },
}

/// The patched document; all operations are carried out, or none.
pub fn json_patch(mut document: Value, patch: &Value) -> Result<Value, JsonPatchError> {
    let operations = read(patch)?;
    for (index, operation) in operations.iter().enumerate() {
        if !tests_for_absence(operation, &document) {
            // The document is ours and is dropped on failure, so there is nothing to undo.
            let done = patch_unsafe(&mut document, std::slice::from_ref(operation));
            done.map_err(|error| failed(index, operation, &error))?;
        }
    }
    Ok(document)
}

/// Where RFC 6902 knows no way to say "this must not be there", kube-apiserver takes a test for null: it holds for an absent member of
/// a present object. Clients rely on it, such as kube-rs when it adds the first finalizer.
fn tests_for_absence(operation: &PatchOperation, document: &Value) -> bool {
    let PatchOperation::Test(test) = operation else { return false };
    let Some((parent, member)) = test.path.split_back() else { return false };
    let parent = document.pointer(parent.as_str()).and_then(Value::as_object);
    test.value.is_null() && parent.is_some_and(|object| !object.contains_key(member.decoded().as_ref()))
}

fn read(patch: &Value) -> Result<Vec<PatchOperation>, JsonPatchError> {
    let operations = patch.as_array().ok_or(JsonPatchError::NotAList)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(JsonPatchError::TooManyOperations(operations.len()));
    }
    let read_one = |(index, operation)| {
        PatchOperation::deserialize(operation).map_err(|source| JsonPatchError::Malformed { index, source })
    };
    operations.iter().enumerate().map(read_one).collect()
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
