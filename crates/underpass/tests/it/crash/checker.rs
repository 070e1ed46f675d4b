//! Judges a history: is there one log of revisions that explains all that clients sent and saw?
//!
//! The log is what the watches saw together. Every acknowledged write must stand in it once, at the revision that was
//! acknowledged; one with an unknown outcome at most once; a refused one never; and nothing that nobody sent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::history::{Change, History, Key, Operation, Outcome, Revision, Seen, State, Verb, Watched};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Law {
    /// What was acknowledged or read is in the log, where it was said to be.
    Kept,
    /// One operation happens once.
    Once,
    /// What is in the log was sent, and not refused.
    Sent,
    /// One revision stands for one event, for ever.
    OwnRevision,
    /// A watch sees every event.
    NoGap,
    /// A watch sees an event once, and in order.
    NoRepeat,
    /// The life of an object: added, modified, deleted, each change on the state that its operation asked for.
    Order,
    /// What is acknowledged before another begins has a lower revision.
    RealTime,
    /// The events of a watch, replayed, are what a list shows.
    Replay,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub(crate) law: Law,
    pub(crate) what: String,
}

type Log<'a> = BTreeMap<Revision, &'a Seen>;

struct Checker<'a> {
    history: &'a History,
    log: Log<'a>,
    flaws: Vec<Flaw>,
}

/// All that is wrong with a history; nothing if it is sound.
pub(crate) fn check(history: &History) -> Vec<Flaw> {
    let mut checker = Checker { history, log: Log::new(), flaws: Vec::new() };
    for watched in &history.watched {
        checker.sequence(watched);
    }
    checker.gaps();
    checker.lives();
    checker.operations();
    checker.reads();
    checker.real_time();
    checker.replays();
    checker.flaws
}

impl<'a> Checker<'a> {
    fn flaw(&mut self, law: Law, what: impl fmt::Display) {
        self.flaws.push(Flaw { law, what: what.to_string() });
    }

    /// Adds what one watch saw to the log.
    fn sequence(&mut self, watched: &'a Watched) {
        let (mut last, mut own) = (0, Log::new());
        for event in &watched.events {
            let revision = event.state.revision;
            if own.insert(revision, event) == Some(event) {
                self.flaw(Law::NoRepeat, format_args!("{} saw {event:?} again", watched.name));
            } else if revision < last {
                self.flaw(Law::NoRepeat, format_args!("{} saw revision {revision} after {last}", watched.name));
            }
            last = last.max(revision);
            let known = *self.log.entry(revision).or_insert(event);
            if known != event {
                self.flaw(Law::OwnRevision, format_args!("{revision} is {known:?} and {event:?}"));
            }
        }
    }

    fn gaps(&mut self) {
        for watched in &self.history.watched {
            let saw: BTreeSet<Revision> = watched.events.iter().map(|event| event.state.revision).collect();
            let missing = self.log.values().filter(|event| event.state.key.kind == watched.kind);
            let missing: Vec<_> = missing.map(|event| event.state.revision).filter(|it| !saw.contains(it)).collect();
            if !missing.is_empty() {
                self.flaw(Law::NoGap, format_args!("{} did not see {missing:?}", watched.name));
            }
        }
    }

    /// Follows each object through the log.
    fn lives(&mut self) {
        let sent = by_payload(self.history);
        let (mut live, mut payloads, mut uids) = (BTreeMap::<&Key, &State>::new(), BTreeSet::new(), BTreeSet::new());
        for event in self.log.values().copied().collect::<Vec<_>>() {
            let state = &event.state;
            let before = live.get(&state.key).copied();
            if event.change == Change::Deleted {
                self.deletion(event, before);
                live.remove(&state.key);
                continue;
            }
            live.insert(&state.key, state);
            if !payloads.insert(&state.payload) {
                self.flaw(Law::Once, format_args!("a payload stands twice in the log: {event:?}"));
            }
            if event.change == Change::Added && !uids.insert(&state.uid) {
                self.flaw(Law::Order, format_args!("a new object has the uid of an older one: {event:?}"));
            }
            match sent.get(state.payload.as_str()) {
                Some(operation) if operation.key == state.key => self.change(event, before, operation),
                _ => self.flaw(Law::Sent, format_args!("nobody sent {event:?}")),
            }
        }
    }

    fn change(&mut self, event: &Seen, before: Option<&State>, operation: &Operation) {
        let same = before.is_some_and(|before| before.uid == event.state.uid);
        let fits = match (&operation.verb, event.change) {
            (Verb::Create, Change::Added) => before.is_none(),
            (Verb::Update { at }, Change::Modified) => same && before.is_some_and(|before| before.revision == *at),
            (Verb::Patch, Change::Modified) => same,
            _ => false,
        };
        if !fits {
            self.flaw(Law::Order, format_args!("{operation:?} made {event:?} of {before:?}"));
        }
    }

