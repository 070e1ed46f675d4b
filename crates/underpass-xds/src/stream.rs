//! What one client has been told on one stream, and what it is to be told next. No sockets, no clock: whoever holds it says what was asked,
//! what the newest snapshot is and what time it is.
//!
//! Of each kind one answer is under way at a time; what changes meanwhile is told together when the client has answered. A client that
//! asks for several kinds on one stream is told of clusters, then of their endpoints, then of the listeners that lead to them; what is
//! gone leaves the listeners first. A connection thus never finds a listener whose cluster is not there.
//!
//! What a client has is remembered as the resources that it was told last, which all clients share, and what it has otherwise. So a change
//! costs each client as much as changed, and a client that has everything holds next to nothing here.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::envoy::LONGEST_CHECK;
use crate::resources::{Resource, Resources};
use crate::snapshot::{Kind, Snapshot};

/// How long listeners wait for clusters and endpoints that a client does not take, or does not ask for; and what is gone, for a client that comes
/// back to ask for listeners. An Envoy takes clusters when all their endpoints were checked once, and is given the time for that.
const LONGEST_WAIT: Duration = LONGEST_CHECK.saturating_add(Duration::from_secs(5));
/// How long after a refusal the same is told once more, and then twice as long each time: a port that somebody else had may be free by then.
const FIRST_RETRY: Duration = Duration::from_secs(2);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// All kinds on one stream.
#[derive(Default)]
pub(crate) struct Stream {
    channels: [Channel; 3],
    /// Since when listeners have been ready to go, but for what they need; or, of a client that comes back, have not been asked for.
    waiting_since: Option<Instant>,
    /// The client has clusters from a stream before this one, and may have listeners of which it has not spoken yet.
    comes_back: bool,
    /// Clusters whose endpoints the client has asked for, every one of them, but for those that it has asked for no more since, or did not
    /// ask for because it refused the cluster.
    asked_for: Resources,
    unasked: BTreeSet<Arc<str>>,
    /// Clusters that the client was told before it asked for any endpoints. Should it say then that it has these, it waits for them all the same.
    told_early: BTreeSet<Arc<str>>,
    last_nonce: u64,
}

/// One kind on one stream.
#[derive(Default)]
struct Channel {
    asked: Option<Asked>,
    /// What the client was told last, whether it liked it or not. It has of these what it asks for, but for what is `apart`.
    told: Resources,
    /// What it has in another version, or (None) does not have and may wait to hear of.
    apart: BTreeMap<Arc<str>, Option<Arc<Resource>>>,
    under_way: Option<UnderWay>,
    /// What it refused, or at least what was told beside that: it does not say which. It is told with whatever comes next, since what is said
    /// to that would else say nothing of these; or by itself, when nothing else comes.
    refused: BTreeSet<Arc<str>>,
    /// When, and how long that is after the refusal. Kept until something is accepted.
    retry: Option<(Instant, Duration)>,
    /// Of the newest answer, whether it was acknowledged or not.
    newest_nonce: String,
    /// All of these are asked for.
    covered: Resources,
    /// Whether there must be an answer even when there is nothing to tell.
    owes_answer: bool,
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
    names: Vec<Arc<str>>,
}

/// What is to be sent now.
#[derive(Debug)]
pub(crate) struct Update {
    pub(crate) kind: Kind,
    pub(crate) nonce: String,
    /// Of the whole kind.
    pub(crate) version: Arc<str>,
    /// Whether the client then has all of the kind, and no more.
    pub(crate) is_whole: bool,
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

    /// Whether these are all names that are asked for, in whatever order.
    pub(crate) fn is<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) -> bool {
        let named = || self.names.iter().map(|name| &**name);
        named().eq(names.clone()) || {
            let names: HashSet<&str> = names.collect();
            names.len() == self.names.len() && named().all(|name| names.contains(name))
        }
    }
}

impl Stream {
    pub(crate) fn asked(&self, kind: Kind) -> Option<&Asked> {
        self.channels[kind as usize].asked.as_ref()
    }

