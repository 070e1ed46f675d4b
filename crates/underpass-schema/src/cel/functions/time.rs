//! Parts of timestamps and durations. Zones are UTC and fixed offsets: names of places would need a database to be read from disk.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

use crate::cel::EvalError;
use crate::cel::eval::{Evaluator, Outcome};
use crate::cel::value::Value;

pub(super) fn call(_: &mut Evaluator<'_>, name: &str, args: &[Value]) -> Option<Outcome> {
    match args {
        [Value::Duration(nanoseconds)] => of_duration(name, *nanoseconds).map(|part| Ok(Value::Int(part))),
        [Value::Timestamp(time)] => of_time(name, civil(*time, Offset::UTC)).map(|part| Ok(Value::Int(part))),
        [Value::Timestamp(time), Value::String(zone)] => {
            of_time(name, civil(*time, Offset::UTC))?;
            Some(in_zone(name, *time, zone))
        }
        _ => None,
    }
}

fn of_duration(name: &str, nanoseconds: i64) -> Option<i64> {
    Some(match name {
        "getHours" => nanoseconds / 3_600_000_000_000,
        "getMinutes" => nanoseconds / 60_000_000_000,
        "getSeconds" => nanoseconds / 1_000_000_000,
        "getMilliseconds" => nanoseconds / 1_000_000,
        _ => return None,
    })
}

/// Months, days of the month by `getDayOfMonth` and days of the year count from zero, days by `getDate` from one.
fn of_time(name: &str, time: DateTime) -> Option<i64> {
    Some(match name {
        "getFullYear" => i64::from(time.year()),
        "getMonth" => i64::from(time.month()) - 1,
        "getDate" => i64::from(time.day()),
        "getDayOfMonth" => i64::from(time.day()) - 1,
        "getDayOfWeek" => i64::from(time.weekday().to_sunday_zero_offset()),
        "getDayOfYear" => i64::from(time.day_of_year()) - 1,
        "getHours" => i64::from(time.hour()),
        "getMinutes" => i64::from(time.minute()),
        "getSeconds" => i64::from(time.second()),
        "getMilliseconds" => i64::from(time.millisecond()),
        _ => return None,
    })
}

fn in_zone(name: &str, time: Timestamp, zone: &str) -> Outcome {
    let unknown = || EvalError::failed(format!("unknown time zone {zone}: use UTC or an offset like +02:00"));
    let offset = offset(zone).ok_or_else(unknown)?;
    of_time(name, civil(time, offset)).map(Value::Int).ok_or_else(unknown)
}

fn civil(time: Timestamp, offset: Offset) -> DateTime {
    time.to_zoned(TimeZone::fixed(offset)).datetime()
}

fn offset(zone: &str) -> Option<Offset> {
    if matches!(zone, "UTC" | "Z" | "") {
        return Some(Offset::UTC);
    }
    let (sign, rest) = match zone.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, zone.strip_prefix('+').unwrap_or(zone)),
    };
    let (hours, minutes) = rest.split_once(':')?;
    let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
    let fits = (0..24).contains(&hours) && (0..60).contains(&minutes);
    if fits { Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).ok() } else { None }
}
