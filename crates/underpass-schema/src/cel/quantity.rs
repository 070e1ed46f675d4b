//! Kubernetes' quantities: `100m`, `1.5Gi`, `2e3`.

use std::cmp::Ordering;

/// `digits * 10^exponent`, exact.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quantity {
    digits: i128,
    exponent: i32,
}

/// More digits than this cannot be lined up with another quantity in 128 bits.
const MAX_DIGITS: usize = 27;
const MAX_EXPONENT: i32 = 18;

impl Quantity {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let split = text.find(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.')).unwrap_or(text.len());
        let (number, suffix) = text.split_at(split);
        let (negative, unsigned) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number.strip_prefix('+').unwrap_or(number)),
        };
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let digits = format!("{whole}{fraction}");
        if digits.is_empty() || digits.len() > MAX_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let magnitude: i128 = digits.parse().ok()?;
        let (factor, exponent) = suffix_of(suffix)?;
        let magnitude = magnitude.checked_mul(factor)?;
        let exponent = exponent - i32::try_from(fraction.len()).ok()?;
        Some(Self { digits: if negative { -magnitude } else { magnitude }, exponent })
    }

    pub(crate) fn from_int(value: i64) -> Self {
        Self { digits: i128::from(value), exponent: 0 }
    }

    pub(crate) fn sign(&self) -> i64 {
        self.digits.signum() as i64
    }

    /// The value as an integer, where it is one that fits.
    pub(crate) fn as_integer(&self) -> Option<i64> {
        let power = 10i128.checked_pow(self.exponent.unsigned_abs())?;
        let whole = match self.exponent {
            0.. => self.digits.checked_mul(power)?,
            _ if self.digits % power == 0 => self.digits / power,
            _ => return None,
        };
        i64::try_from(whole).ok()
    }

    pub(crate) fn as_float(&self) -> f64 {
        self.digits as f64 * 10f64.powi(self.exponent)
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        match self.aligned(other) {
            Some((left, right, _)) => left.cmp(&right),
            // Too far apart to line up: then the approximation decides.
            None => self.as_float().total_cmp(&other.as_float()),
        }
    }

    pub(crate) fn add(&self, other: &Self) -> Option<Self> {
        let (left, right, exponent) = self.aligned(other)?;
        Some(Self { digits: left.checked_add(right)?, exponent })
    }

    pub(crate) fn sub(&self, other: &Self) -> Option<Self> {
        self.add(&Self { digits: -other.digits, exponent: other.exponent })
    }

    /// Both in units of the smaller exponent.
    fn aligned(&self, other: &Self) -> Option<(i128, i128, i32)> {
        let exponent = self.exponent.min(other.exponent);
        let scale = |quantity: &Self| {
            let power = 10i128.checked_pow((quantity.exponent - exponent).unsigned_abs())?;
            quantity.digits.checked_mul(power)
        };
        Some((scale(self)?, scale(other)?, exponent))
    }
}

/// What a suffix multiplies by: a power of two as a factor, a power of ten as an exponent.
fn suffix_of(suffix: &str) -> Option<(i128, i32)> {
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some(power) = binary.iter().position(|known| *known == suffix) {
        return Some((1 << (10 * (power + 1)), 0));
    }
    let decimal =
        [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
    if let Some((_, exponent)) = decimal.iter().find(|(known, _)| *known == suffix) {
        return Some((1, *exponent));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    (exponent.abs() <= MAX_EXPONENT).then_some((1, exponent))
}