    /// What the client wants from now on. What it no longer wants is forgotten, and told again should it want it once more.
    pub(crate) fn ask(&mut self, kind: Kind, wanted: &Asked) {
        let asked = self.channels[kind as usize].begin();
        let more: Vec<Arc<str>> = wanted.names.difference(&asked.names).cloned().collect();
        let less: Vec<Arc<str>> = asked.names.difference(&wanted.names).cloned().collect();
        // In an order in which nothing that is still wanted is forgotten in between.
        if wanted.everything {
            self.ask_for_everything(kind, true);
        }
        for name in more {
            self.channels[kind as usize].want(name);
        }
        self.ask_no_more(kind, less);
        self.ask_for_everything(kind, wanted.everything);
    }

    pub(crate) fn ask_for_everything(&mut self, kind: Kind, everything: bool) {
        if kind == Kind::Endpoints && self.channels[kind as usize].begin().everything != everything {
            self.asked_for = Resources::default();
        }
        self.channels[kind as usize].want_everything(everything);
    }

    /// The client wants these too, and to be told of them even if it has them.
    pub(crate) fn ask_again(&mut self, kind: Kind, names: impl IntoIterator<Item = Arc<str>>) {
        for name in names {
            let channel = &mut self.channels[kind as usize];
            channel.want(name.clone());
            channel.tell_again(name);
        }
    }

    /// Whoever asks for everything besides cannot know whether it still gets these, and is told.
    pub(crate) fn ask_no_more(&mut self, kind: Kind, names: impl IntoIterator<Item = Arc<str>>) {
        for name in names {
            let channel = &mut self.channels[kind as usize];
            channel.covered = Resources::default();
            let asked = channel.begin();
            if asked.names.remove(&name) && asked.everything {
                channel.apart.insert(name.clone(), Some(Resource::of_version("".into())));
            }
            if kind == Kind::Endpoints {
                self.unasked.insert(name);
            }
        }
    }

    /// The client says that it has these already, from a stream before this one.
    pub(crate) fn has(&mut self, kind: Kind, held: impl IntoIterator<Item = (Arc<str>, Arc<Resource>)>) {
        let channel = &mut self.channels[kind as usize];
        channel.apart.extend(held.into_iter().map(|(name, resource)| (name, Some(resource))));
        channel.owes_answer = false;
        self.comes_back |= kind == Kind::Cluster;
    }

    /// The client says that it has all of these, as far as it asks for them.
    pub(crate) fn has_all(&mut self, kind: Kind, held: &Resources) {
        let channel = &mut self.channels[kind as usize];
        channel.told = held.clone();
        channel.apart.retain(|name, _| held.get(name).is_none());
        channel.owes_answer = false;
        self.comes_back |= kind == Kind::Cluster;
    }

    /// Whether this answers what is under way, and which version that was. Older answers do not matter any more.
    pub(crate) fn answered(&mut self, kind: Kind, nonce: &str) -> Option<Arc<str>> {
        let channel = &mut self.channels[kind as usize];
        let answered = channel.answered(nonce)?;
        channel.retry = None;
        Some(answered.version)
    }

    /// The same for an answer that says no.
    pub(crate) fn refused(&mut self, kind: Kind, nonce: &str, now: Instant) -> Option<Arc<str>> {
        let channel = &mut self.channels[kind as usize];
        let answered = channel.answered(nonce)?;
        channel.refused.extend(answered.names);
        let wait = channel.retry.map_or(FIRST_RETRY, |(_, wait)| (wait * 2).min(LAST_RETRY));
        channel.retry = Some((now + wait, wait));
        Some(answered.version)
    }

    /// Whether this is said by somebody who knows the newest answer: whoever asks for something else after it says so with its nonce.
    pub(crate) fn is_newest(&self, kind: Kind, nonce: &str) -> bool {
        let channel = &self.channels[kind as usize];
        channel.asked.is_none() || channel.newest_nonce == nonce
    }

    /// What can be sent now, one kind at a time; None: nothing before the client says something, the snapshot changes or `wait_until` passes.
    pub(crate) fn next(&mut self, snapshot: &Snapshot, now: Instant) -> Option<Update> {
        for kind in Kind::ALL {
            self.channels[kind as usize].forget_refused(snapshot.of(kind));
        }
        self.wait_for_listeners(now);
        Kind::ALL.into_iter().find_map(|kind| self.next_of(kind, snapshot, now))
    }

