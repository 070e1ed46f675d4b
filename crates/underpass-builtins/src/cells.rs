//! The texts that stand in the cells of a table.

use jiff::Timestamp;
use serde_json::Value;

use crate::fields;

pub(crate) const NONE: &str = "<none>";
pub(crate) const UNKNOWN: &str = "<unknown>";

pub(crate) fn name(object: &Value) -> Value {
    fields::text(object, "/metadata/name").into()
}

pub(crate) fn age(object: &Value, now: Timestamp) -> Value {
    since(object, "/metadata/creationTimestamp", now).into()
}

/// How long ago a timestamp was; `<unknown>` without one.
pub(crate) fn since(object: &Value, pointer: &str, now: Timestamp) -> String {
    match fields::text(object, pointer).parse::<Timestamp>() {
        Ok(then) => duration(now.duration_since(then).as_secs()),
        Err(_) => UNKNOWN.to_owned(),
    }
}

/// Two or three digits of a duration: the longer, the coarser. Clocks may differ by a second without being called wrong.
pub fn duration(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, "m", seconds % 60, "s"),
        _ if hours < 3 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => pair(days, "d", hours % 24, "h"),
        _ if days < 2 * 365 => format!("{days}d"),
        _ if days < 8 * 365 => pair(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

/// A text, or what stands for it when it is empty.
pub(crate) fn or(text: &str, absent: &str) -> Value {
    if text.is_empty() { absent.into() } else { text.into() }
}

/// `a=1,b=2`, or `<none>`.
pub(crate) fn labels(object: &Value, pointer: &str) -> Value {
    let pairs: Vec<String> = fields::entries(object, pointer)
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    or(&pairs.join(","), NONE)
}

/// One text field of each item, joined by commas.
pub(crate) fn joined(items: &[Value], pointer: &str) -> Value {
    items.iter().map(|item| fields::text(item, pointer)).collect::<Vec<_>>().join(",").into()
}

/// The first few of a list, and how many more there are.
pub(crate) fn few(items: &[String]) -> Value {
    const SHOWN: usize = 3;
    match items.len() {
        0 => "<unset>".into(),
        count if count > SHOWN => format!("{} + {} more...", items[..SHOWN].join(","), count - SHOWN).into(),
        _ => items.join(",").into(),
    }
}

fn pair(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 { format!("{large}{large_unit}") } else { format!("{large}{large_unit}{small}{small_unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_grow_coarser() {
        const MINUTE: i64 = 60;
        const HOUR: i64 = 3600;
        const DAY: i64 = 86400;
        for (seconds, text) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (10 * MINUTE, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (7 * HOUR + 5 * MINUTE, "7h5m"),
            (47 * HOUR, "47h"),
            (2 * DAY, "2d"),
            (2 * DAY + HOUR, "2d1h"),
            (8 * DAY + HOUR, "8d"),
            (729 * DAY, "729d"),
            (730 * DAY, "2y"),
            (800 * DAY, "2y70d"),
            (3650 * DAY, "10y"),
        ] {
            assert_eq!(duration(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn long_lists_are_cut() {
        let items = |count: usize| (0..count).map(|number| number.to_string()).collect::<Vec<_>>();
        assert_eq!(few(&items(0)), "<unset>");
        assert_eq!(few(&items(3)), "0,1,2");
        assert_eq!(few(&items(5)), "0,1,2 + 2 more...");
    }
}
