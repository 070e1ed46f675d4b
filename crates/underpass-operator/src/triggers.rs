//! The keys of objects that changed.
//!
//! Watches ask for metadata alone: a key is all that is made of an object, whatever its size, and nothing is kept of it but eight bytes
//! to count it by.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use futures::{Stream, StreamExt, future, stream};
use kube::Api;
use kube::api::{DynamicObject, ObjectMeta};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use tracing::{debug, warn};
use underpass_engines::Change;
use underpass_plan::OWNER_ANNOTATION;

use crate::answer::Answer;
use crate::first_look::FirstLook;
use crate::health::Health;
use crate::interests::{Interest, Interests};
use crate::metrics::Metrics;
use crate::reach;
use crate::reconcile::Key;

/// One watch of one kind, and who is told how far it has come.
pub(crate) struct Watch {
    pub(crate) kind: &'static str,
    pub(crate) objects: Api<PartialObjectMeta<DynamicObject>>,
    /// Only those with this label.
    pub(crate) labels: Option<&'static str>,
    pub(crate) health: Health,
    pub(crate) metrics: Metrics,
    /// Of a kind whose objects are ours.
    pub(crate) first_look: Option<FirstLook>,
}

impl Watch {
    /// Every object once at the start, then every object that changes. A broken watch is taken up again with a back-off, forever.
    pub(crate) fn changes(self) -> impl Stream<Item = ObjectMeta> + Send {
        let Self { kind, objects, labels, health, metrics, first_look } = self;
        let mut present = Present::default();
        let config = watcher::Config { label_selector: labels.map(str::to_owned), ..reach::watch() };
        watcher(objects, config).default_backoff().filter_map(move |event| {
            future::ready(match event {
                Ok(event) => {
                    if matches!(event, Event::InitDone) {
                        health.saw_all(kind);
                    }
                    if let Some(first_look) = &first_look {
                        note(first_look, kind, &event);
                    }
                    if let Some(count) = present.count(&event) {
                        metrics.sees(kind, count);
                    }
                    metadata(event)
                }
                Err(error) => {
                    tell(kind, error);
                    None
                }
            })
        })
    }
}

fn note(first_look: &FirstLook, kind: &'static str, event: &Event<PartialObjectMeta<DynamicObject>>) {
    match event {
        Event::InitApply(object) => first_look.found(kind, key(object.metadata.clone())),
        Event::InitDone => first_look.found_all(kind),
        Event::Init | Event::Apply(_) | Event::Delete(_) => {}
    }
}

fn metadata(event: Event<PartialObjectMeta<DynamicObject>>) -> Option<ObjectMeta> {
    match event {
        Event::Apply(object) | Event::InitApply(object) | Event::Delete(object) => Some(object.metadata),
        Event::Init | Event::InitDone => None,
    }
}

/// The objects that there are, each as a number that stands for its name: two of a million share one by a chance of one in 10^7.
#[derive(Default)]
struct Present {
    now: HashSet<u64>,
    /// Of a list that has begun and not ended.
    listed: HashSet<u64>,
    hash: RandomState,
}

impl Present {
    /// How many there are, when that is known.
    fn count(&mut self, event: &Event<PartialObjectMeta<DynamicObject>>) -> Option<usize> {
        let number = |hash: &RandomState, meta: &ObjectMeta| hash.hash_one((&meta.namespace, &meta.name));
        match event {
            Event::Init => self.listed = HashSet::new(),
            Event::InitApply(object) => {
                self.listed.insert(number(&self.hash, &object.metadata));
            }
            Event::InitDone => self.now = std::mem::take(&mut self.listed),
            Event::Apply(object) => {
                self.now.insert(number(&self.hash, &object.metadata));
            }
            Event::Delete(object) => {
                self.now.remove(&number(&self.hash, &object.metadata));
            }
        }
        (!matches!(event, Event::Init | Event::InitApply(_))).then_some(self.now.len())
    }
}

/// A server that does not answer breaks all watches at once, and whoever keeps the lease tells it.
fn tell(kind: &str, error: watcher::Error) {
    let answer = match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Answer::from(error),
        watcher::Error::WatchError(status) => Answer::from(kube::Error::Api(status)),
        error @ watcher::Error::NoResourceVersion => return warn!(kind, %error, "changes cannot be seen; trying again"),
    };
    match answer.status() {
        None => debug!(kind, why = %answer, "watch broken, trying again"),
        Some(status) if status.code == 410 => debug!(kind, "the history is gone; listing anew"),
        Some(_) => warn!(kind, why = %answer, "the API server refuses to tell of changes; trying again"),
    }
}

/// The keys of those who care, for everything that changes elsewhere.
pub(crate) fn concerning(
    changes: impl Stream<Item = Interest> + Send,
    interests: Arc<Interests>,
) -> impl Stream<Item = Key> + Send {
    changes.flat_map(move |interest| stream::iter(interests.who_wants(&interest)))
}

/// The keys of those who care, for everything that changes in the engine.
pub(crate) fn engine_changes(
    changes: impl Stream<Item = Change> + Send,
    interests: Arc<Interests>,
) -> impl Stream<Item = Key> + Send {
    changes.flat_map(move |change| {
        stream::iter(match change {
            Change::Everything => interests.everybody(),
            Change::Container { id } => interests.who_wants(&Interest::Container(id)),
            Change::Network { name, .. } => interests.who_wants(&Interest::EngineNetwork(name)),
        })
    })
}

/// The object to which another one says that it belongs.
pub(crate) fn owner(meta: &ObjectMeta) -> Option<Key> {
    let (namespace, name) = meta.annotations.as_ref()?.get(OWNER_ANNOTATION)?.split_once('/')?;
    Some(Key::namespaced(namespace, name))
}

pub(crate) fn key(meta: ObjectMeta) -> Key {
    Key { namespace: meta.namespace, name: meta.name.unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> PartialObjectMeta<DynamicObject> {
        serde_json::from_value(serde_json::json!({ "metadata": { "name": name } })).unwrap()
    }

    #[test]
    fn objects_are_counted_once_and_a_new_list_replaces_the_old() {
        let mut present = Present::default();
        let events = [
            (Event::Init, None),
            (Event::InitApply(object("a")), None),
            (Event::InitApply(object("b")), None),
            (Event::InitDone, Some(2)),
            (Event::Apply(object("b")), Some(2)),
            (Event::Apply(object("c")), Some(3)),
            (Event::Delete(object("a")), Some(2)),
            (Event::Init, None),
            (Event::InitApply(object("c")), None),
            (Event::InitDone, Some(1)),
        ];
        for (event, count) in events {
            assert_eq!(present.count(&event), count, "{event:?}");
        }
    }
}
