//! `"%d of %s".format([1, "x"])`

use super::convert::printed;
use super::text;
use crate::cel::EvalError;
use crate::cel::eval::{Evaluator, Outcome};
use crate::cel::value::Value;

/// What a format may ask for; more digits than this are nobody's wish.
const MAX_PRECISION: usize = 1000;

pub(super) fn call(evaluator: &mut Evaluator<'_>, name: &str, args: &[Value]) -> Option<Outcome> {
    let ("format", [Value::String(template), Value::List(list)]) = (name, args) else { return None };
    let cost = args[1].deep_size();
    Some(evaluator.spend(cost).and_then(|()| fill(evaluator, template, &list.items)))
}

fn fill(evaluator: &mut Evaluator<'_>, template: &str, args: &[Value]) -> Outcome {
    let mut out = String::new();
    let mut args = args.iter();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        if let Some(after) = after.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let (precision, after) = precision(after)?;
        let verb = after.chars().next().ok_or_else(|| EvalError::failed("unexpected end of format string"))?;
        let arg = args.next().ok_or_else(|| EvalError::failed("index out of range: too few arguments to format"))?;
        evaluator.spend(1 + precision.unwrap_or(0) / 10)?;
        out.push_str(&one(verb, precision, arg)?);
        rest = &after[verb.len_utf8()..];
    }
    out.push_str(rest);
    text(out)
}

/// `.N` before a verb.
fn precision(rest: &str) -> Result<(Option<usize>, &str), EvalError> {
    let Some(digits) = rest.strip_prefix('.') else { return Ok((None, rest)) };
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let precision = digits[..end].parse().ok().filter(|precision| *precision <= MAX_PRECISION);
    let precision = precision.ok_or_else(|| EvalError::failed("invalid precision in format string"))?;
    Ok((Some(precision), &digits[end..]))
}

fn one(verb: char, precision: Option<usize>, arg: &Value) -> Result<String, EvalError> {
    let decimals = precision.unwrap_or(6);
    let formatted = match (verb, arg) {
        ('s', value) => Some(show(value)),
        ('d', Value::Int(_) | Value::Uint(_)) => printed(arg),
        ('f' | 'e', Value::Double(value)) if !value.is_finite() => Some(infinite(*value)),
        ('f', value) => number(value).map(|value| format!("{value:.decimals$}")),
        ('e', value) => number(value).map(|value| scientific(value, decimals)),
        ('b', Value::Bool(value)) => Some(u8::from(*value).to_string()),
        ('b' | 'o' | 'x' | 'X', Value::Int(value)) => {
            let sign = if *value < 0 { "-" } else { "" };
            Some(format!("{sign}{}", radix(verb, value.unsigned_abs())))
        }
        ('b' | 'o' | 'x' | 'X', Value::Uint(value)) => Some(radix(verb, *value)),
        ('x' | 'X', Value::String(text)) => Some(hex(verb, text.as_bytes())),
        ('x' | 'X', Value::Bytes(bytes)) => Some(hex(verb, bytes)),
        _ => None,
    };
    formatted.ok_or_else(|| EvalError::failed(format!("could not format {} with '%{verb}'", arg.type_name())))
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Double(value) => Some(*value),
        Value::Int(value) => Some(*value as f64),
        Value::Uint(value) => Some(*value as f64),
        _ => None,
    }
}

fn infinite(value: f64) -> String {
    let word = if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    };
    word.to_owned()
}

/// `1.052033e+03`: a sign and two digits of exponent at least.
fn scientific(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}

fn radix(verb: char, value: u64) -> String {
    match verb {
        'b' => format!("{value:b}"),
        'o' => format!("{value:o}"),
        'x' => format!("{value:x}"),
        _ => format!("{value:X}"),
    }
}

fn hex(verb: char, bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    if verb == 'X' { digits.to_uppercase() } else { digits }
}

fn show(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Double(value) if !value.is_finite() => infinite(*value),
        Value::Type(name) => (*name).to_owned(),
        Value::List(list) => format!("[{}]", list.items.iter().map(show).collect::<Vec<_>>().join(", ")),
        Value::Map(map) => {
            let entries = map.iter().map(|(key, value)| format!("{}: {}", show(&key.clone().into()), show(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => printed(other).unwrap_or_else(|| other.type_name().to_owned()),
    }
}
