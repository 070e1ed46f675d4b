//! That a lease has changed, as soon as the API server tells.
//!
//! It says when to look and not what is there: a watch can be broken without anybody knowing, or not be allowed, so that the lease is read at
//! its own pace all the same. But who sees a renewal when it comes, and not a tenth of the term later, knows that much earlier when it is over.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watcher;
use kube::{Api, Client};
use tokio::sync::Notify;
use tracing::debug;

use super::Seat;
use crate::reach;

pub(super) async fn follow(client: &Client, seat: &Seat, changed: &Notify) -> Infallible {
    let leases: Api<Lease> = Api::namespaced(client.clone(), &seat.namespace);
    let only = reach::watch().fields(&format!("metadata.name={}", seat.name));
    let mut events = pin!(watcher(leases, only).default_backoff());
    while let Some(event) = events.next().await {
        if let Err(error) = event {
            debug!(lease = seat.name, %error, "changes of the lease are not told; it is read all the same");
        } else {
            changed.notify_one();
        }
    }
    pending().await
}