    /// Whether the client has everything of this kind that it asked for, whether it was sent here or on a stream before this one. What it
    /// refused it does not have.
    pub(crate) fn settled(&self, kind: Kind, snapshot: &Snapshot) -> bool {
        let channel = &self.channels[kind as usize];
        let is_quiet = channel.asked.is_some() && channel.under_way.is_none() && !channel.owes_answer;
        is_quiet && !channel.is_refusing() && channel.untold(kind, snapshot).is_empty()
    }

    /// When there may be more to send although nothing happened.
    pub(crate) fn wait_until(&self) -> Option<Instant> {
        let waits = |kind: &Kind| *kind == Kind::Listener && self.waiting_since.is_some();
        let kinds = Kind::ALL.into_iter().filter(|kind| !waits(kind));
        let retries = kinds.filter_map(|kind| self.channels[kind as usize].retries_at());
        retries.chain(self.waiting_since.map(|since| since + LONGEST_WAIT)).min()
    }

    fn next_of(&mut self, kind: Kind, snapshot: &Snapshot, now: Instant) -> Option<Update> {
        let channel = &self.channels[kind as usize];
        if channel.under_way.is_some() || channel.asked.is_none() {
            return None;
        }
        if kind == Kind::Endpoints {
            let begun = std::mem::take(&mut self.told_early);
            self.tell_endpoints_again(begun.iter());
        }
        let channel = &self.channels[kind as usize];
        let mut untold = channel.untold(kind, snapshot);
        let retries = channel.retries_at().is_some_and(|at| now >= at);
        let mut is_all = true;
        if kind == Kind::Listener {
            let has_something = channel.owes_answer || retries || !untold.is_empty();
            if has_something && !self.is_prepared(snapshot) && !self.has_waited(now) {
                return None;
            }
            self.waiting_since = None;
        } else if !untold.removed.is_empty() && !self.listeners_are_settled(snapshot) {
            untold.removed.clear();
            is_all = false;
        }
        let channel = &mut self.channels[kind as usize];
        if retries || channel.owes_answer || !untold.is_empty() {
            channel.add_refused(&mut untold, snapshot.of(kind));
        }
        if channel.tell(&untold, is_all, snapshot.of(kind)).is_none() {
            channel.put_off_retry(now);
            return None;
        }
        if kind == Kind::Cluster {
            self.begin_anew(&untold);
        }
        self.last_nonce += 1;
        let (nonce, version) = (self.last_nonce.to_string(), snapshot.of(kind).version.clone());
        let channel = &mut self.channels[kind as usize];
        channel.newest_nonce.clone_from(&nonce);
        let names = untold.changed.iter().map(|(name, _)| name.clone()).collect();
        channel.under_way = Some(UnderWay { nonce: nonce.clone(), version: version.clone(), names });
        let is_whole = is_all && channel.covers(snapshot.of(kind));
        Some(Update { kind, nonce, version, is_whole, changed: untold.changed, removed: untold.removed })
    }

    /// A cluster that changes begins anew, and waits for its endpoints.
    fn begin_anew(&mut self, clusters: &Untold) {
        let changed = clusters.changed.iter().map(|(name, _)| name);
        if self.asked(Kind::Endpoints).is_some() {
            return self.tell_endpoints_again(changed);
        }
        self.told_early.extend(changed.cloned());
        for name in &clusters.removed {
            self.told_early.remove(name);
        }
    }

