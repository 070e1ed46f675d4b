//! Kubernetes' quantities.

use super::{checked, truth};
use crate::cel::EvalError;
use crate::cel::eval::{Evaluator, Outcome};
use crate::cel::quantity::Quantity;
use crate::cel::value::Value;

pub(super) fn call(_: &mut Evaluator<'_>, name: &str, args: &[Value]) -> Option<Outcome> {
    match (name, args) {
        ("isQuantity", [Value::String(text)]) => Some(truth(Quantity::parse(text).is_some())),
        ("quantity", [Value::String(text)]) => Some(
            Quantity::parse(text)
                .map(Value::Quantity)
                .ok_or_else(|| EvalError::failed(format!("{text:?} is not a quantity"))),
        ),
        (_, [Value::Quantity(left)]) => of_one(name, left),
        (_, [Value::Quantity(left), Value::Quantity(right)]) => of_two(name, left, right),
        ("add" | "sub", [Value::Quantity(left), Value::Int(right)]) => of_two(name, left, &Quantity::from_int(*right)),
        _ => None,
    }
}

fn of_one(name: &str, value: &Quantity) -> Option<Outcome> {
    Some(match name {
        "sign" => Ok(Value::Int(value.sign())),
        "isInteger" => truth(value.as_integer().is_some()),
        "asInteger" => checked(value.as_integer(), "cannot convert value to integer"),
        "asApproximateFloat" => Ok(Value::Double(value.as_float())),
        _ => return None,
    })
}

fn of_two(name: &str, left: &Quantity, right: &Quantity) -> Option<Outcome> {
    let sum = |sum: Option<Quantity>| sum.map(Value::Quantity).ok_or_else(|| EvalError::failed("quantity overflow"));
    Some(match name {
        "compareTo" => Ok(Value::Int(left.compare(right) as i64)),
        "isGreaterThan" => truth(left.compare(right).is_gt()),
        "isLessThan" => truth(left.compare(right).is_lt()),
        "add" => sum(left.add(right)),
        "sub" => sum(left.sub(right)),
        _ => return None,
    })
}
