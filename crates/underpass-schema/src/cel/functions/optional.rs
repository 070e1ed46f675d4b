//! Values that may be absent.

use std::sync::Arc;

use super::truth;
use crate::cel::EvalError;
use crate::cel::eval::{Evaluator, Outcome};
use crate::cel::value::Value;

pub(super) fn call(_: &mut Evaluator<'_>, name: &str, args: &[Value]) -> Option<Outcome> {
    Some(match (name, args) {
        ("optional.none", []) => Ok(Value::NONE),
        ("optional.of", [value]) => Ok(Value::some(value.clone())),
        ("optional.ofNonZeroValue", [value]) if is_zero(value) => Ok(Value::NONE),
        ("optional.ofNonZeroValue", [value]) => Ok(Value::some(value.clone())),
        ("hasValue", [Value::Optional(value)]) => truth(value.is_some()),
        ("value", [Value::Optional(Some(value))]) => Ok(Value::clone(value)),
        ("value", [Value::Optional(None)]) => Err(EvalError::failed("optional.none() dereference")),
        ("or", [Value::Optional(None), other @ Value::Optional(_)]) => Ok(other.clone()),
        ("or", [some @ Value::Optional(Some(_)), Value::Optional(_)]) => Ok(some.clone()),
        ("orValue", [Value::Optional(value), other]) => {
            Ok(value.clone().map_or_else(|| other.clone(), Arc::unwrap_or_clone))
        }
        _ => return None,
    })
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Int(0) | Value::Uint(0) | Value::Duration(0) => true,
        Value::Double(value) => *value == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(list) => list.items.is_empty(),
        Value::Map(map) => map.is_empty(),
        Value::Optional(inner) => inner.is_none(),
        _ => false,
    }
}
