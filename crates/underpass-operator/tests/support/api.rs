use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::Diary;

/// Objects by their path. Server-side apply is as much as one writer needs: what is applied is what is there.
#[derive(Clone, Default)]
pub(crate) struct FakeApi {
    objects: Arc<Mutex<BTreeMap<String, Value>>>,
    refusals: Arc<Mutex<Vec<StatusCode>>>,
    diary: Diary,
}

impl FakeApi {
    pub(crate) fn new(diary: Diary) -> Self {
        Self { diary, ..Self::default() }
    }

    pub(crate) fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request| {
            let api = api.clone();
            async move { Ok::<_, std::convert::Infallible>(api.answer(request).await) }
        });
        Client::new(service, "default")
    }

    pub(crate) fn put(&self, path: &str, object: Value) {
        self.objects.lock().unwrap().insert(path.to_owned(), object);
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.objects.lock().unwrap().get(path).cloned()
    }

    /// What a deletion does to an object: it goes, or waits for its finalizers.
    pub(crate) fn delete(&self, path: &str) {
        let mut objects = self.objects.lock().unwrap();
        let Some(object) = objects.get_mut(path) else { return };
        object["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
        if is_released(object) {
            objects.remove(path);
        }
    }

    /// The next write is answered with this.
    pub(crate) fn refuse(&self, code: StatusCode) {
        self.refusals.lock().unwrap().push(code);
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let path = parts.uri.path();
        if parts.method == Method::GET {
            return match self.get(path) {
                Some(object) => reply(StatusCode::OK, &object),
                None => refused(StatusCode::NOT_FOUND),
            };
        }
        if path.contains("/events") {
            return self.take_event(path, &body);
        }
        assert!(parts.uri.query().unwrap_or_default().contains("fieldManager=underpass"), "{}", parts.uri);
        let refusal = self.refusals.lock().unwrap().pop();
        match refusal {
            Some(code) => refused(code),
            None => self.apply(path, &body),
        }
    }

    /// A new one, or one that is counted on.
    fn take_event(&self, path: &str, body: &Value) -> Response<Body> {
        let Some(mut known) = self.get(path) else {
            self.diary.note(format!("event {} {}", body["type"].as_str().unwrap(), body["reason"].as_str().unwrap()));
            self.put(&format!("{path}/{}", body["metadata"]["name"].as_str().unwrap()), body.clone());
            return reply(StatusCode::CREATED, body);
        };
        self.diary.note(format!("event again {} {}", known["reason"].as_str().unwrap(), body["count"]));
        known["count"] = body["count"].clone();
        self.put(path, known.clone());
        reply(StatusCode::OK, &known)
    }

    fn apply(&self, path: &str, body: &Value) -> Response<Body> {
        let (target, status) = match path.strip_suffix("/status") {
            Some(target) => (target, true),
            None => (path, false),
        };
        let mut objects = self.objects.lock().unwrap();
        let Some(object) = objects.get_mut(target) else { return refused(StatusCode::NOT_FOUND) };
        if body["metadata"]["uid"] != object["metadata"]["uid"] {
            return refused(StatusCode::CONFLICT);
        }
        if status {
            let ready = &body["status"]["conditions"][0];
            self.diary.note(format!(
                "status {} {}",
                ready["status"].as_str().unwrap(),
                ready["reason"].as_str().unwrap()
            ));
            object["status"] = body["status"].clone();
        } else {
            self.diary.note(format!("finalizers {}", body["metadata"]["finalizers"]));
            object["metadata"]["finalizers"] = body["metadata"]["finalizers"].clone();
        }
        let answer = object.clone();
        if is_released(&answer) {
            objects.remove(target);
        }
        reply(StatusCode::OK, &answer)
    }
}

fn is_released(object: &Value) -> bool {
    let held = object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
    object["metadata"]["deletionTimestamp"].is_string() && !held
}

fn refused(code: StatusCode) -> Response<Body> {
    failure(code, if code == StatusCode::CONFLICT { "Conflict" } else { "NotFound" })
}

pub(super) fn failure(code: StatusCode, reason: &str) -> Response<Body> {
    reply(
        code,
        &json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "refused", "reason": reason, "code": code.as_u16() }),
    )
}

pub(super) fn reply(code: StatusCode, body: &Value) -> Response<Body> {
    Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap()
}
