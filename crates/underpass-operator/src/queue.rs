//! Whose turn it is: every key once, the one that is due for the longest time first, and none that is being looked at.
//!
//! kube's scheduler was rejected: of those that are due it takes whichever its hash table has first. With more objects than can be looked at
//! in the time in which some of them ask to be looked at again, a few have all the turns, and others never have one.

use std::collections::{BTreeMap, HashMap};

use tokio::time::Instant;

use crate::reconcile::Key;

#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: BTreeMap<Turn, Key>,
    turns: HashMap<Key, Turn>,
    /// Those that are being looked at, and when each has to be again.
    running: HashMap<Key, Option<Instant>>,
    asked: u64,
}

/// When, and of those at one moment who asked first.
type Turn = (Instant, u64);

impl Queue {
    /// To be looked at then, or earlier if it was asked for already.
    pub(crate) fn ask(&mut self, key: Key, at: Instant) {
        if let Some(again) = self.running.get_mut(&key) {
            *again = Some(again.map_or(at, |earlier| earlier.min(at)));
            return;
        }
        if let Some(turn) = self.turns.get(&key).copied() {
            if turn.0 <= at {
                return;
            }
            self.waiting.remove(&turn);
        }
        self.asked += 1;
        let turn = (at, self.asked);
        self.turns.insert(key.clone(), turn);
        self.waiting.insert(turn, key);
    }

    /// Who is to be looked at now. It has no other turn until [`Queue::done`].
    pub(crate) fn take(&mut self, now: Instant) -> Option<Key> {
        let first = self.waiting.first_entry().filter(|first| first.key().0 <= now)?;
        let key = first.remove();
        self.turns.remove(&key);
        self.running.insert(key.clone(), None);
        Some(key)
    }

    /// It was looked at, and is to be again then, or when somebody has asked for it meanwhile.
    pub(crate) fn done(&mut self, key: Key, again: Option<Instant>) {
        let asked = self.running.remove(&key).flatten();
        if let Some(at) = asked.into_iter().chain(again).min() {
            self.ask(key, at);
        }
    }

    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|(turn, _)| turn.0)
    }

    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn key(name: &str) -> Key {
        Key::cluster(name)
    }

    #[test]
    fn who_asked_first_is_first_and_everybody_once() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for name in ["c", "a", "b", "a", "c"] {
            queue.ask(key(name), now);
        }
        let taken: Vec<Key> = std::iter::from_fn(|| queue.take(now)).collect();
        assert_eq!(taken, [key("c"), key("a"), key("b")]);
    }

    #[test]
    fn nobody_is_taken_early_and_the_earlier_wish_counts() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.ask(key("a"), now + 9 * SECOND);
        queue.ask(key("a"), now + SECOND);
        queue.ask(key("a"), now + 5 * SECOND);
        assert_eq!((queue.take(now), queue.next()), (None, Some(now + SECOND)));
        assert_eq!(queue.take(now + SECOND), Some(key("a")));
        assert_eq!((queue.take(now + 9 * SECOND), queue.next()), (None, None));
    }

    #[test]
    fn who_is_looked_at_has_its_next_turn_afterwards() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.ask(key("a"), now);
        assert_eq!(queue.take(now), Some(key("a")));
        queue.ask(key("a"), now);
        assert_eq!((queue.take(now), queue.running()), (None, 1));
        queue.done(key("a"), Some(now + SECOND));
        assert_eq!((queue.take(now), queue.running()), (Some(key("a")), 1));
        queue.done(key("a"), None);
        assert_eq!((queue.take(now + SECOND), queue.running()), (None, 0));
    }

    /// A few that are due again at once, among many that were never looked at.
    #[test]
    fn who_comes_back_again_and_again_keeps_nobody_waiting() {
        let (mut queue, start) = (Queue::default(), Instant::now());
        for number in 0..1000 {
            queue.ask(key(&number.to_string()), start);
        }
        let mut looked_at = std::collections::HashSet::new();
        for turn in 0..1000 {
            let now = start + turn * Duration::from_millis(10);
            let key = queue.take(now).expect("somebody is due");
            queue.done(key.clone(), Some(now));
            looked_at.insert(key);
        }
        assert_eq!(looked_at.len(), 1000);
    }
}
