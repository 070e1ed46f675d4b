//! One record per request, finished exactly once: from it come the audit line of a write and the metrics of the answer.
//!
//! Bodies, queries, and tokens never reach it.

use std::sync::Arc;
use std::time::Instant;

use http::header::{HeaderMap, USER_AGENT};
use http::{HeaderValue, Method, StatusCode, Uri};
use uuid::Uuid;

use crate::auth::User;
use crate::metrics::Metrics;

/// Long enough for every real client; the line must not grow with what a client sends.
const MOST_AGENT_BYTES: usize = 128;
const MOST_PATH_BYTES: usize = 512;
/// What proxies log, and we count, for a request whose client left before the answer.
const CLIENT_LEFT: u16 = 499;

/// The word by which metrics and audit call a request. Whoever answers knows better than the method says (LIST, not GET) and
/// may put one of these into the extensions of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verb(pub(crate) &'static str);

impl Verb {
    fn of(method: &Method, watch: bool) -> Self {
        Self(match *method {
            _ if watch => "WATCH",
            Method::GET => "GET",
            Method::HEAD => "HEAD",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            _ => "OTHER",
        })
    }
}

/// What is known of a request before it is answered.
pub(crate) struct Record {
    id: Uuid,
    verb: Verb,
    watch: bool,
    /// What the audit line says; only for writes.
    write: Option<Write>,
    started: Instant,
    metrics: Arc<Metrics>,
    finished: bool,
}

struct Write {
    path: String,
    agent: String,
    user: Option<Arc<User>>,
}

impl Write {
    /// Whoever holds a lease renews it every few seconds, for as long as it runs: that tells nothing and would bury the rest.
    fn is_heartbeat(&self, verb: Verb) -> bool {
        verb.0 == "PUT" && self.path.starts_with("/apis/coordination.k8s.io/")
    }
}

impl Record {
    pub(crate) fn begin(method: &Method, uri: &Uri, headers: &HeaderMap, watch: bool, metrics: Arc<Metrics>) -> Self {
        let write = is_write(method).then(|| Write {
            path: bounded(uri.path(), MOST_PATH_BYTES),
            agent: bounded(
                headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or("-"),
                MOST_AGENT_BYTES,
            ),
            user: None,
        });
        let verb = Verb::of(method, watch);
        Self { id: Uuid::new_v4(), verb, watch, write, started: Instant::now(), metrics, finished: false }
    }

    pub(crate) fn authenticated(&mut self, user: &Arc<User>) {
        if let Some(write) = &mut self.write {
            write.user = Some(user.clone());
        }
    }

    /// The request is answered; gives the value of the answer's `Audit-Id`.
    pub(crate) fn finish(mut self, code: StatusCode, verb: Option<Verb>) -> HeaderValue {
        self.verb = verb.unwrap_or(self.verb);
        self.close(code.as_u16());
        HeaderValue::from_str(&self.id.to_string()).expect("a UUID is made of letters, digits and dashes")
    }

    fn close(&mut self, code: u16) {
        self.finished = true;
        let took = self.started.elapsed();
        self.metrics.answered(self.verb.0, code);
        if !self.watch {
            self.metrics.took(self.verb.0, took);
        }
        let Some(write) = &self.write else { return };
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    target: "audit",
                    id = %self.id,
                    user = write.user.as_ref().map_or("-", |user| user.name.as_str()),
                    verb = self.verb.0,
                    path = write.path,
                    code,
                    microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
                    agent = write.agent,
                    "audit",
                )
            };
        }
        // People look at the log for what happens to their objects; who wrote what is for whoever asks for it.
        if write.is_heartbeat(self.verb) && code < 400 { line!(trace) } else { line!(debug) }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if !self.finished {
            self.close(CLIENT_LEFT);
        }
    }
}

pub(crate) fn is_write(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH | Method::DELETE)
}

fn bounded(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(method: &Method, metrics: &Arc<Metrics>) -> Record {
        let uri = Uri::from_static("/api/v1/namespaces?token=s3cret");
        Record::begin(method, &uri, &HeaderMap::new(), false, metrics.clone())
    }

    #[test]
    fn a_finished_request_is_counted_once_under_the_verb_of_the_answer() {
        let metrics = Arc::new(Metrics::new());
        record(&Method::GET, &metrics).finish(StatusCode::OK, Some(Verb("LIST")));
        let page = metrics.render();
        assert!(page.contains("apiserver_request_total{verb=\"LIST\",code=\"200\"} 1\n"), "{page}");
        assert_eq!(page.matches("apiserver_request_total{").count(), 1);
    }

    #[test]
    fn a_request_that_nobody_waits_for_is_counted_too() {
        let metrics = Arc::new(Metrics::new());
        drop(record(&Method::PUT, &metrics));
        assert!(metrics.render().contains("apiserver_request_total{verb=\"PUT\",code=\"499\"} 1\n"));
    }

    #[test]
    fn only_writes_are_described_and_without_their_query() {
        let metrics = Arc::new(Metrics::new());
        assert!(record(&Method::GET, &metrics).write.is_none());
        assert_eq!(record(&Method::POST, &metrics).write.as_ref().unwrap().path, "/api/v1/namespaces");
    }

    #[test]
    fn texts_are_bounded() {
        assert_eq!(bounded(&"a".repeat(1000), 128).len(), 128);
        assert_eq!(bounded("kubectl", 128), "kubectl");
    }
}
