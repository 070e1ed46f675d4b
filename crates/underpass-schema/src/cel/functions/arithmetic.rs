//! Operators.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::{checked, truth};
use crate::cel::EvalError;
use crate::cel::eval::{Evaluator, Outcome, no_overload};
use crate::cel::value::Value;

pub(super) fn call(evaluator: &mut Evaluator<'_>, name: &str, args: &[Value]) -> Option<Outcome> {
    Some(match (name, args) {
        ("_==_", [left, right]) => equal(evaluator, left, right, true),
        ("_!=_", [left, right]) => equal(evaluator, left, right, false),
        ("_<_", [left, right]) => order(left, right, Ordering::is_lt),
        ("_<=_", [left, right]) => order(left, right, Ordering::is_le),
        ("_>_", [left, right]) => order(left, right, Ordering::is_gt),
        ("_>=_", [left, right]) => order(left, right, Ordering::is_ge),
        ("@in", [item, Value::List(list)]) => {
            let cost: usize = list.items.iter().map(Value::deep_size).sum();
            evaluator.spend(cost).and_then(|()| truth(list.items.contains(item)))
        }
        ("@in", [key, Value::Map(map)]) => truth(key.as_key().is_some_and(|key| map.contains_key(&key))),
        ("!_", [Value::Bool(value)]) => truth(!value),
        ("-_", [Value::Int(value)]) => checked(value.checked_neg(), "integer overflow"),
        ("-_", [Value::Double(value)]) => Ok(Value::Double(-value)),
        ("_+_", [left, right]) => return add(evaluator, left, right),
        ("_-_", [left, right]) => return subtract(left, right),
        ("_*_" | "_/_" | "_%_", [Value::Int(left), Value::Int(right)]) => integers(name, *left, *right),
        ("_*_" | "_/_" | "_%_", [Value::Uint(left), Value::Uint(right)]) => unsigned(name, *left, *right),
        ("_*_", [Value::Double(left), Value::Double(right)]) => Ok(Value::Double(left * right)),
        ("_/_", [Value::Double(left), Value::Double(right)]) => Ok(Value::Double(left / right)),
        _ => return None,
    })
}

fn equal(evaluator: &mut Evaluator<'_>, left: &Value, right: &Value, want: bool) -> Outcome {
    evaluator.spend(left.deep_size().min(right.deep_size()))?;
    truth((left == right) == want)
}

fn order(left: &Value, right: &Value, holds: fn(Ordering) -> bool) -> Outcome {
    let not_a_number = |value: &Value| matches!(value, Value::Double(float) if float.is_nan());
    match left.compare(right) {
        Some(order) => truth(holds(order)),
        None if not_a_number(left) || not_a_number(right) => truth(false),
        None => Err(no_overload()),
    }
}

fn add(evaluator: &mut Evaluator<'_>, left: &Value, right: &Value) -> Option<Outcome> {
    Some(match (left, right) {
        (Value::Int(left), Value::Int(right)) => checked(left.checked_add(*right), "integer overflow"),
        (Value::Uint(left), Value::Uint(right)) => uint(left.checked_add(*right)),
        (Value::Double(left), Value::Double(right)) => Ok(Value::Double(left + right)),
        (Value::String(left), Value::String(right)) => Ok(Value::string(format!("{left}{right}"))),
        (Value::Bytes(left), Value::Bytes(right)) => Ok(Value::Bytes([&**left, &**right].concat().into())),
        (Value::List(left_list), Value::List(right_list)) => evaluator
            .spend(left.deep_size() + right.deep_size())
            .map(|()| Value::List(Arc::new(left_list.concat(right_list)))),
        (Value::Duration(left), Value::Duration(right)) => duration(left.checked_add(*right)),
        (Value::Timestamp(time), Value::Duration(span)) | (Value::Duration(span), Value::Timestamp(time)) => {
            shift(*time, Some(*span))
        }
        _ => return None,
    })
}

fn subtract(left: &Value, right: &Value) -> Option<Outcome> {
    Some(match (left, right) {
        (Value::Int(left), Value::Int(right)) => checked(left.checked_sub(*right), "integer overflow"),
        (Value::Uint(left), Value::Uint(right)) => uint(left.checked_sub(*right)),
        (Value::Double(left), Value::Double(right)) => Ok(Value::Double(left - right)),
        (Value::Duration(left), Value::Duration(right)) => duration(left.checked_sub(*right)),
        (Value::Timestamp(time), Value::Duration(span)) => shift(*time, span.checked_neg()),
        (Value::Timestamp(left), Value::Timestamp(right)) => {
            duration(i64::try_from(left.duration_since(*right).as_nanos()).ok())
        }
        _ => return None,
    })
}

fn integers(name: &str, left: i64, right: i64) -> Outcome {
    match name {
        "_*_" => checked(left.checked_mul(right), "integer overflow"),
        "_/_" if right == 0 => Err(EvalError::failed("division by zero")),
        "_/_" => checked(left.checked_div(right), "integer overflow"),
        _ if right == 0 => Err(EvalError::failed("modulus by zero")),
        _ => checked(left.checked_rem(right), "integer overflow"),
    }
}

fn unsigned(name: &str, left: u64, right: u64) -> Outcome {
    match name {
        "_*_" => uint(left.checked_mul(right)),
        "_/_" => left.checked_div(right).map(Value::Uint).ok_or_else(|| EvalError::failed("division by zero")),
        _ => left.checked_rem(right).map(Value::Uint).ok_or_else(|| EvalError::failed("modulus by zero")),
    }
}

fn uint(value: Option<u64>) -> Outcome {
    value.map(Value::Uint).ok_or_else(|| EvalError::failed("unsigned integer overflow"))
}

fn duration(nanoseconds: Option<i64>) -> Outcome {
    nanoseconds.map(Value::Duration).ok_or_else(|| EvalError::failed("duration overflow"))
}

fn shift(time: Timestamp, nanoseconds: Option<i64>) -> Outcome {
    let shifted = nanoseconds.and_then(|span| time.checked_add(SignedDuration::from_nanos(span)).ok());
    shifted.map(Value::Timestamp).ok_or_else(|| EvalError::failed("timestamp overflow"))
}
