//! What was asked for and refused, with its back-off: told by the next observation, and asked for again in its time.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use underpass_plan::tunnel_proxy::Refusal;

use crate::backoff::Backoff;

/// By what there is one request for. How often each was refused stands beside it.
pub(super) struct Refused<K, R>(BTreeMap<K, (Refusal<R>, u32)>);

impl<K: Ord, R: PartialEq + Clone> Refused<K, R> {
    /// `refused` is why; `None` when it was done.
    pub(super) fn note(&mut self, key: K, request: &R, refused: Option<String>, backoff: Backoff) {
        let Some(message) = refused else {
            self.0.remove(&key);
            return;
        };
        let before = self.0.get(&key).filter(|(refusal, _)| refusal.request == *request);
        let troubles = before.map_or(0, |(_, troubles)| *troubles) + 1;
        let retry_at = Timestamp::now().saturating_add(backoff.wait(troubles)).unwrap_or(Timestamp::MAX);
        self.0.insert(key, (Refusal { request: request.clone(), message, retry_at }, troubles));
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&K, &Refusal<R>)> {
        self.0.iter().map(|(key, (refusal, _))| (key, refusal))
    }
}

impl<K, R> Default for Refused<K, R> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}
