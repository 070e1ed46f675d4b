//! Values that JSON writes as one word and protobuf as a small message of its own, both ways.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Problem;
use super::wire::{Fields, Wire, put};

const TEXT: u64 = 1;

/// No time at all is written as an empty message.
pub(super) fn time(bytes: &[u8], micro: bool) -> Result<Value, Problem> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let fields = Fields::read(bytes)?;
    let (seconds, nanos) = (fields.number(1)? as i64, fields.number(2)? as i32);
    // The smaller parts are dropped as Go drops them: what JSON cannot say must not be stored.
    let nanos = if micro { nanos / 1000 * 1000 } else { 0 };
    let time = Timestamp::new(seconds, nanos).map_err(|_| Problem::Not("a time between the years -9999 and 9999"))?;
    Ok(json!(if micro { format!("{time:.6}") } else { format!("{time:.0}") }))
}

pub(super) fn put_time(value: &Value, micro: bool) -> Result<Vec<u8>, Problem> {
    let time =
        value.as_str().and_then(|text| text.parse::<Timestamp>().ok()).ok_or(Problem::Not("a time (RFC 3339)"))?;
    // Nanoseconds count forward from the second, before 1970 too.
    let nanos = time.subsec_nanosecond();
    let (seconds, nanos) =
        if nanos < 0 { (time.as_second() - 1, nanos + 1_000_000_000) } else { (time.as_second(), nanos) };
    let nanos = if micro { nanos / 1000 * 1000 } else { 0 };
    Ok(message(&[(1, Wire::Varint(seconds as u64)), (2, Wire::Varint(nanos as u64))]))
}

pub(super) fn quantity(bytes: &[u8]) -> Result<Value, Problem> {
    let text = Fields::read(bytes)?.text(TEXT)?;
    Ok(json!(if text.is_empty() { "0" } else { text }))
}

/// JSON may have a plain number, whose digits mean the same.
pub(super) fn put_quantity(value: &Value) -> Result<Vec<u8>, Problem> {
    match value {
        Value::String(text) => Ok(message(&[(TEXT, Wire::Bytes(text.as_bytes()))])),
        Value::Number(number) => Ok(message(&[(TEXT, Wire::Bytes(number.to_string().as_bytes()))])),
        _ => Err(Problem::Not("a quantity")),
    }
}

pub(super) fn int_or_string(bytes: &[u8]) -> Result<Value, Problem> {
    let fields = Fields::read(bytes)?;
    match fields.number(1)? {
        0 => Ok(json!(fields.number(2)? as i32)),
        1 => Ok(json!(fields.text(3)?)),
        _ => Err(Problem::Not("an integer or a string")),
    }
}

pub(super) fn put_int_or_string(value: &Value) -> Result<Vec<u8>, Problem> {
    match value {
        Value::String(text) => Ok(message(&[(1, Wire::Varint(1)), (3, Wire::Bytes(text.as_bytes()))])),
        number => Ok(message(&[(1, Wire::Varint(0)), (2, Wire::Varint(whole(number)? as u64))])),
    }
}

pub(super) fn json(bytes: &[u8]) -> Result<Value, Problem> {
    let raw = Fields::read(bytes)?.bytes(TEXT)?;
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(raw).map_err(|error| Problem::NotJson(error.to_string()))
}

pub(super) fn put_json(value: &Value) -> Vec<u8> {
    match value {
        Value::Null => Vec::new(),
        value => message(&[(TEXT, Wire::Bytes(value.to_string().as_bytes()))]),
    }
}

pub(super) fn double(bits: u64) -> Result<Value, Problem> {
    // Up to here every integer has its own float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let float = f64::from_bits(bits);
    match float.is_finite() {
        // JSON writes whole numbers without a fraction.
        true if float.fract() == 0.0 && float.abs() <= EXACT => Ok(json!(float as i64)),
        true => Ok(json!(float)),
        false => Err(Problem::Not("a finite number")),
    }
}

/// An integer, also where JSON writes it with a fraction of nothing.
pub(super) fn whole(value: &Value) -> Result<i64, Problem> {
    let float =
        || value.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9.0e15).map(|float| float as i64);
    value.as_i64().or_else(float).ok_or(Problem::Not("an integer"))
}

fn message(fields: &[(u64, Wire<'_>)]) -> Vec<u8> {
    let mut out = Vec::new();
    fields.iter().for_each(|(number, value)| put(&mut out, *number, *value));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_what_json_can_say() {
        let table = [
            ("2026-01-01T00:00:00Z", false, "2026-01-01T00:00:00Z"),
            ("1970-01-01T00:00:00Z", false, "1970-01-01T00:00:00Z"),
            ("2026-01-01T02:00:00.9+02:00", false, "2026-01-01T00:00:00Z"),
            ("2026-01-01T00:00:00.123456789Z", true, "2026-01-01T00:00:00.123456Z"),
            ("1969-12-31T23:59:59.25Z", true, "1969-12-31T23:59:59.250000Z"),
            ("2026-01-01T00:00:00Z", true, "2026-01-01T00:00:00.000000Z"),
        ];
        for (text, micro, expected) in table {
            assert_eq!(time(&put_time(&json!(text), micro).unwrap(), micro).unwrap(), expected, "{text}");
        }
        assert_eq!(time(&[], false).unwrap(), Value::Null);
        assert!(put_time(&json!("yesterday"), false).is_err());
        assert!(time(&message(&[(1, Wire::Varint(i64::MAX as u64))]), false).is_err());
    }

    #[test]
    fn words_of_two_kinds_stay_what_they_are() {
        for value in [json!(8080), json!(-1), json!("http"), json!("50%"), json!("")] {
            assert_eq!(int_or_string(&put_int_or_string(&value).unwrap()).unwrap(), value);
        }
        assert!(put_int_or_string(&json!(1.5)).is_err());
        assert!(int_or_string(&message(&[(1, Wire::Varint(2))])).is_err());
        assert_eq!(quantity(&put_quantity(&json!(0.5)).unwrap()).unwrap(), "0.5");
        assert_eq!(quantity(&[]).unwrap(), "0");
    }

    #[test]
    fn json_and_floats() {
        for value in [json!({"a": [1, null]}), json!("x"), json!(false), Value::Null] {
            assert_eq!(json(&put_json(&value)).unwrap(), value);
        }
        assert!(matches!(json(&message(&[(1, Wire::Bytes(b"{"))])), Err(Problem::NotJson(_))));
        assert_eq!(double(10f64.to_bits()).unwrap(), json!(10));
        assert_eq!(double(0.5f64.to_bits()).unwrap(), json!(0.5));
        assert!(double(f64::NAN.to_bits()).is_err());
    }
}