    fn deletion(&mut self, event: &Seen, before: Option<&State>) {
        let Some(before) = before.filter(|it| it.uid == event.state.uid && it.payload == event.state.payload) else {
            return self.flaw(Law::Order, format_args!("{event:?} follows {before:?}"));
        };
        let asked = |operation: &&Operation| {
            let right =
                matches!(&operation.verb, Verb::Delete { at, uid } if *at == before.revision && *uid == before.uid);
            right && operation.key == before.key && !matches!(operation.outcome, Outcome::Refused { .. })
        };
        if !self.history.operations.iter().any(|operation| asked(&operation)) {
            self.flaw(Law::Sent, format_args!("nobody asked for {event:?}"));
        }
    }

    fn operations(&mut self) {
        let logged = Logged::new(&self.log);
        for operation in &self.history.operations {
            match (&operation.outcome, logged.revision(operation)) {
                (Outcome::Done { .. }, None) => self.flaw(Law::Kept, format_args!("lost: {operation:?}")),
                (Outcome::Done { revision: Some(told) }, Some(found)) if *told != found => {
                    self.flaw(Law::Kept, format_args!("logged at {found}: {operation:?}"));
                }
                // A refused deletion may name what another deleted: whether the deletion was asked for is checked with the lives.
                (Outcome::Refused { .. }, Some(found)) if !operation.payload.is_empty() => {
                    self.flaw(Law::Sent, format_args!("refused and logged at {found}: {operation:?}"));
                }
                _ => {}
            }
        }
        self.deletions();
    }

    /// Two clients cannot both have deleted the same object.
    fn deletions(&mut self) {
        let mut deleted = BTreeSet::new();
        for operation in &self.history.operations {
            if let (Verb::Delete { uid, .. }, Outcome::Done { .. }) = (&operation.verb, &operation.outcome)
                && !deleted.insert(uid)
            {
                self.flaw(Law::Once, format_args!("deleted twice: {operation:?}"));
            }
        }
    }

    fn reads(&mut self) {
        for read in self.history.reads.iter().chain(&self.history.listed) {
            if self.log.get(&read.revision).is_none_or(|event| event.state != *read) {
                self.flaw(Law::Kept, format_args!("a client read what is not in the log: {read:?}"));
            }
        }
    }

    fn real_time(&mut self) {
        let logged = Logged::new(&self.log);
        let acknowledged = self.history.operations.iter().filter(|it| matches!(it.outcome, Outcome::Done { .. }));
        let mut ended: Vec<(u64, Revision)> =
            acknowledged.filter_map(|it| logged.revision(it).map(|revision| (it.ended, revision))).collect();
        ended.sort_unstable();
        let mut newest = 0;
        for (_, revision) in &mut ended {
            newest = newest.max(*revision);
            *revision = newest;
        }
        for operation in &self.history.operations {
            let earlier = ended.partition_point(|(at, _)| *at < operation.begun);
            let before = earlier.checked_sub(1).map_or(0, |index| ended[index].1);
            // A deletion that was not acknowledged may have been made by somebody else, earlier.
            let own = !operation.payload.is_empty() || matches!(operation.outcome, Outcome::Done { .. });
            if let Some(revision) = logged.revision(operation).filter(|revision| own && *revision <= before) {
                let what = format!("{revision}, though {before} was acknowledged before it began: {operation:?}");
                self.flaw(Law::RealTime, what);
            }
        }
    }

    fn replays(&mut self) {
        for watched in &self.history.watched {
            let mut objects = BTreeMap::new();
            for event in &watched.events {
                match event.change {
                    Change::Deleted => objects.remove(&event.state.key),
                    Change::Added | Change::Modified => objects.insert(&event.state.key, &event.state),
                };
            }
            let listed = self.history.listed.iter().filter(|state| state.key.kind == watched.kind);
            let listed: BTreeMap<_, _> = listed.map(|state| (&state.key, state)).collect();
            if objects != listed {
                let differ = objects.iter().chain(&listed).filter(|(key, _)| objects.get(*key) != listed.get(*key));
                let differ: BTreeSet<_> = differ.collect();
                self.flaw(Law::Replay, format_args!("{} and the list differ in {differ:?}", watched.name));
            }
        }
    }
}

/// Where operations stand in the log.
struct Logged<'a> {
    payloads: BTreeMap<&'a str, Revision>,
    deletions: BTreeMap<&'a str, Revision>,
}

impl<'a> Logged<'a> {
    fn new(log: &Log<'a>) -> Logged<'a> {
        let (mut payloads, mut deletions) = (BTreeMap::new(), BTreeMap::new());
        for (revision, event) in log {
            match event.change {
                Change::Deleted => deletions.insert(event.state.uid.as_str(), *revision),
                Change::Added | Change::Modified => payloads.insert(event.state.payload.as_str(), *revision),
            };
        }
        Logged { payloads, deletions }
    }

    fn revision(&self, operation: &Operation) -> Option<Revision> {
        match &operation.verb {
            Verb::Delete { uid, .. } => self.deletions.get(uid.as_str()).copied(),
            Verb::Create | Verb::Update { .. } | Verb::Patch => self.payloads.get(operation.payload.as_str()).copied(),
        }
    }
}

fn by_payload(history: &History) -> BTreeMap<&str, &Operation> {
    let sent = history.operations.iter().filter(|operation| !operation.payload.is_empty());
    sent.map(|operation| (operation.payload.as_str(), operation)).collect()
}

#[cfg(test)]
#[path = "checker_tests.rs"]
mod tests;
