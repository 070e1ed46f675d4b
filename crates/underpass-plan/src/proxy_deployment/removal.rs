//! The end of a proxy: everything of it goes, and the object stays until it has.

use std::time::Duration;

use serde_json::Value;

use super::{FINALIZER, Observed, changes, has_finalizer, status, subject};
use crate::plan::{Finalizer, Plan};

/// What goes tells of it; this is for what a lost signal would leave.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

pub(super) fn plan(observed: &Observed) -> Plan {
    let subject = subject(observed);
    if !has_finalizer(observed) {
        return Plan::nothing(subject, "it is being deleted, and nothing of it is left to remove");
    }
    let left = left(observed);
    if left.is_empty() {
        return Plan {
            finalizer: Finalizer::Remove(FINALIZER),
            ..Plan::nothing(subject, "it is being deleted, and nothing of it is left")
        };
    }
    let waiting = observed.failure.as_ref().and_then(|failure| failure.wait(observed.now));
    let actions = if waiting.is_some() { Vec::new() } else { changes::superfluous(observed, |_| true) };
    let told = status::tell_of_removal(observed, &left);
    Plan {
        status: told.status,
        events: told.events,
        actions,
        look_again_after: Some(waiting.unwrap_or(LOOK_AGAIN)),
        ..Plan::nothing(subject, format!("it is being deleted; still there: {}", left.join(", ")))
    }
}

/// What still stands, by kind and name.
fn left(observed: &Observed) -> Vec<String> {
    let name = |object: &Value| {
        let word = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        format!("{} {}/{}", word("/kind"), word("/metadata/namespace"), word("/metadata/name"))
    };
    let objects = observed.found.iter().filter(|found| super::is_ours(observed, found)).map(name);
    let pods = observed.pods.iter().filter_map(|pod| Some(format!("Pod {}", pod.metadata.name.as_ref()?)));
    objects.chain(pods).collect()
}
