//! What one client has been told on one stream, and what it is to be told next. No sockets, no clock: whoever holds it says what was asked,
//! what the newest snapshot is and what time it is.
//!
//! Of each kind one answer is under way at a time; what changes meanwhile is told together when the client has answered. A client that
//! asks for several kinds on one stream is told of clusters, then of their endpoints, then of the listeners that lead to them; what is
//! gone leaves the listeners first. A connection thus never finds a listener whose cluster is not there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::snapshot::{Kind, Resource, Snapshot};

/// How long listeners wait for clusters and endpoints that a client does not take, or does not ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// All kinds on one stream.
#[derive(Default)]
pub(crate) struct Stream {
    channels: [Channel; 3],
    /// Since when listeners have been ready to go, but for what they need.
    waiting_since: Option<Instant>,
    last_nonce: u64,
}

/// One kind on one stream.
#[derive(Default)]
struct Channel {
    asked: Option<Asked>,
    /// What the client was told last, whether it liked it or not: what it refused is not repeated.
    held: BTreeMap<Arc<str>, Arc<Resource>>,
    /// What it was told not to exist.
    absent: BTreeSet<Arc<str>>,
    under_way: Option<UnderWay>,
    /// Of the newest answer, whether it was acknowledged or not.
    newest_nonce: String,
    /// Whether there must be an answer even when there is nothing to tell.
    owes_answer: bool,
    /// The version with which there was nothing to tell; a look at every resource is saved as long as it stays.
    settled: Option<Arc<str>>,
}

/// What is asked for of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) everything: bool,
    pub(crate) names: BTreeSet<Arc<str>>,
}

/// Sent and not yet answered.
struct UnderWay {
    nonce: String,
    version: Arc<str>,
}

/// What is to be sent now.
#[derive(Debug)]
pub(crate) struct Update {
    pub(crate) kind: Kind,
    pub(crate) nonce: String,
    /// Of the whole kind.
    pub(crate) version: Arc<str>,
    /// New, or other than before.
    pub(crate) changed: Vec<(Arc<str>, Arc<Resource>)>,
    /// No more.
    pub(crate) removed: Vec<Arc<str>>,
}

/// What is not yet told.
#[derive(Default)]
struct Untold {
    changed: Vec<(Arc<str>, Arc<Resource>)>,
    removed: Vec<Arc<str>>,
}

impl Asked {
    pub(crate) fn covers(&self, name: &str) -> bool {
        self.everything || self.names.contains(name)
    }
}

impl Stream {
    pub(crate) fn asked(&self, kind: Kind) -> Option<&Asked> {
        self.channels[kind as usize].asked.as_ref()
    }

    /// What the client wants from now on. What it no longer wants is forgotten, and told again should it want it once more.
    pub(crate) fn ask(&mut self, kind: Kind, asked: Asked) {
        let channel = &mut self.channels[kind as usize];
        if channel.asked.as_ref() == Some(&asked) {
            return;
        }
        channel.held.retain(|name, _| asked.covers(name));
        channel.absent.retain(|name| asked.covers(name));
        // The first question has an answer, and so has one for more than before: whoever asks may wait for it.
        channel.owes_answer |= match &channel.asked {
            None => true,
            Some(before) => {
                asked.names.difference(&before.names).next().is_some() || asked.everything && !before.everything
            }
        };
        channel.settled = None;
        channel.asked = Some(asked);
    }

    /// The client says that it has these already, from a stream before this one.
    pub(crate) fn has(&mut self, kind: Kind, held: impl IntoIterator<Item = (Arc<str>, Arc<Resource>)>) {
        let channel = &mut self.channels[kind as usize];
        channel.held.extend(held);
        channel.owes_answer = false;
        channel.settled = None;
    }

