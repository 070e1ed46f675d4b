//! The `Ready` condition, and the event that tells of its change.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use underpass_resources::conditions::{self, Finding, READY};

use crate::plan::{Event, Severity};

/// The reason of what nobody looks after, because those who did were killed.
pub(crate) const CONTROLLERS_KILLED: &str = "ControllersKilled";

/// What is to be said about an object in its `Ready` condition.
#[derive(Debug, Clone)]
pub(crate) struct Ready {
    finding: Finding,
    severity: Severity,
}

impl Ready {
    /// Proven to work.
    pub(crate) fn yes(reason: &'static str, message: impl Into<String>) -> Self {
        Self { finding: Finding::yes(READY, reason, message), severity: Severity::Normal }
    }

    /// Not yet, and that is the ordinary course.
    pub(crate) fn not_yet(reason: &'static str, message: impl Into<String>) -> Self {
        Self { finding: Finding::no(READY, reason, message), severity: Severity::Normal }
    }

    /// Not, and somebody has to do something.
    pub(crate) fn no(reason: &'static str, message: impl Into<String>) -> Self {
        Self { finding: Finding::no(READY, reason, message), severity: Severity::Warning }
    }

    /// The message, when it is bad news.
    pub(crate) fn complaint(&self) -> Option<String> {
        (self.severity == Severity::Warning).then(|| self.finding.message.clone())
    }

    /// Puts the finding among the stored conditions. The event is for a change of status or reason: a plan that is made again says
    /// nothing twice.
    pub(crate) fn record(self, stored: &mut Vec<Condition>, generation: Option<i64>, now: Timestamp) -> Option<Event> {
        let Self { finding, severity } = self;
        let known = conditions::find(stored, READY)
            .is_some_and(|old| old.status == finding.status.as_str() && old.reason == finding.reason);
        let event = (!known).then(|| Event { severity, reason: finding.reason, note: finding.message.clone() });
        conditions::set(stored, finding, generation, &Time(now));
        event
    }
}
