//! The keys of objects that changed.

use futures::{Stream, StreamExt, future};
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use tracing::{debug, warn};

use crate::answer::Answer;
use crate::reconcile::Key;

/// Every object once at the start, then every object that changes. A broken watch is taken up again with a back-off, forever.
pub(crate) fn changes(kind: &'static str, api: Api<DynamicObject>) -> impl Stream<Item = Key> + Send {
    watcher(api, watcher::Config::default()).default_backoff().filter_map(move |event| {
        future::ready(match event {
            Ok(Event::Apply(object) | Event::InitApply(object) | Event::Delete(object)) => Some(key(&object)),
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

fn key(object: &DynamicObject) -> Key {
    Key { namespace: object.namespace(), name: object.name_any() }
}
