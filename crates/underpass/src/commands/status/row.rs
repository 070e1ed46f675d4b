//! One object in one line.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;

use super::controllers::Controllers;

pub(super) const HEADINGS: [&str; 7] = ["KIND", "NAMESPACE", "NAME", "READY", "REASON", "MESSAGE", "AGE"];

/// Where the columns stand that are treated in a way of their own.
pub(super) const READY: usize = 3;
pub(super) const REASON: usize = 4;
pub(super) const MESSAGE: usize = 5;

/// The cells under the headings. An object that no controller has looked at yet is neither ready nor not.
pub(super) fn cells(object: &DynamicObject, controllers: Controllers, now: Timestamp) -> [String; 7] {
    let word = |condition: &Value, name: &str| condition[name].as_str().unwrap_or_default().to_owned();
    let (status, reason, message) = match ready(object) {
        Some(ready) => (word(ready, "status"), word(ready, "reason"), one_line(&word(ready, "message"))),
        None => {
            let (reason, message) = controllers.say_of_unseen();
            ("Unknown".to_owned(), reason.to_owned(), message.to_owned())
        }
    };
    let deleting = object.metadata.deletion_timestamp.is_some();
    [
        object.types.as_ref().map(|types| types.kind.clone()).unwrap_or_default(),
        object.namespace().unwrap_or_default(),
        object.name_any(),
        status,
        reason,
        if deleting { format!("being deleted: {message}") } else { message },
        object.creation_timestamp().map(|created| age(now.duration_since(created.0))).unwrap_or_default(),
    ]
}

/// Its `Ready` condition, once a controller has looked at it.
pub(super) fn ready(object: &DynamicObject) -> Option<&Value> {
    let mut conditions = object.data["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == "Ready")
}

/// The part of the object that decides whether a line would be new, the passing of time left out.
pub(super) fn fingerprint(object: &DynamicObject) -> (Option<i64>, bool, Value) {
    (object.metadata.generation, object.metadata.deletion_timestamp.is_some(), object.data["status"].clone())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// As short as kubectl says it: two units while they are small, then one.
fn age(age: SignedDuration) -> String {
    let seconds = age.as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        _ => format!("{days}d"),
    }
}

fn two(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 { format!("{large}{large_unit}") } else { format!("{large}{large_unit}{small}{small_unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        for (seconds, expected) in
            [(-5, "0s"), (59, "59s"), (119, "119s"), (125, "2m5s"), (600, "10m"), (14_400, "4h"), (15_000, "4h10m")]
        {
            assert_eq!(age(SignedDuration::from_secs(seconds)), expected, "{seconds}");
        }
        assert_eq!(age(SignedDuration::from_hours(24 * 7)), "7d");
        assert_eq!(age(SignedDuration::from_hours(24 * 3 + 4)), "3d4h");
        assert_eq!(age(SignedDuration::from_hours(24 * 400)), "400d");
    }

    #[test]
    fn an_object_that_nobody_looked_at_is_unknown_and_says_why() {
        let object = serde_json::json!({
            "apiVersion": "underpass.dev/v1alpha1", "kind": "ContainerNetwork", "metadata": { "name": "n" }
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        for (controllers, reason) in [(Controllers::Missing, "NoControllers"), (Controllers::Run, "NotLookedAtYet")] {
            let cells = cells(&object, controllers, Timestamp::UNIX_EPOCH);
            assert_eq!(cells[..5], ["ContainerNetwork", "", "n", "Unknown", reason]);
            assert_eq!(cells[MESSAGE].contains("`underpass controllers` starts them"), reason == "NoControllers");
        }
    }
}
