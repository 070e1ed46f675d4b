//! Where the other half may be: its own address first, because nothing stands in between, and then the ports that its engine
//! forwards. The one that answered last is asked first.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A better address that failed is tried again after so long: it may not have been up yet.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

pub(crate) struct Candidates {
    addresses: Vec<SocketAddr>,
    last: Mutex<Last>,
}

#[derive(Clone, Copy)]
struct Last {
    /// Which one answered.
    good: usize,
    /// When all were last asked in order.
    in_order: Option<Instant>,
}

impl Candidates {
    pub(crate) fn new(addresses: Vec<SocketAddr>) -> Self {
        Self { addresses, last: Mutex::new(Last { good: 0, in_order: None }) }
    }

    /// In the order in which to try them, each with its place.
    pub(crate) fn in_order(&self, now: Instant) -> Vec<(usize, SocketAddr)> {
        let mut last = self.last.lock();
        let due = last.in_order.is_none_or(|then| now.duration_since(then) >= AGAIN_AFTER);
        let first = if due { 0 } else { last.good };
        if due {
            last.in_order = Some(now);
        }
        let mut ordered: Vec<_> = self.addresses.iter().copied().enumerate().collect();
        ordered.sort_by_key(|(place, _)| *place != first);
        ordered
    }

    pub(crate) fn answered(&self, place: usize) {
        self.last.lock().good = place;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_answered_is_asked_first_and_the_better_one_again_later() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let candidates = Candidates::new(vec![address(1), address(2), address(3)]);
        let ports = |now| candidates.in_order(now).iter().map(|(_, address)| address.port()).collect::<Vec<_>>();
        let start = Instant::now();
        assert_eq!(ports(start), [1, 2, 3]);
        candidates.answered(1);
        assert_eq!(ports(start), [2, 1, 3]);
        assert_eq!(ports(start + AGAIN_AFTER), [1, 2, 3]);
        assert_eq!(ports(start + AGAIN_AFTER), [2, 1, 3]);
    }
}