    fn tell_endpoints_again<'a>(&mut self, names: impl Iterator<Item = &'a Arc<str>>) {
        let endpoints = &mut self.channels[Kind::Endpoints as usize];
        for name in names {
            if endpoints.held(name).is_some() {
                endpoints.tell_again(name.clone());
            }
        }
    }

    /// Whether the client has the clusters and the endpoints of this snapshot, as far as it gets them on this stream.
    fn is_prepared(&mut self, snapshot: &Snapshot) -> bool {
        let [clusters, endpoints, _] = &self.channels;
        let told =
            |channel: &Channel, kind| channel.under_way.is_none() && channel.untold(kind, snapshot).changed.is_empty();
        clusters.asked.is_none()
            || told(clusters, Kind::Cluster)
                && told(endpoints, Kind::Endpoints)
                && self.asks_for_the_endpoints_of(&snapshot.clusters)
    }

    /// Whether endpoints are asked for of every cluster that the client may have. Only those are looked at about which that was not known
    /// before. A refusal does not say what of it the client took after all: before it has asked for any endpoints, it may be about to.
    fn asks_for_the_endpoints_of(&mut self, clusters: &Resources) -> bool {
        let [Channel { refused, .. }, Channel { asked, .. }, _] = &self.channels;
        let is_asked = |name: &Arc<str>| asked.as_ref().is_some_and(|asked| asked.covers(name));
        let is_done = |name: &Arc<str>| {
            is_asked(name) || clusters.get(name).is_none() || asked.is_some() && refused.contains(name)
        };
        let all = self.asked_for.differences(clusters).into_iter().chain(&self.unasked).all(is_done);
        if all {
            self.unasked = refused.iter().filter(|name| !is_asked(name)).cloned().collect();
            self.asked_for = clusters.clone();
        }
        all
    }

    /// A client that comes back says soon which listeners it has. One that is told of them elsewhere does not, and is not waited for any longer.
    fn wait_for_listeners(&mut self, now: Instant) {
        let is_asked = self.asked(Kind::Listener).is_some();
        if self.comes_back && (is_asked || self.has_waited(now)) {
            (self.comes_back, self.waiting_since) = (false, None);
        }
    }

    fn has_waited(&mut self, now: Instant) -> bool {
        let since = *self.waiting_since.get_or_insert(now);
        now.duration_since(since) >= LONGEST_WAIT
    }

    /// Whether the client's listeners lead to nothing but what is in this snapshot. One that it refused may run on as it was before.
    fn listeners_are_settled(&self, snapshot: &Snapshot) -> bool {
        let listeners = &self.channels[Kind::Listener as usize];
        match listeners.asked {
            None => !self.comes_back,
            Some(_) => {
                listeners.under_way.is_none()
                    && listeners.refused.is_empty()
                    && listeners.untold(Kind::Listener, snapshot).is_empty()
            }
        }
    }

    /// Everything of a kind that the client has, with what was just sent; sorted by name.
    pub(crate) fn held(&self, kind: Kind) -> impl Iterator<Item = &Arc<Resource>> {
        self.channels[kind as usize].all_held().into_values()
    }
}

impl Channel {
    /// The first question has an answer: whoever asks may wait for it.
    fn begin(&mut self) -> &mut Asked {
        self.owes_answer |= self.asked.is_none();
        self.asked.get_or_insert_default()
    }

    /// A question for more than before has an answer, too.
    fn want(&mut self, name: Arc<str>) {
        let asked = self.begin();
        let had_it = asked.everything;
        if asked.names.insert(name.clone()) {
            self.owes_answer = true;
            if !had_it {
                self.apart.insert(name, None);
            }
        }
    }

    fn want_everything(&mut self, everything: bool) {
        if self.begin().everything == everything {
            return;
        }
        let held: BTreeMap<_, _> =
            self.all_held().into_iter().map(|(name, resource)| (name.clone(), Some(resource.clone()))).collect();
        let unheard = std::mem::take(&mut self.apart).into_iter().filter(|(_, held)| held.is_none());
        let asked = self.begin();
        asked.everything = everything;
        let apart = unheard.chain(held).filter(|(name, _)| asked.covers(name)).collect();
        (self.apart, self.told, self.covered) = (apart, Resources::default(), Resources::default());
        self.owes_answer |= everything;
    }

    /// Whatever the client has under this name, it is to be told of it again; should it be gone, of that.
    fn tell_again(&mut self, name: Arc<str>) {
        let in_no_version = self.held(&name).map(|_| Resource::of_version("".into()));
        self.apart.insert(name, in_no_version);
    }

    /// Whether all of these are asked for. Only those are looked at about which that was not known before.
    fn covers(&mut self, wanted: &Resources) -> bool {
        let Some(asked) = &self.asked else { return false };
        if asked.everything || asked.names.len() < wanted.len() {
            return asked.everything;
        }
        let mut names = self.covered.differences(wanted).into_iter();
        let all = names.all(|name| asked.covers(name) || wanted.get(name).is_none());
        if all {
            self.covered = wanted.clone();
        }
        all
    }

