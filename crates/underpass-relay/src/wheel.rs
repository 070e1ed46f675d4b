//! Deadlines of connections: one per connection, set and cleared in constant time, without garbage. A heap was rejected: most deadlines
//! (for the hello, for connecting) are cleared long before they pass, and a heap pays for each of them.

/// Granularity. Deadlines pass up to one tick late, never early.
const TICK_MS: u64 = 16;
/// One turn is 16 seconds; a later deadline is passed over once per turn.
const SLOTS: usize = 1024;
const NONE: u32 = u32::MAX;

pub(crate) struct Wheel {
    heads: Vec<u32>,
    links: Vec<Link>,
    /// Every tick before this one was looked at.
    next_tick: u64,
    /// Nothing is due before this tick. Clearing does not move it: at worst it leads to one look in vain.
    earliest: u64,
    pending: usize,
}

#[derive(Clone, Copy)]
struct Link {
    before: u32,
    after: u32,
    /// NEVER when not linked.
    tick: u64,
}

const NEVER: u64 = u64::MAX;
const UNLINKED: Link = Link { before: NONE, after: NONE, tick: NEVER };

impl Wheel {
    pub(crate) fn new() -> Self {
        Self { heads: vec![NONE; SLOTS], links: Vec::new(), next_tick: 0, earliest: NEVER, pending: 0 }
    }

    /// Sets the only deadline of `index`, in milliseconds.
    pub(crate) fn set(&mut self, index: u32, deadline_ms: u64) {
        self.clear(index);
        let position = index as usize;
        if self.links.len() <= position {
            self.links.resize(position + 1, UNLINKED);
        }
        let tick = deadline_ms.div_ceil(TICK_MS).max(self.next_tick);
        let slot = slot(tick);
        let after = self.heads[slot];
        self.links[position] = Link { before: NONE, after, tick };
        if after != NONE {
            self.links[after as usize].before = index;
        }
        self.heads[slot] = index;
        self.earliest = self.earliest.min(tick);
        self.pending += 1;
    }

    pub(crate) fn clear(&mut self, index: u32) {
        let Some(&Link { before, after, tick }) = self.links.get(index as usize) else { return };
        if tick == NEVER {
            return;
        }
        match before {
            NONE => self.heads[slot(tick)] = after,
            before => self.links[before as usize].after = after,
        }
        if after != NONE {
            self.links[after as usize].before = before;
        }
        self.links[index as usize] = UNLINKED;
        self.pending -= 1;
    }

    /// Takes everything whose deadline has passed.
    pub(crate) fn expire(&mut self, now_ms: u64, expired: &mut Vec<u32>) {
        let now_tick = now_ms / TICK_MS;
        if now_tick < self.earliest {
            return;
        }
        // After a long sleep every slot is looked at once, not once per tick that was slept through.
        for tick in self.next_tick.max((now_tick + 1).saturating_sub(SLOTS as u64))..=now_tick {
            let mut index = self.heads[slot(tick)];
            while index != NONE {
                let link = self.links[index as usize];
                if link.tick <= now_tick {
                    self.clear(index);
                    expired.push(index);
                }
                index = link.after;
            }
        }
        self.next_tick = now_tick + 1;
        let occupied = |tick: &u64| self.heads[slot(*tick)] != NONE;
        self.earliest = (self.next_tick..=now_tick + SLOTS as u64).find(occupied).unwrap_or(NEVER);
    }

    /// How long nothing can expire; None when nothing is set.
    pub(crate) fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        let waiting = self.pending > 0 && self.earliest != NEVER;
        waiting.then(|| (self.earliest * TICK_MS).saturating_sub(now_ms).max(1))
    }
}

fn slot(tick: u64) -> usize {
    usize::try_from(tick).unwrap_or(0) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expired(wheel: &mut Wheel, now_ms: u64) -> Vec<u32> {
        let mut expired = Vec::new();
        wheel.expire(now_ms, &mut expired);
        expired.sort_unstable();
        expired
    }

    #[test]
    fn never_early_and_at_most_a_tick_late() {
        let mut wheel = Wheel::new();
        wheel.set(3, 100);
        assert!(expired(&mut wheel, 99).is_empty());
        assert_eq!(expired(&mut wheel, 100 + TICK_MS), [3]);
        assert!(expired(&mut wheel, 10_000).is_empty());
    }

    #[test]
    fn a_new_deadline_replaces_the_old_one() {
        let mut wheel = Wheel::new();
        wheel.set(0, 100);
        wheel.set(1, 100);
        wheel.set(0, 50_000);
        wheel.clear(1);
        assert!(expired(&mut wheel, 49_999).is_empty());
        assert_eq!(expired(&mut wheel, 50_020), [0]);
        assert_eq!(wheel.wait_ms(50_020), None);
    }

    #[test]
    fn a_long_sleep_misses_nothing() {
        let mut wheel = Wheel::new();
        for index in 0..100 {
            wheel.set(index, u64::from(index) * 1000);
        }
        assert_eq!(expired(&mut wheel, 200_000).len(), 100);
    }

    /// Against the plain meaning: a list of deadlines.
    #[test]
    fn agrees_with_a_list() {
        let mut wheel = Wheel::new();
        let mut list = std::collections::BTreeMap::new();
        let mut state = 7_u64;
        for now in (0..60_000).step_by(37) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let index = u32::try_from(state >> 59).unwrap_or(0);
            let deadline = now + (state >> 33) % 40_000;
            wheel.set(index, deadline);
            list.insert(index, deadline.div_ceil(TICK_MS));
            let due: Vec<u32> =
                list.iter().filter(|(_, tick)| **tick <= now / TICK_MS).map(|(index, _)| *index).collect();
            list.retain(|_, tick| *tick > now / TICK_MS);
            assert_eq!(expired(&mut wheel, now), due);
        }
    }
}