    /// The client wants to be told of these again.
    pub(crate) fn forget<'a>(&mut self, kind: Kind, names: impl IntoIterator<Item = &'a str>) {
        let channel = &mut self.channels[kind as usize];
        for name in names {
            channel.held.remove(name);
            channel.absent.remove(name);
        }
        channel.settled = None;
    }

    /// Whether this answers what is under way, and which version that was. Older answers do not matter any more.
    pub(crate) fn answered(&mut self, kind: Kind, nonce: &str) -> Option<Arc<str>> {
        let under_way = &mut self.channels[kind as usize].under_way;
        let answered = under_way.take_if(|sent| sent.nonce == nonce)?;
        Some(answered.version)
    }

    /// Whether this is said by somebody who knows the newest answer: whoever asks for something else after it says so with its nonce.
    pub(crate) fn is_newest(&self, kind: Kind, nonce: &str) -> bool {
        let channel = &self.channels[kind as usize];
        channel.asked.is_none() || channel.newest_nonce == nonce
    }

    /// What can be sent now, one kind at a time; None: nothing before the client says something, the snapshot changes or `wait_until` passes.
    pub(crate) fn next(&mut self, snapshot: &Snapshot, now: Instant) -> Option<Update> {
        Kind::ALL.into_iter().find_map(|kind| self.next_of(kind, snapshot, now))
    }

    /// The version of which the client has everything that it asked for, whether it was sent here or on a stream before this one.
    pub(crate) fn settled(&self, kind: Kind) -> Option<&Arc<str>> {
        let channel = &self.channels[kind as usize];
        channel.settled.as_ref().filter(|_| channel.under_way.is_none())
    }

    /// When there may be more to send although nothing happened.
    pub(crate) fn wait_until(&self) -> Option<Instant> {
        self.waiting_since.map(|since| since + LONGEST_WAIT)
    }

    fn next_of(&mut self, kind: Kind, snapshot: &Snapshot, now: Instant) -> Option<Update> {
        let channel = &self.channels[kind as usize];
        if channel.under_way.is_some() || channel.asked.is_none() {
            return None;
        }
        let mut untold = channel.untold(kind, snapshot);
        if kind == Kind::Listener {
            let has_something = channel.owes_answer || !untold.is_empty();
            if has_something && !self.is_prepared(snapshot) && !self.has_waited(now) {
                return None;
            }
            self.waiting_since = None;
        } else if !untold.removed.is_empty() && !self.listeners_are_settled(snapshot) {
            untold.removed.clear();
            if untold.is_empty() && !self.channels[kind as usize].owes_answer {
                return None;
            }
        }
        self.channels[kind as usize].tell(&untold, snapshot.of(kind).version.clone())?;
        if kind == Kind::Cluster {
            // A cluster that changes begins anew, and waits for its endpoints.
            self.forget(Kind::Endpoints, untold.changed.iter().map(|(name, _)| &**name));
        }
        self.last_nonce += 1;
        let (nonce, version) = (self.last_nonce.to_string(), snapshot.of(kind).version.clone());
        let channel = &mut self.channels[kind as usize];
        channel.newest_nonce.clone_from(&nonce);
        channel.under_way = Some(UnderWay { nonce: nonce.clone(), version: version.clone() });
        Some(Update { kind, nonce, version, changed: untold.changed, removed: untold.removed })
    }

    /// Whether the client has the clusters and the endpoints of this snapshot, as far as it gets them on this stream.
    fn is_prepared(&self, snapshot: &Snapshot) -> bool {
        let [clusters, endpoints, _] = &self.channels;
        if clusters.asked.is_none() {
            return true;
        }
        let told =
            |channel: &Channel, kind| channel.under_way.is_none() && channel.untold(kind, snapshot).changed.is_empty();
        let asked_for_all = || match &endpoints.asked {
            None => snapshot.clusters.by_name.is_empty(),
            Some(asked) => snapshot.clusters.by_name.keys().all(|name| asked.covers(name)),
        };
        told(clusters, Kind::Cluster) && asked_for_all() && told(endpoints, Kind::Endpoints)
    }

    fn has_waited(&mut self, now: Instant) -> bool {
        let since = *self.waiting_since.get_or_insert(now);
        now.duration_since(since) >= LONGEST_WAIT
    }

    /// Whether the client's listeners lead to nothing but what is in this snapshot.
    fn listeners_are_settled(&self, snapshot: &Snapshot) -> bool {
        let listeners = &self.channels[Kind::Listener as usize];
        listeners.asked.is_none()
            || listeners.under_way.is_none() && listeners.untold(Kind::Listener, snapshot).is_empty()
    }

    /// Everything of a kind that the client has, with what was just sent.
    pub(crate) fn held(&self, kind: Kind) -> impl Iterator<Item = &Arc<Resource>> {
        self.channels[kind as usize].held.values()
    }
}

impl Channel {
    fn untold(&self, kind: Kind, snapshot: &Snapshot) -> Untold {
        let (Some(asked), wanted) = (&self.asked, snapshot.of(kind)) else { return Untold::default() };
        if self.settled.as_ref() == Some(&wanted.version) {
            return Untold::default();
        }
        let is_news = |name: &Arc<str>, resource: &Arc<Resource>| {
            self.held.get(name).is_none_or(|held| !Arc::ptr_eq(held, resource) && held.version != resource.version)
        };
        let all = wanted.by_name.iter().filter(|(name, resource)| asked.covers(name) && is_news(name, resource));
        let gone = self.held.keys().filter(|name| !wanted.by_name.contains_key(*name));
        // Whoever asks for one by name waits to hear of it, even if that is bad news.
        let unknown = asked.names.iter().filter(|name| {
            !wanted.by_name.contains_key(*name) && !self.held.contains_key(*name) && !self.absent.contains(*name)
        });
        Untold {
            changed: all.map(|(name, resource)| (name.clone(), resource.clone())).collect(),
            removed: gone.chain(unknown).cloned().collect(),
        }
    }

    /// Remembers what is told; None: there is nothing to tell.
    fn tell(&mut self, untold: &Untold, version: Arc<str>) -> Option<()> {
        if untold.is_empty() && !self.owes_answer {
            self.settled = Some(version);
            return None;
        }
        self.owes_answer = false;
        self.settled = None;
        for name in &untold.removed {
            self.held.remove(name);
            if self.asked.as_ref().is_some_and(|asked| asked.names.contains(name)) {
                self.absent.insert(name.clone());
            }
        }
        for (name, resource) in &untold.changed {
            self.absent.remove(name);
            self.held.insert(name.clone(), resource.clone());
        }
        Some(())
    }
}

impl Untold {
    fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }
}

#[cfg(test)]
mod tests;
