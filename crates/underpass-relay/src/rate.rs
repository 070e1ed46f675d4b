//! How many connections each client address has opened within this second. Looked at only where a limit is set.

use std::collections::HashMap;
use std::net::IpAddr;

const WINDOW_MS: u64 = 1000;
/// IPv6 clients own whole networks: they are counted by /64, or one of them could never be limited.
const V6_NETWORK: u128 = !0 << 64;

#[derive(Default)]
pub(crate) struct Rates {
    window: u64,
    counts: HashMap<IpAddr, u32>,
}

impl Rates {
    /// Counts one more; false when it is one too many.
    pub(crate) fn admit(&mut self, source: IpAddr, limit: u32, now_ms: u64) -> bool {
        let window = now_ms / WINDOW_MS;
        if window != self.window {
            self.window = window;
            self.counts.clear();
        }
        let count = self.counts.entry(network(source)).or_insert(0);
        *count = count.saturating_add(1);
        *count <= limit
    }
}

fn network(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & V6_NETWORK).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;

    #[test]
    fn each_source_has_its_own_share_of_each_second() {
        let mut rates = Rates::default();
        let (a, b): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        assert!(rates.admit(a, 2, 0) && rates.admit(a, 2, 999));
        assert!(!rates.admit(a, 2, 999));
        assert!(rates.admit(b, 2, 999));
        assert!(rates.admit(a, 2, 1000));
    }

    #[test]
    fn neighbours_in_a_64_share() {
        let mut rates = Rates::default();
        assert!(rates.admit("2001:db8::1".parse().unwrap(), 1, 0));
        assert!(!rates.admit("2001:db8::2".parse().unwrap(), 1, 0));
        assert!(rates.admit("2001:db8:0:1::1".parse().unwrap(), 1, 0));
    }
}
