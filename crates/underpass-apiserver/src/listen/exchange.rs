//! One request and its answer: who asks, is there room, the body, the handler, and what every answer carries.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, EXPECT, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, Version};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;

use super::connection::Link;
use super::gzip;
use super::outgoing::{Admission, Outgoing};
use super::refusal::Refusal;
use super::{Handler, Server};
use crate::audit::{self, Record, Verb};
use crate::auth::User;
use crate::body::Body;
use crate::request::Query;

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// Objects change and are not for caches; a handler that knows better says so itself.
const NOT_FOR_CACHES: HeaderValue = HeaderValue::from_static("no-cache, private");

/// Several times what anybody may send, so that whoever is refused for a bit too much hears why.
const DRAIN_BYTES: usize = 32 << 20;
/// Who sends nothing for so long waits for the answer.
const DRAIN_SILENCE: Duration = Duration::from_secs(2);

/// Whether the answer to this request goes on until somebody ends it. Any value of `watch` but `false` and `0` means yes.
fn is_watch(method: &Method, uri: &Uri) -> bool {
    *method == Method::GET && (Query::parse(uri.query().unwrap_or_default()).flag("watch") || is_watch_path(uri.path()))
}

/// `/api/v1/watch/...` and `/apis/group/version/watch/...`
fn is_watch_path(path: &str) -> bool {
    let mut parts = path.split('/').skip(1);
    match parts.next() {
        Some("api") => parts.nth(1) == Some("watch"),
        Some("apis") => parts.nth(2) == Some("watch"),
        _ => false,
    }
}

pub(super) async fn answer(
    server: Arc<Server>,
    link: Arc<Link>,
    request: Request<Incoming>,
) -> Result<Response<Outgoing>, Infallible> {
    let open = link.open();
    let (head, mut body) = request.into_parts();
    let watch = is_watch(&head.method, &head.uri);
    let mut record = Record::begin(&head.method, &head.uri, &head.headers, watch, server.metrics.clone());
    let takes_gzip = gzip::is_accepted(&head.headers);
    let is_head = head.method == Method::HEAD;
    let waits_for_us = head.headers.contains_key(EXPECT);
    let (response, admission) = match work(&server, head, &mut body, watch, &mut record).await {
        Ok((response, admission)) => (gzip::compress(takes_gzip, response).await, Some(admission)),
        Err(refusal) => {
            if !waits_for_us && refusal != Refusal::BodyTooSlow {
                drain(&server, body).await;
            }
            (refuse(&server, refusal), None)
        }
    };
    let mut response = if is_head { without_body(response) } else { response };
    let id = record.finish(response.status(), response.extensions().get::<Verb>().copied());
    response.headers_mut().insert(AUDIT_ID, id);
    response.headers_mut().entry(CACHE_CONTROL).or_insert(NOT_FOR_CACHES);
    Ok(response.map(|body| Outgoing::new(body, admission, (link, open), server.metrics.clone(), &server.stop)))
}

async fn work(
    server: &Arc<Server>,
    mut head: Parts,
    body: &mut Incoming,
    watch: bool,
    record: &mut Record,
) -> Result<(Response<Body>, Admission), Refusal> {
    check_header(server, &head)?;
    let user = server.authenticator.authenticate(&head.method, head.uri.path(), &head.headers);
    let user = user.ok_or(Refusal::Unauthorized)?;
    record.authenticated(&user);
    // Whatever is logged further on, the token is not in it.
    head.headers.remove(AUTHORIZATION);
    let admission = admit(server, &head.method, watch)?;
    let body = read_body(server, &head, body).await?;
    let response = handle(server.handler.clone(), Request::from_parts(head, body), user).await?;
    Ok((response, admission))
}

fn admit(server: &Server, method: &Method, watch: bool) -> Result<Admission, Refusal> {
    let (places, full, counted) = if watch {
        (&server.watches, Refusal::TooManyWatches, server.metrics.open_watch())
    } else {
        (&server.in_flight, Refusal::TooManyRequests, server.metrics.open_request(audit::is_write(method)))
    };
    let permit = places.clone().try_acquire_owned().map_err(|_| full)?;
    Ok(Admission { watch, _permit: permit, _counted: counted })
}

/// What hyper lets through: it answers a header that is too large with nothing but a code, so it gets some room for us to say why.
fn check_header(server: &Server, head: &Parts) -> Result<(), Refusal> {
    if head.version == Version::HTTP_11 && head.headers.get_all(HOST).iter().count() != 1 {
        return Err(Refusal::NoHost);
    }
    let most = server.limits.header_bytes as usize;
    if head.uri.path_and_query().map_or(0, |path| path.as_str().len()) + header_bytes(&head.headers) > most {
        return Err(Refusal::HeaderTooLarge { most });
    }
    Ok(())
}

fn header_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// Takes what a refused client still sends, within bounds: most clients read the answer only when they have sent everything, and
/// closing before that would take it away from them.
async fn drain(server: &Server, mut body: Incoming) {
    let mut left = DRAIN_BYTES;
    let read = async {
        while let Ok(Some(Ok(frame))) = tokio::time::timeout(DRAIN_SILENCE, body.frame()).await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    // A client that takes longer has had its time.
    let _ = tokio::time::timeout(server.limits.body, read).await;
}

/// A length that is announced and too large is refused without being kept.
async fn read_body(server: &Server, head: &Parts, body: &mut Incoming) -> Result<Bytes, Refusal> {
    let most = server.limits.body_bytes;
    let announced = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > most) {
        return Err(Refusal::BodyTooLarge { most });
    }
    let read = tokio::time::timeout(server.limits.body, Limited::new(body, most).collect()).await;
    match read.map_err(|_| Refusal::BodyTooSlow)? {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Refusal::BodyTooLarge { most }),
        Err(_) => Err(Refusal::BodyBroken),
    }
}

/// A panic is the answer to one request, not the end of the others.
async fn handle(
    handler: Arc<dyn Handler>,
    request: Request<Bytes>,
    user: Arc<User>,
) -> Result<Response<Body>, Refusal> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    AssertUnwindSafe(async move { handler.handle(request, user).await }).catch_unwind().await.map_err(|panic| {
        let reason = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
        tracing::error!(%method, path, reason = reason.unwrap_or("unknown"), "a request ended in a panic");
        Refusal::Panic
    })
}

fn refuse(server: &Server, refusal: Refusal) -> Response<Body> {
    if let Some(reason) = refusal.counted_as() {
        server.metrics.refused(reason);
    }
    refusal.response()
}

fn without_body(response: Response<Body>) -> Response<Body> {
    let length = response.body().len();
    let mut response = response.map(|_| Body::Empty);
    if let Some(length) = length {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_are_told_from_other_requests() {
        let asks = |method: &Method, uri: &'static str| is_watch(method, &Uri::from_static(uri));
        for uri in [
            "/api/v1/pods?watch=true",
            "/x?limit=1&watch=1",
            "/x?watch",
            "/x?watch=",
            "/api/v1/watch/pods",
            "/apis/g/v1/watch/k",
        ] {
            assert!(asks(&Method::GET, uri), "{uri}");
            assert!(!asks(&Method::DELETE, uri), "{uri}");
        }
        for uri in [
            "/x",
            "/x?watch=false",
            "/x?watch=False",
            "/x?watch=0",
            "/x?rewatch=1",
            "/api/v1/namespaces/watch",
            "/watch",
        ] {
            assert!(!asks(&Method::GET, uri), "{uri}");
        }
    }
}
