//! From one type to another.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use jiff::Timestamp;

use super::text;
use crate::cel::EvalError;
use crate::cel::eval::{Evaluator, Outcome, no_overload};
use crate::cel::time::{parse_duration, parse_timestamp, print_duration};
use crate::cel::value::Value;

pub(super) fn call(_: &mut Evaluator<'_>, name: &str, args: &[Value]) -> Option<Outcome> {
    let result = match (name, args) {
        ("dyn", [value]) => Ok(value.clone()),
        ("type", [value]) => Ok(Value::Type(value.type_name())),
        ("int", [value]) => to_int(value),
        ("uint", [value]) => to_uint(value),
        ("double", [value]) => to_double(value),
        ("bool", [value]) => to_bool(value),
        ("string", [value]) => match printed(value) {
            Some(printed) => text(printed),
            None => Err(no_overload()),
        },
        ("bytes", [Value::String(text)]) => Ok(Value::Bytes(text.as_bytes().into())),
        ("bytes", [Value::Bytes(bytes)]) => Ok(Value::Bytes(bytes.clone())),
        ("duration", [Value::Duration(value)]) => Ok(Value::Duration(*value)),
        ("duration", [Value::String(text)]) => failing(parse_duration(text).map(Value::Duration), "duration", text),
        ("timestamp", [Value::Timestamp(value)]) => Ok(Value::Timestamp(*value)),
        ("timestamp", [Value::String(text)]) => failing(parse_timestamp(text).map(Value::Timestamp), "timestamp", text),
        ("timestamp", [Value::Int(seconds)]) => {
            failing(Timestamp::from_second(*seconds).ok().map(Value::Timestamp), "timestamp", &seconds.to_string())
        }
        ("base64.encode", [Value::Bytes(bytes)]) => text(STANDARD.encode(bytes)),
        ("base64.decode", [Value::String(text)]) => decode(text),
        _ => return None,
    };
    Some(result)
}

/// What `string()` gives; also what `format` prints for a scalar.
pub(super) fn printed(value: &Value) -> Option<String> {
    Some(match value {
        Value::String(text) => text.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => value.to_string(),
        Value::Bytes(bytes) => String::from_utf8(bytes.to_vec()).ok()?,
        Value::Timestamp(value) => value.to_string(),
        Value::Duration(value) => print_duration(*value),
        Value::Ip(value) => value.to_string(),
        Value::Cidr(value) => value.to_string(),
        _ => return None,
    })
}

fn to_int(value: &Value) -> Outcome {
    let range = || EvalError::failed("integer overflow");
    match value {
        Value::Int(value) => Ok(Value::Int(*value)),
        Value::Uint(value) => i64::try_from(*value).map(Value::Int).map_err(|_| range()),
        Value::Double(value) if value.abs() < i64::MAX as f64 => Ok(Value::Int(*value as i64)),
        Value::Double(_) => Err(range()),
        Value::String(text) => failing(text.parse().ok().map(Value::Int), "int", text),
        Value::Timestamp(value) => Ok(Value::Int(value.as_second())),
        Value::Duration(value) => Ok(Value::Int(*value)),
        _ => Err(no_overload()),
    }
}

fn to_uint(value: &Value) -> Outcome {
    let range = || EvalError::failed("unsigned integer overflow");
    match value {
        Value::Uint(value) => Ok(Value::Uint(*value)),
        Value::Int(value) => u64::try_from(*value).map(Value::Uint).map_err(|_| range()),
        Value::Double(value) if (0.0..u64::MAX as f64).contains(value) => Ok(Value::Uint(*value as u64)),
        Value::Double(_) => Err(range()),
        Value::String(text) => failing(text.parse().ok().map(Value::Uint), "uint", text),
        _ => Err(no_overload()),
    }
}

fn to_double(value: &Value) -> Outcome {
    match value {
        Value::Double(value) => Ok(Value::Double(*value)),
        Value::Int(value) => Ok(Value::Double(*value as f64)),
        Value::Uint(value) => Ok(Value::Double(*value as f64)),
        Value::String(text) => failing(text.parse().ok().map(Value::Double), "double", text),
        _ => Err(no_overload()),
    }
}

fn to_bool(value: &Value) -> Outcome {
    match value {
        Value::Bool(value) => Ok(Value::Bool(*value)),
        Value::String(text) => {
            let value = match &**text {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
                _ => None,
            };
            failing(value.map(Value::Bool), "bool", text)
        }
        _ => Err(no_overload()),
    }
}

fn decode(text: &str) -> Outcome {
    let bytes = STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text));
    failing(bytes.ok().map(|bytes| Value::Bytes(bytes.into())), "base64", text)
}

fn failing(value: Option<Value>, what: &str, text: &str) -> Outcome {
    value.ok_or_else(|| EvalError::failed(format!("type conversion error from 'string' to '{what}': {text:?}")))
}
