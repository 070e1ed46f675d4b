//! Waiting for a condition, never for a time.

use std::time::{Duration, Instant};

/// Long enough for a busy machine; nobody waits it out unless something is broken.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Between two looks; more where a look itself takes long. Whoever waits leaves the processors to what is waited for: kubectl, again and again, is
/// a processor's whole work.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const MOST: Duration = Duration::from_millis(500);
const TIMES_A_LOOK: u32 = 2;

/// Looks until `condition` gives something. Panics with `what` when `patience` is over.
#[track_caller]
pub fn wait_until<T>(what: &str, patience: Duration, condition: impl FnMut() -> Option<T>) -> T {
    let Some(result) = look_until(patience, condition) else { panic!("after {patience:?} still waiting for: {what}") };
    result
}

/// Looks until `condition` gives something; `None` when `patience` is over.
pub fn look_until<T>(patience: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + patience;
    loop {
        let begun = Instant::now();
        let result = condition();
        if result.is_some() || Instant::now() >= deadline {
            return result;
        }
        std::thread::sleep((begun.elapsed() * TIMES_A_LOOK).clamp(LOOK_AGAIN, MOST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_result_ends_the_wait() {
        let mut looks = 0;
        let result = wait_until("three looks", PATIENCE, || {
            looks += 1;
            (looks == 3).then_some("done")
        });
        assert_eq!((result, looks), ("done", 3));
    }

    #[test]
    #[should_panic(expected = "still waiting for: the moon")]
    fn patience_ends() {
        wait_until("the moon", Duration::ZERO, || None::<()>);
    }
}