    fn held(&self, name: &str) -> Option<&Arc<Resource>> {
        let held = match self.apart.get(name) {
            Some(apart) => apart.as_ref(),
            None => self.told.get(name),
        };
        held.filter(|_| self.asked.as_ref().is_some_and(|asked| asked.covers(name)))
    }

    fn all_held(&self) -> BTreeMap<&Arc<str>, &Arc<Resource>> {
        let Some(asked) = &self.asked else { return BTreeMap::new() };
        let told = self.told.iter().filter(|(name, _)| !self.apart.contains_key(*name));
        let apart = self.apart.iter().filter_map(|(name, held)| Some((name, held.as_ref()?)));
        told.chain(apart).filter(|(name, _)| asked.covers(name)).collect()
    }

    fn untold(&self, kind: Kind, snapshot: &Snapshot) -> Untold {
        let (Some(asked), wanted) = (&self.asked, snapshot.of(kind)) else { return Untold::default() };
        let mut names = self.told.differences(wanted);
        if !self.apart.is_empty() {
            names.extend(self.apart.keys());
            names.sort_unstable();
            names.dedup();
        }
        let mut untold = Untold::default();
        for name in names.into_iter().filter(|name| asked.covers(name)) {
            match (self.held(name), wanted.get(name)) {
                (Some(held), Some(resource)) if held.version == resource.version => {}
                (_, Some(resource)) => untold.changed.push((name.clone(), resource.clone())),
                (Some(_), None) => untold.removed.push(name.clone()),
                // Whoever asks for one by name waits to hear of it, even if that is bad news.
                (None, None) if asked.names.contains(name) => untold.removed.push(name.clone()),
                (None, None) => {}
            }
        }
        untold
    }

    /// Remembers what is told, and whether that is all there is to tell; None: there is nothing to tell.
    fn tell(&mut self, untold: &Untold, is_all: bool, wanted: &Resources) -> Option<()> {
        if is_all {
            self.told = wanted.clone();
            self.apart.clear();
        } else {
            let changed = untold.changed.iter().map(|(name, resource)| (name.clone(), Some(resource.clone())));
            self.apart.extend(changed);
        }
        let has_something = std::mem::take(&mut self.owes_answer) || !untold.is_empty();
        has_something.then_some(())
    }

    /// When what was refused is told once more, if nothing else is to be told earlier.
    fn retries_at(&self) -> Option<Instant> {
        self.retry.filter(|_| !self.refused.is_empty() && self.under_way.is_none()).map(|(at, _)| at)
    }

    /// What was refused may be gone, but for a removal that has to wait: then there is nothing to tell once more.
    fn put_off_retry(&mut self, now: Instant) {
        if let Some((at, wait)) = self.retry.as_mut().filter(|(at, _)| *at <= now) {
            *at = now + *wait;
        }
    }

    /// Whether the last that it said of this kind was no, and what it said that to is not forgotten.
    fn is_refusing(&self) -> bool {
        self.retry.is_some() || !self.refused.is_empty()
    }

    /// What is asked for no more does not count any more; nor does what is gone, once the client was told so. Before that, should it come
    /// back as it was, the client would have to be told of it again.
    fn forget_refused(&mut self, wanted: &Resources) {
        if self.refused.is_empty() {
            return;
        }
        let mut refused = std::mem::take(&mut self.refused);
        let covers = |name: &str| self.asked.as_ref().is_some_and(|asked| asked.covers(name));
        refused.retain(|name| covers(name) && (wanted.get(name).is_some() || self.held(name).is_some()));
        self.refused = refused;
        if self.refused.is_empty() && self.under_way.is_none() {
            self.retry = None;
        }
    }

    fn add_refused(&mut self, untold: &mut Untold, wanted: &Resources) {
        if self.refused.is_empty() {
            return;
        }
        let mut changed: BTreeMap<Arc<str>, Arc<Resource>> = untold.changed.drain(..).collect();
        self.refused.retain(|name| match wanted.get(name) {
            Some(resource) => {
                changed.insert(name.clone(), resource.clone());
                false
            }
            None => true,
        });
        untold.changed = changed.into_iter().collect();
    }

    fn answered(&mut self, nonce: &str) -> Option<UnderWay> {
        self.under_way.take_if(|sent| sent.nonce == nonce)
    }
}

impl Untold {
    fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }
}

#[cfg(test)]
mod tests;
