use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use super::api::{failure, reply};

/// A server of one Lease: versions, conflicts, and clients that can be cut off.
#[derive(Clone, Default)]
pub(crate) struct LeaseApi {
    lease: Arc<Mutex<Option<Value>>>,
    writes: Arc<Mutex<u64>>,
}

/// A client's line to the server.
#[derive(Clone, Default)]
pub(crate) struct Line(Arc<Mutex<State>>);

#[derive(Clone, Copy, Default, PartialEq)]
enum State {
    #[default]
    Whole,
    Cut,
    /// What is written is taken, and no answer to it comes back.
    Deaf,
    /// What is written is refused.
    ReadOnly,
}

impl Line {
    pub(crate) fn cut(&self) {
        *self.0.lock().unwrap() = State::Cut;
    }

    pub(crate) fn deafen(&self) {
        *self.0.lock().unwrap() = State::Deaf;
    }

    pub(crate) fn forbid_writes(&self) {
        *self.0.lock().unwrap() = State::ReadOnly;
    }

    pub(crate) fn mend(&self) {
        *self.0.lock().unwrap() = State::Whole;
    }

    fn is(&self, state: State) -> bool {
        *self.0.lock().unwrap() == state
    }
}

impl LeaseApi {
    pub(crate) fn client(&self) -> (Client, Line) {
        let (api, line) = (self.clone(), Line::default());
        let used = line.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (api, used) = (api.clone(), used.clone());
            async move {
                if used.is(State::Cut) {
                    return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
                }
                let writes = request.method() != Method::GET;
                if writes && used.is(State::ReadOnly) {
                    return Ok(failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"));
                }
                let answer = api.answer(request).await;
                while writes && used.is(State::Deaf) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Ok(answer)
            }
        });
        (Client::new(service, "default"), line)
    }

    /// What the lease says of who holds it.
    pub(crate) fn holder(&self) -> Option<String> {
        let lease = self.lease.lock().unwrap();
        lease.as_ref().and_then(|lease| lease["spec"]["holderIdentity"].as_str()).map(str::to_owned)
    }

    pub(crate) fn annotation(&self, name: &str) -> Option<String> {
        let lease = self.lease.lock().unwrap();
        lease.as_ref().and_then(|lease| lease["metadata"]["annotations"][name].as_str()).map(str::to_owned)
    }

    pub(crate) fn delete(&self) {
        *self.lease.lock().unwrap() = None;
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let mut lease = self.lease.lock().unwrap();
        let stored = lease.as_ref().map(|lease| lease["metadata"]["resourceVersion"].clone());
        let mut sent: Value = serde_json::from_slice(&body).unwrap_or_default();
        match (parts.method, stored) {
            (Method::GET, Some(_)) => return reply(StatusCode::OK, lease.as_ref().unwrap()),
            (Method::POST, None) => {}
            (Method::PUT, Some(version)) if sent["metadata"]["resourceVersion"] == version => {}
            (Method::GET | Method::PUT, None) => return failure(StatusCode::NOT_FOUND, "NotFound"),
            (Method::POST, Some(_)) => return failure(StatusCode::CONFLICT, "AlreadyExists"),
            _ => return failure(StatusCode::CONFLICT, "Conflict"),
        }
        let mut writes = self.writes.lock().unwrap();
        *writes += 1;
        sent["metadata"]["resourceVersion"] = writes.to_string().into();
        *lease = Some(sent.clone());
        reply(StatusCode::OK, &sent)
    }
}
