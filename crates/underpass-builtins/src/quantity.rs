//! Amounts of resources (`500m`, `1Gi`, `2e3`), exact to a billionth, and their canonical text.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

const BILLION: i128 = 1_000_000_000;
/// Decimal suffixes by their power of ten.
const DECIMAL: &[(&str, i32)] =
    &[("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: &[&str] = &["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

#[derive(Debug, Clone, Copy)]
pub(crate) struct Quantity {
    billionths: i128,
    form: Form,
}

/// How it was written, which is how it is written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Decimal,
    Exponent,
    Binary,
}

impl Quantity {
    /// From a text or a number; `None` when it is no amount, or out of any sensible range.
    pub(crate) fn read(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => None,
        }
    }

    pub(crate) fn is_zero(self) -> bool {
        self.billionths == 0
    }

    pub(crate) fn is_negative(self) -> bool {
        self.billionths < 0
    }

    fn parse(text: &str) -> Option<Self> {
        let end = text.bytes().position(|byte| !byte.is_ascii_digit() && !b"+-.".contains(&byte)).unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let (form, multiplier, divisor) = scale(suffix)?;
        let billionths = decimal(number)?.checked_mul(multiplier)?;
        // What is finer than a billionth is rounded up, so that a request is never less than was asked for.
        let rest = billionths.rem_euclid(divisor);
        let billionths = billionths.div_euclid(divisor) + i128::from(rest != 0);
        Some(Self { billionths, form })
    }
}

/// Writes the canonical text in place of an amount. Others are left for the checks to report.
pub(crate) fn canonicalize(value: &mut Value) {
    if let Some(quantity) = Quantity::read(value) {
        *value = quantity.to_string().into();
    }
}

/// The same for each amount of a map, such as `limits`.
pub(crate) fn canonicalize_all(object: &mut Value, pointer: &str) {
    let amounts = object.pointer_mut(pointer).and_then(Value::as_object_mut);
    amounts.into_iter().flat_map(|amounts| amounts.values_mut()).for_each(canonicalize);
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.billionths == other.billionths
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.billionths.partial_cmp(&other.billionths)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Below 1024 the binary suffixes have nothing to say.
        let binary = self.form == Form::Binary && self.billionths.abs() >= 1024 * BILLION;
        if binary { write_binary(self.billionths, f) } else { write_decimal(self.billionths, self.form, f) }
    }
}

fn write_binary(billionths: i128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut whole = billionths.div_euclid(BILLION) + i128::from(billionths.rem_euclid(BILLION) != 0);
    let mut power = 0;
    while whole % 1024 == 0 && power + 1 < BINARY.len() {
        whole /= 1024;
        power += 1;
    }
    write!(f, "{whole}{}", BINARY[power])
}

fn write_decimal(billionths: i128, form: Form, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if billionths == 0 {
        return f.write_str("0");
    }
    let (mut mantissa, mut step) = (billionths, 0);
    while mantissa % 1000 == 0 && step + 1 < DECIMAL.len() {
        mantissa /= 1000;
        step += 1;
    }
    let (suffix, exponent) = DECIMAL[step];
    match form {
        Form::Exponent if exponent != 0 => write!(f, "{mantissa}e{exponent}"),
        _ => write!(f, "{mantissa}{suffix}"),
    }
}

/// What a suffix means: the form, and what to multiply and divide by.
fn scale(suffix: &str) -> Option<(Form, i128, i128)> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        let (multiplier, divisor) = power_of_ten(*exponent)?;
        return Some((Form::Decimal, multiplier, divisor));
    }
    if let Some(power) = BINARY.iter().position(|name| *name == suffix) {
        return Some((Form::Binary, 1024_i128.checked_pow(u32::try_from(power).ok()?)?, 1));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let (multiplier, divisor) = power_of_ten(exponent)?;
    Some((Form::Exponent, multiplier, divisor))
}

fn power_of_ten(exponent: i32) -> Option<(i128, i128)> {
    let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
    Some(if exponent < 0 { (1, power) } else { (power, 1) })
}

/// A decimal number in billionths; digits beyond are dropped.
fn decimal(number: &str) -> Option<i128> {
    let (negative, digits) = match number.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let only_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !only_digits(whole) || !only_digits(fraction) {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction: i128 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    let billionths = whole.checked_mul(BILLION)?.checked_add(fraction)?;
    Some(if negative { -billionths } else { billionths })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn canonical_texts() {
        for (given, canonical) in [
            (json!("1000m"), "1"),
            (json!("0.5"), "500m"),
            (json!(0.5), "500m"),
            (json!(2), "2"),
            (json!(1500), "1500"),
            (json!("1000"), "1k"),
            (json!("1024Mi"), "1Gi"),
            (json!("1.5Gi"), "1536Mi"),
            (json!("512Ki"), "512Ki"),
            (json!("0Gi"), "0"),
            (json!("1e3"), "1e3"),
            (json!("12e6"), "12e6"),
            (json!("-100m"), "-100m"),
            (json!("1E"), "1E"),
            (json!(".5"), "500m"),
            (json!("1.5n"), "2n"),
        ] {
            assert_eq!(Quantity::read(&given).unwrap().to_string(), canonical, "{given}");
        }
    }

    #[test]
    fn what_is_no_amount() {
        for text in ["", "m", "1x", "1.2.3", "--1", "1 Gi", "Gi", "1e", "1e99"] {
            assert!(Quantity::read(&json!(text)).is_none(), "{text}");
        }
        assert!(Quantity::read(&json!({})).is_none());
    }

    #[test]
    fn compared_by_value() {
        let read = |text: &str| Quantity::read(&json!(text)).unwrap();
        assert_eq!(read("1Gi"), read("1073741824"));
        assert!(read("999m") < read("1"));
        assert!(read("0").is_zero() && read("-1").is_negative());
    }
}
