//! How long to wait after the n-th trouble in a row.

use std::time::Duration;

/// Doubles from `first` to `longest`. The jitter takes away up to half of each wait, so that many objects that fail together do not come
/// back together.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    pub first: Duration,
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(250), longest: Duration::from_secs(60) }
    }
}

impl Backoff {
    /// The wait after `troubles` failed passes in a row (counted from 1).
    pub fn wait(&self, troubles: u32) -> Duration {
        self.wait_with(troubles, rand::random_range(0.0..=1.0))
    }

    fn wait_with(&self, troubles: u32, jitter: f64) -> Duration {
        let doublings = troubles.saturating_sub(1).min(30);
        let full = self.first.saturating_mul(1 << doublings).min(self.longest);
        full.mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_longest() {
        let backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(10) };
        let waits: Vec<u64> = (1..=6).map(|troubles| backoff.wait_with(troubles, 0.0).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
        assert_eq!(backoff.wait_with(u32::MAX, 0.0), backoff.longest);
    }

    #[test]
    fn jitter_takes_at_most_half() {
        let backoff = Backoff { first: Duration::from_secs(4), longest: Duration::from_secs(4) };
        assert_eq!(backoff.wait_with(1, 1.0), Duration::from_secs(2));
        for _ in 0..100 {
            let wait = backoff.wait(1);
            assert!((2.0..=4.0).contains(&wait.as_secs_f64()), "{wait:?}");
        }
    }
}
