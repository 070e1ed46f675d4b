//! How much a half can carry at a time. Whoever uses up its descriptors or the host's ports would take the pair's own connections along:
//! control, data connections that stand ready, and the probe by which the pair is found dead.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rustix::process::{Resource, getrlimit};

/// A stream: its client or server, and its data connection.
const DESCRIPTORS_OF_ONE: u64 = 2;
/// For control connections, handshakes, and data connections that stand ready.
const KEPT: u64 = 1024;
/// For a worker: its listeners, one per tunnel, and its pipes.
const KEPT_PER_WORKER: u64 = 1024;
/// Of a small limit: with the pipes of bulk transfers one takes up to six.
const LEAST_SHARE: u64 = 8;
/// What a Linux that was left alone has; see ip(7).
const PORTS: (u64, u64) = (32_768, 60_999);
const PORTS_FILE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Of the pair's whole, what streams may take; flows get the rest. Neither can starve the other.
pub(crate) fn streams(whole: u32) -> u32 {
    (whole - whole / 4).max(1)
}

pub(crate) fn flows(whole: u32) -> u32 {
    (whole / 4).max(1)
}

/// Of all streams or flows, what a tunnel may take that does not say how many: it cannot starve the others.
pub(crate) fn of_a_tunnel(all: u32) -> u32 {
    (all / 2).max(1)
}

/// Streams and flows, by the descriptors of this process.
pub(crate) fn by_descriptors(workers: usize) -> u32 {
    within_descriptors(getrlimit(Resource::Nofile).current, workers as u64)
}

/// Streams and flows, by the ports from which the other half is dialled.
pub(crate) fn by_ports() -> u32 {
    let range = fs::read_to_string(PORTS_FILE).ok();
    let (first, last) = range.and_then(|range| parse(&range)).unwrap_or(PORTS);
    within_ports(first, last)
}

/// Flows of all tunnels together.
pub(crate) struct Places {
    most: AtomicUsize,
    taken: AtomicUsize,
}

impl Places {
    pub(crate) fn new(most: u32) -> Self {
        Self { most: AtomicUsize::new(most as usize), taken: AtomicUsize::new(0) }
    }

    pub(crate) fn set_most(&self, most: u32) {
        self.most.store(most as usize, Relaxed);
    }

    pub(crate) fn most(&self) -> usize {
        self.most.load(Relaxed)
    }

    pub(crate) fn are_taken(&self) -> bool {
        self.taken.load(Relaxed) >= self.most()
    }

    pub(crate) fn take(&self) {
        self.taken.fetch_add(1, Relaxed);
    }

    pub(crate) fn give_back(&self) {
        self.taken.fetch_sub(1, Relaxed);
    }
}

/// None: there is no limit.
fn within_descriptors(limit: Option<u64>, workers: u64) -> u32 {
    let Some(limit) = limit else { return u32::MAX };
    let kept = KEPT + KEPT_PER_WORKER * workers;
    let most = (limit.saturating_sub(kept) / DESCRIPTORS_OF_ONE).max(limit / LEAST_SHARE).max(1);
    u32::try_from(most).unwrap_or(u32::MAX)
}

/// A quarter stays for everybody else on the host, and for connections that have just ended.
fn within_ports(first: u64, last: u64) -> u32 {
    let ports = (last + 1).saturating_sub(first);
    u32::try_from((ports - ports / 4).max(1)).unwrap_or(u32::MAX)
}

fn parse(range: &str) -> Option<(u64, u64)> {
    let mut bounds = range.split_whitespace().map(str::parse);
    Some((bounds.next()?.ok()?, bounds.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pair_needs_for_itself_is_left() {
        for (limit, workers) in [(256, 1), (1024, 1), (4096, 2), (16_384, 1), (1_048_576, 32)] {
            let most = u64::from(within_descriptors(Some(limit), workers));
            let left = limit - most * DESCRIPTORS_OF_ONE;
            assert!(most > 0 && left >= (limit / 2).min(KEPT + KEPT_PER_WORKER * workers), "{limit}: {most}");
        }
        assert_eq!(within_descriptors(Some(16_384), 1), 7168);
        assert_eq!(within_descriptors(None, 1), u32::MAX);
        assert_eq!(parse("32768\t60999\n").map(|(first, last)| within_ports(first, last)), Some(21_174));
    }

    #[test]
    fn shares_fit_into_the_whole() {
        for whole in [4, 7, 100, 7168, u32::MAX] {
            assert!(streams(whole) + flows(whole) <= whole);
            assert!(of_a_tunnel(streams(whole)) < streams(whole));
        }
    }
}
