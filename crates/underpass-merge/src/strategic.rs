//! Kubernetes' strategic merge patch, for its own kinds: a merge patch that knows which lists merge item by item, plus
//! directives in the patch.
//!
//! | directive | effect |
//! |---|---|
//! | `$patch: replace` | the object, or the list that holds it, becomes what the patch says |
//! | `$patch: delete` | the object is emptied; in a list, the item with this key goes |
//! | `$deleteFromPrimitiveList/f` | these values go from the list `f` |
//! | `$setElementOrder/f` | the order of the list `f` |
//! | `$retainKeys` | all other fields of the object go |

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use underpass_schema::Schema;

use crate::node::Node;
use crate::strategic_list::{ListPatch, Positions, reorder};

pub(crate) const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER: &str = "$setElementOrder/";

/// What is wrong with a strategic merge patch, and where in it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("invalid strategic merge patch at {}: {problem}", if .field.is_empty() { "its root" } else { .field.as_str() })]
pub struct StrategicError {
    /// `.spec.containers`
    pub field: String,
    pub problem: StrategicProblem,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StrategicProblem {
    #[error("the patch and the document must be objects")]
    NotAnObject,
    #[error("unknown patch type: {0}")]
    UnknownPatchType(String),
    #[error("unknown directive {0:?}")]
    UnknownDirective(String),
    #[error("merging lists cannot be specified in the patch")]
    MergeDirectiveInList,
    #[error("{directive} must hold a list")]
    DirectiveNotAList { directive: String },
    #[error("the patch sets {0:?}, which $retainKeys does not name")]
    NotRetained(String),
    #[error("the order in the patch does not match $setElementOrder")]
    OrderMismatch,
    #[error("an item does not contain the declared merge key {0:?}")]
    NoMergeKey(String),
    #[error("the list has no merge key, so its objects cannot be merged")]
    NotMergeable,
    #[error("lists of lists are not supported")]
    ListOfLists,
    #[error("the items of the list are not all of the same type")]
    MixedItems,
    #[error("expected a list")]
    NotAList,
}

impl From<StrategicProblem> for StrategicError {
    fn from(problem: StrategicProblem) -> Self {
        Self { field: String::new(), problem }
    }
}

impl StrategicError {
    fn below(self, name: &str) -> Self {
        Self { field: format!(".{name}{}", self.field), ..self }
    }
}

/// The document with the patch merged in.
pub fn strategic_merge_patch(schema: &Schema, document: Value, patch: &Value) -> Result<Value, StrategicError> {
    let (Value::Object(mut document), Value::Object(patch)) = (document, patch) else {
        return Err(StrategicProblem::NotAnObject.into());
    };
    merge_object(Node::resource(schema), &mut document, patch)?;
    Ok(Value::Object(document))
}

pub(crate) type Object = Map<String, Value>;

pub(crate) fn merge_object(node: Node<'_>, original: &mut Object, patch: &Object) -> Result<(), StrategicError> {
    if let Some(directive) = patch.get(PATCH) {
        return replace_object(original, patch, directive);
    }
    retain_keys(original, patch)?;
    let ordered = merge_ordered_lists(node, original, patch)?;
    for (name, value) in patch {
        if name == RETAIN_KEYS || name.starts_with(ELEMENT_ORDER) || ordered.contains(name.as_str()) {
            continue;
        }
        match name.strip_prefix(DELETE_FROM) {
            Some(list) => delete_values(original, list, value).map_err(|error| error.below(list))?,
            None => merge_field(node, original, name, value).map_err(|error| error.below(name))?,
        }
    }
    Ok(())
}

/// A value of a patch that stands for itself: nothing in the document to merge it with. `None` is a value to be left out.
pub(crate) fn without_directives(value: &Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(PATCH) => None,
        Value::Object(fields) => Some(Value::Object(plain_fields(fields))),
        Value::Array(items) => Some(Value::Array(items.iter().filter_map(without_directives).collect())),
        scalar => Some(scalar.clone()),
    }
}

fn plain_fields(fields: &Object) -> Object {
    let plain = fields.iter().filter(|(name, value)| !value.is_null() && !is_directive(name));
    plain.filter_map(|(name, value)| Some((name.clone(), without_directives(value)?))).collect()
}

fn is_directive(name: &str) -> bool {
    name == PATCH || name == RETAIN_KEYS || name.starts_with(DELETE_FROM) || name.starts_with(ELEMENT_ORDER)
}

