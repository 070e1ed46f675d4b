//! The keys of objects that changed.

use std::sync::Arc;

use futures::{Stream, StreamExt, future, stream};
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use tracing::{debug, warn};
use underpass_engines::Change;

use crate::answer::Answer;
use crate::interests::{Interest, Interests};
use crate::reconcile::Key;

/// Every object once at the start, then every object that changes.
pub(crate) fn changes(kind: &'static str, api: Api<DynamicObject>) -> impl Stream<Item = Key> + Send {
    objects(kind, api).map(|object| key(&object))
}

/// A broken watch is taken up again with a back-off, forever.
fn objects(kind: &'static str, api: Api<DynamicObject>) -> impl Stream<Item = DynamicObject> + Send {
    watcher(api, watcher::Config::default()).default_backoff().filter_map(move |event| {
        future::ready(match event {
            Ok(Event::Apply(object) | Event::InitApply(object) | Event::Delete(object)) => Some(object),
            Ok(Event::Init | Event::InitDone) => None,
            Err(error) => {
                tell(kind, error);
                None
            }
        })
    })
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

/// The keys of those who care, for every object of another kind that changes.
pub(crate) fn concerning(
    kind: &'static str,
    api: Api<DynamicObject>,
    interests: Arc<Interests>,
    interest: impl Fn(&DynamicObject) -> Option<Interest> + Send,
) -> impl Stream<Item = Key> + Send {
    let interested = move |object: DynamicObject| {
        let wanted = interest(&object).map(|interest| interests.who_wants(&interest));
        stream::iter(wanted.unwrap_or_default())
    };
    objects(kind, api).flat_map(interested)
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

fn key(object: &DynamicObject) -> Key {
    Key { namespace: object.namespace(), name: object.name_any() }
}
