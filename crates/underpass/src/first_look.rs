//! The objects of an earlier run: waited for, until this one has looked at them.

use std::time::Duration;

use tokio::time::{Instant, interval_at};
use underpass_operator::{FirstLook, Health};

use crate::output::tell;

/// Whoever watches wonders why nothing is said.
const WORD: Duration = Duration::from_secs(1);
/// An engine that hangs, or one object that nobody can look at, must not keep all others waiting.
const PATIENCE: Duration = Duration::from_secs(30);
/// Enough to know where to look.
const MOST_NAMED: usize = 5;

pub(crate) async fn wait(first_look: &FirstLook, health: &Health) {
    let mut word = interval_at(Instant::now() + WORD, WORD);
    let (mut end, mut told) = (None, false);
    loop {
        tokio::select! {
            () = first_look.over() => return,
            now = word.tick() => {
                // The look is theirs.
                if health.waits() {
                    return;
                }
                // Until a watchdog has cleaned up, which those say who wait for it.
                if !first_look.has_begun() {
                    continue;
                }
                if now > *end.get_or_insert(now + PATIENCE) {
                    return tell(&unseen(&names(first_look)));
                }
                if !std::mem::replace(&mut told, true) {
                    tell("looking at what an earlier underpass has left, before this one says that it is ready");
                }
            }
        }
    }
}

fn names(first_look: &FirstLook) -> Vec<String> {
    first_look.left().into_iter().map(|(kind, key)| format!("{kind} {key}")).collect()
}

fn unseen(names: &[String]) -> String {
    let seconds = PATIENCE.as_secs();
    match names {
        [] => {
            format!("after {seconds} seconds not all objects are known; what they say may be of an earlier underpass")
        }
        names => {
            let more = names.len().checked_sub(MOST_NAMED).filter(|more| *more > 0);
            let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
            let some = names.iter().take(MOST_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            format!("after {seconds} seconds these still say what an earlier underpass has seen: {some}{more}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unseen_is_a_few_names_and_a_number() {
        let names: Vec<String> = (0..7).map(|number| format!("Infra i{number}")).collect();
        assert!(unseen(&names).ends_with("Infra i0, Infra i1, Infra i2, Infra i3, Infra i4 and 2 more"));
        assert!(unseen(&names[..1]).ends_with(": Infra i0"));
        assert!(unseen(&[]).contains("not all objects are known"));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever() {
        let began = Instant::now();
        let first_look = FirstLook::default();
        first_look.watches("Infra");
        first_look.began();
        wait(&first_look, &Health::default()).await;
        assert!(began.elapsed() > PATIENCE && began.elapsed() < 2 * PATIENCE);
    }
}