fn replace_object(original: &mut Object, patch: &Object, directive: &Value) -> Result<(), StrategicError> {
    match directive.as_str() {
        Some("replace") => *original = plain_fields(patch),
        Some("delete") => original.clear(),
        _ => return Err(StrategicProblem::UnknownPatchType(directive.to_string()).into()),
    }
    Ok(())
}

fn retain_keys(original: &mut Object, patch: &Object) -> Result<(), StrategicError> {
    let Some(retained) = patch.get(RETAIN_KEYS) else { return Ok(()) };
    let retained: BTreeSet<_> = directive_list(RETAIN_KEYS, retained)?.iter().filter_map(Value::as_str).collect();
    let set = patch.iter().filter(|(name, value)| !value.is_null() && !is_directive(name));
    for (name, _) in set {
        if !retained.contains(name.as_str()) {
            return Err(StrategicProblem::NotRetained(name.clone()).into());
        }
    }
    original.retain(|name, _| retained.contains(name.as_str()));
    Ok(())
}

/// Merges the lists whose order the patch sets, and names them.
fn merge_ordered_lists<'p>(
    node: Node<'_>,
    original: &mut Object,
    patch: &'p Object,
) -> Result<BTreeSet<&'p str>, StrategicError> {
    let mut merged = BTreeSet::new();
    for (directive, order) in patch {
        let Some(name) = directive.strip_prefix(ELEMENT_ORDER) else { continue };
        let order = directive_list(directive, order)?;
        let list = ListPatch::new(node.field(name).node);
        merge_ordered_list(list, original, name, patch.get(name), order).map_err(|error| error.below(name))?;
        merged.insert(name);
    }
    Ok(merged)
}

fn merge_ordered_list(
    list: ListPatch<'_>,
    original: &mut Object,
    name: &str,
    patch: Option<&Value>,
    order: &[Value],
) -> Result<(), StrategicError> {
    let patch = patch.map(as_list).transpose()?;
    let live = original.get(name).map(as_list).transpose()?;
    list.check_order(patch.unwrap_or_default(), order)?;
    let (merged, live_order) = match (live, patch) {
        (None, None) => return Ok(()),
        (Some(live), None) => (live.to_vec(), list.keys(live)?),
        (None, Some(patch)) => (patch.iter().filter_map(without_directives).collect(), Positions::new()),
        (Some(live), Some(patch)) => (list.merge(live.to_vec(), patch)?, list.order_after(live, patch)?),
    };
    let ordered = reorder(merged, &list.keys(order)?, &live_order, |item| list.key(item))?;
    original.insert(name.to_owned(), Value::Array(ordered));
    Ok(())
}

fn merge_field(node: Node<'_>, original: &mut Object, name: &str, value: &Value) -> Result<(), StrategicError> {
    let field = node.field(name);
    // Some kinds have fields that begin with a dollar sign, such as the schemas in a CustomResourceDefinition.
    if name.starts_with('$') && field.node.schema().is_none() {
        return Err(StrategicProblem::UnknownDirective(name.to_owned()).into());
    }
    match (original.get_mut(name), value) {
        (_, Value::Null) => {
            original.remove(name);
        }
        (Some(Value::Object(live)), Value::Object(patch)) => merge_object(field.node, live, patch)?,
        (Some(Value::Array(live)), Value::Array(patch)) => {
            *live = ListPatch::new(field.node).merge(std::mem::take(live), patch)?;
        }
        _ => match without_directives(value) {
            Some(value) => {
                original.insert(name.to_owned(), value);
            }
            None => {
                original.remove(name);
            }
        },
    }
    Ok(())
}

fn delete_values(original: &mut Object, name: &str, values: &Value) -> Result<(), StrategicError> {
    let gone = directive_list(DELETE_FROM, values)?;
    if let Some(Value::Array(items)) = original.get_mut(name) {
        items.retain(|item| !gone.contains(item));
    }
    Ok(())
}

fn directive_list<'p>(directive: &str, value: &'p Value) -> Result<&'p [Value], StrategicError> {
    let list = value.as_array().map(Vec::as_slice);
    list.ok_or_else(|| StrategicProblem::DirectiveNotAList { directive: directive.to_owned() }.into())
}

fn as_list(value: &Value) -> Result<&[Value], StrategicError> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| StrategicProblem::NotAList.into())
}
