//! Standard conditions: what was found out about an object, since when, and about which generation of it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::{Schema, SchemaGenerator, json_schema};

/// The condition that every kind has: it works, and that was proven.
pub const READY: &str = "Ready";

/// A condition's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    True,
    False,
    Unknown,
}

impl Truth {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// One finding, before it is known whether it is news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub type_: &'static str,
    pub status: Truth,
    /// One CamelCase word for machines.
    pub reason: &'static str,
    /// One sentence for people.
    pub message: String,
}

impl Finding {
    pub fn yes(type_: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { type_, status: Truth::True, reason, message: message.into() }
    }

    pub fn no(type_: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { type_, status: Truth::False, reason, message: message.into() }
    }

    pub fn unknown(type_: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { type_, status: Truth::Unknown, reason, message: message.into() }
    }
}

/// Records a finding. `lastTransitionTime` moves to `now` only when the status changes, so that it says since when this holds.
/// Returns whether anything changed that a reader could see.
pub fn set(conditions: &mut Vec<Condition>, finding: Finding, generation: Option<i64>, now: &Time) -> bool {
    let mut new = Condition {
        type_: finding.type_.to_owned(),
        status: finding.status.as_str().to_owned(),
        reason: finding.reason.to_owned(),
        message: finding.message,
        observed_generation: generation,
        last_transition_time: now.clone(),
    };
    let Some(old) = conditions.iter_mut().find(|condition| condition.type_ == new.type_) else {
        conditions.push(new);
        return true;
    };
    if old.status == new.status {
        new.last_transition_time = old.last_transition_time.clone();
    }
    let changed = *old != new;
    *old = new;
    changed
}

pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == Truth::True.as_str())
}

/// The schema of `status.conditions`, as Kubernetes' own kinds have it.
pub(crate) fn schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "description": "What was found out about this object. One entry per type; Ready sums them up.",
        "maxItems": 32,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": {
                    "type": "string", "maxLength": 316,
                    "description": "Which question is answered, for example Ready.",
                },
                "status": {
                    "type": "string", "enum": ["True", "False", "Unknown"],
                    "description": "The answer.",
                },
                "reason": {
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                    "description": "Why, in one CamelCase word.",
                },
                "message": {
                    "type": "string", "maxLength": 32768,
                    "description": "Why, in a sentence, with what to do about it.",
                },
                "lastTransitionTime": {
                    "type": "string", "format": "date-time",
                    "description": "Since when the status is what it is.",
                },
                "observedGeneration": {
                    "type": "integer", "format": "int64", "minimum": 0,
                    "description": "The generation of the object that this was found out about.",
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(seconds: i64) -> Time {
        Time(k8s_openapi::jiff::Timestamp::from_second(seconds).unwrap())
    }

    #[test]
    fn a_first_finding_is_added() {
        let mut conditions = Vec::new();
        assert!(set(&mut conditions, Finding::yes(READY, "Proven", "works"), Some(1), &time(10)));
        assert!(is_true(&conditions, READY));
        assert_eq!(conditions[0].last_transition_time, time(10));
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let mut conditions = Vec::new();
        set(&mut conditions, Finding::no(READY, "Starting", "a"), Some(1), &time(10));
        assert!(set(&mut conditions, Finding::no(READY, "Pulling", "b"), Some(2), &time(20)));
        assert_eq!(conditions[0].last_transition_time, time(10));
        assert_eq!(conditions[0].reason, "Pulling");
        assert_eq!(conditions[0].observed_generation, Some(2));
        set(&mut conditions, Finding::yes(READY, "Proven", "c"), Some(2), &time(30));
        assert_eq!(conditions[0].last_transition_time, time(30));
        assert_eq!(conditions.len(), 1);
    }

    #[test]
    fn the_same_finding_again_is_no_news() {
        let mut conditions = Vec::new();
        let finding = Finding::unknown(READY, "NoEngine", "no engine answers");
        set(&mut conditions, finding.clone(), Some(1), &time(10));
        assert!(!set(&mut conditions, finding, Some(1), &time(20)));
    }
}
