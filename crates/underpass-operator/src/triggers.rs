//! The keys of objects that changed.

use futures::{Stream, StreamExt, future};
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use tracing::warn;

use crate::reconcile::Key;

/// Every object once at the start, then every object that changes. A broken watch is taken up again with a back-off, forever.
pub(crate) fn changes(kind: &'static str, api: Api<DynamicObject>) -> impl Stream<Item = Key> + Send {
    watcher(api, watcher::Config::default()).default_backoff().filter_map(move |event| {
        future::ready(match event {
            Ok(Event::Apply(object) | Event::InitApply(object) | Event::Delete(object)) => Some(key(&object)),
            Ok(Event::Init | Event::InitDone) => None,
            Err(error) => {
                warn!(kind, error = &error as &dyn std::error::Error, "watch broken, trying again");
                None
            }
        })
    })
}

fn key(object: &DynamicObject) -> Key {
    Key { namespace: object.namespace(), name: object.name_any() }
}
