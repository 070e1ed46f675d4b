//! How often a pair was started again, and when it may be next.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use underpass_resources::conditions::{self, READY};

use super::observed::Observed;

/// The reason of the `Ready` condition between a death and the next start.
pub(super) const RESTARTING: &str = "Restarting";

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A pair that ran this long did not die of its start: pauses begin with the first again, as those of Kubernetes' pods do.
const LIVED_WELL: Duration = Duration::from_secs(60);

/// What the status remembers, so that a death is counted once however often it is looked at, and also by the next process.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Restarts {
    pub(super) count: Option<i32>,
    /// Deaths since the pair has last lived well.
    pub(super) in_a_row: Option<i32>,
    /// Set by a death, taken away by the next start.
    pub(super) not_before: Option<MicroTime>,
}

impl Restarts {
    pub(super) fn stored(observed: &Observed) -> Self {
        let status = observed.object.status.as_ref();
        Self {
            count: status.and_then(|status| status.restart_count),
            in_a_row: status.and_then(|status| status.restarts_in_a_row),
            not_before: status.and_then(|status| status.next_restart_timestamp.clone()),
        }
    }

    pub(super) fn after_death(observed: &Observed) -> Self {
        let stored = Self::stored(observed);
        if stored.not_before.is_some() {
            return stored;
        }
        let one_more = |number: Option<i32>| number.unwrap_or_default().saturating_add(1);
        let in_a_row = one_more(stored.in_a_row.filter(|_| lived(observed) < LIVED_WELL));
        let not_before = observed.now.saturating_add(pause_after(in_a_row)).unwrap_or(Timestamp::MAX);
        Self { count: Some(one_more(stored.count)), in_a_row: Some(in_a_row), not_before: Some(MicroTime(not_before)) }
    }

    /// The pair is started, or runs.
    pub(super) fn resumed(self) -> Self {
        Self { not_before: None, ..self }
    }

    /// How long to wait still.
    pub(super) fn pause(&self, now: Timestamp) -> Option<Duration> {
        let left = self.not_before.as_ref()?.0.duration_since(now);
        Duration::try_from(left).ok().filter(|left| !left.is_zero())
    }
}

/// Of what the pair died that is to be started again, as it was told.
pub(super) fn cause(observed: &Observed) -> String {
    let status = observed.object.status.as_ref();
    let told = status
        .filter(|status| conditions::find(&status.conditions, READY).is_some_and(|ready| ready.reason == RESTARTING));
    told.and_then(|status| status.message.clone()).unwrap_or_else(|| "the pair has died".to_owned())
}

/// How long the pair has lived since its second half was started.
pub(super) fn lived(observed: &Observed) -> Duration {
    let started = observed.started_server().map(|server| server.started_at);
    let lived = started.map(|started| observed.now.duration_since(started));
    lived.and_then(|lived| Duration::try_from(lived).ok()).unwrap_or_default()
}

fn pause_after(in_a_row: i32) -> Duration {
    let doublings = u32::try_from(in_a_row - 1).unwrap_or_default().min(16);
    FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pauses: Vec<u64> = (1..=8).map(|in_a_row| pause_after(in_a_row).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pause_after(i32::MAX), LONGEST_PAUSE);
    }
}
