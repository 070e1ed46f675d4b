//! Durations as Go writes them, timestamps as RFC 3339 does.

use jiff::Timestamp;

const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// `1h30m`, `-1.5s`, `0` in nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let (_, nanoseconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(scaled(number, *nanoseconds)?)?;
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// A timestamp in the one form that RFC 3339 allows; libraries accept more.
pub(crate) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let shape = b"dddd-dd-ddTdd:dd:dd";
    let fits = bytes.len() > shape.len()
        && shape.iter().zip(bytes).all(|(want, got)| match want {
            b'd' => got.is_ascii_digit(),
            b'T' => matches!(got, b'T' | b't'),
            _ => want == got,
        });
    let tail = fits.then(|| text.get(shape.len()..)).flatten()?;
    let tail =
        tail.strip_prefix('.').map_or(tail, |fraction| fraction.trim_start_matches(|c: char| c.is_ascii_digit()));
    let zone = tail.as_bytes();
    let zone_fits =
        matches!(zone, [b'Z' | b'z']) || matches!(zone, [b'+' | b'-', rest @ ..] if rest.len() == 5 && rest[2] == b':');
    if zone_fits { text.parse().ok() } else { None }
}

/// As CEL prints durations: seconds, with as many decimals as needed.
pub(crate) fn print_duration(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let magnitude = nanoseconds.unsigned_abs();
    let fraction = format!("{:09}", magnitude % 1_000_000_000);
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{}{dot}{fraction}s", magnitude / 1_000_000_000)
}

fn scaled(number: &str, unit: i64) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Digits below a nanosecond are cut off.
    let fraction = fraction.get(..fraction.len().min(18))?;
    let part: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let power = 10i128.pow(u32::try_from(fraction.len()).ok()?);
    whole.checked_mul(i128::from(unit))?.checked_add(part * i128::from(unit) / power)
}
