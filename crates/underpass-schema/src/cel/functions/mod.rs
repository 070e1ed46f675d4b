//! The functions, one file per library. What each accepts and returns is declared in `signatures.rs`, for the checker.

mod arithmetic;
mod convert;
mod format;
mod lists;
mod net;
mod optional;
mod quantity;
mod strings;
mod time;

use super::EvalError;
use super::eval::{Evaluator, Outcome, no_overload};
use super::value::Value;

/// Looks a function up in one library; `None` where the library has no such function for these arguments.
type Library = fn(&mut Evaluator<'_>, &str, &[Value]) -> Option<Outcome>;

const LIBRARIES: [Library; 9] = [
    arithmetic::call,
    convert::call,
    strings::call,
    lists::call,
    optional::call,
    time::call,
    net::call,
    quantity::call,
    format::call,
];

/// Calls a function, an operator or a method (its receiver is the first argument).
pub(crate) fn call(evaluator: &mut Evaluator<'_>, name: &str, args: &[Value]) -> Outcome {
    evaluator.spend(args.iter().map(Value::size).sum())?;
    LIBRARIES.iter().find_map(|library| library(evaluator, name, args)).unwrap_or_else(|| Err(no_overload()))
}

/// A result that may be out of range, named as CEL names it.
fn checked(value: Option<i64>, what: &str) -> Outcome {
    value.map(Value::Int).ok_or_else(|| EvalError::failed(what))
}

fn text(value: impl Into<String>) -> Outcome {
    Ok(Value::string(value.into()))
}

fn truth(value: bool) -> Outcome {
    Ok(Value::Bool(value))
}
