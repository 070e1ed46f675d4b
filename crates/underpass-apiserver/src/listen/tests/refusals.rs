//! Requests that are turned away, the same on both versions of HTTP, and what every answer carries.

use std::io::Write;

use http::HeaderValue;
use http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

fn reason_and_code(status: &str) -> (String, u64) {
    let status: serde_json::Value = serde_json::from_str(status).unwrap();
    assert_eq!((&status["kind"], &status["apiVersion"]), (&"Status".into(), &"v1".into()));
    (status["reason"].as_str().unwrap().to_owned(), status["code"].as_u64().unwrap())
}

fn with_credentials(mut request: Request<Full<Bytes>>, credentials: Option<&'static str>) -> Request<Full<Bytes>> {
    request.headers_mut().remove(AUTHORIZATION);
    request.headers_mut().extend(credentials.map(|value| (AUTHORIZATION, HeaderValue::from_static(value))));
    request
}

#[tokio::test]
async fn strangers_get_401_as_a_status() {
    let rig = Rig::start(Limits::default()).await;
    for http2 in [false, true] {
        let mut client = rig.client(http2).await;
        for credentials in [None, Some("Bearer 0000"), Some("Basic YTpi")] {
            let response = client.send(with_credentials(rig.get("/api"), credentials)).await.unwrap();
            assert_eq!(response.status(), 401);
            assert!(response.headers().contains_key(WWW_AUTHENTICATE));
            assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
            assert_eq!(reason_and_code(&text(response).await), ("Unauthorized".into(), 401));
        }
    }
    rig.metric("underpass_apiserver_refused_total{reason=\"unauthorized\"} 6").await;
}

#[tokio::test]
async fn health_is_told_to_everybody_and_metrics_are_not() {
    let rig = Rig::start(Limits::default()).await;
    let mut client = rig.http2().await;
    let anonymous = |path| with_credentials(rig.get(path), None);
    for path in ["/livez", "/readyz", "/healthz", "/version"] {
        assert_eq!(client.ask(anonymous(path)).await, (200, "system:anonymous sent 0 bytes".into()));
    }
    assert_eq!(client.ask(anonymous("/metrics")).await.0, 401);
}

#[tokio::test]
async fn every_answer_has_an_id_and_is_not_for_caches() {
    let rig = Rig::start(Limits::default()).await;
    let mut client = rig.http1().await;
    let mut ids = std::collections::BTreeSet::new();
    for request in [rig.get("/"), with_credentials(rig.get("/"), None), rig.get("/panic")] {
        let response = client.send(request).await.unwrap();
        assert_eq!(response.headers()[CACHE_CONTROL], "no-cache, private");
        ids.insert(response.headers()["audit-id"].to_str().unwrap().to_owned());
        text(response).await;
    }
    assert_eq!(ids.len(), 3);
}

#[tokio::test]
async fn a_panic_is_the_answer_to_one_request() {
    let rig = Rig::start(Limits::default()).await;
    for http2 in [false, true] {
        let mut client = rig.client(http2).await;
        let (code, status) = client.ask(rig.get("/panic")).await;
        assert_eq!((code, reason_and_code(&status)), (500, ("InternalError".into(), 500)));
        assert_eq!(client.ask(rig.get("/")).await.0, 200, "the connection goes on");
    }
}

#[tokio::test]
async fn a_header_too_large_gets_431() {
    let rig = Rig::start(Limits { header_bytes: 8 << 10, ..Limits::default() }).await;
    for http2 in [false, true] {
        let mut request = rig.get("/");
        request.headers_mut().insert("x-long", "x".repeat(9 << 10).parse().unwrap());
        let (code, status) = rig.client(http2).await.ask(request).await;
        assert_eq!(
            (code, reason_and_code(&status)),
            (431, ("RequestHeaderFieldsTooLarge".into(), 431)),
            "http2: {http2}"
        );
        let mut request = rig.get("/");
        request.headers_mut().insert("x-long", "x".repeat(20 << 10).parse().unwrap());
        assert_eq!(rig.client(http2).await.send(request).await.unwrap().status(), 431, "http2: {http2}");
    }
}

#[tokio::test]
async fn a_request_needs_one_host() {
    let rig = Rig::start(Limits::default()).await;
    for hosts in ["", "Host: a\r\nHost: b\r\n"] {
        let answer = raw(&rig, &format!("GET /livez HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("one Host header"), "{answer}");
    }
    let answer = raw(&rig, "GET /livez HTTP/1.0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.0 200 "), "{answer}");
}

#[tokio::test]
async fn a_body_too_large_gets_413() {
    let rig = Rig::start(Limits { body_bytes: 1000, ..Limits::default() }).await;
    for http2 in [false, true] {
        let mut client = rig.client(http2).await;
        let fits = client.ask(rig.request(Method::POST, "/", vec![0; 1000])).await;
        assert_eq!(fits, (200, "underpass-admin sent 1000 bytes".into()));
        let (code, status) = client.ask(rig.request(Method::POST, "/", vec![0; 1001])).await;
        assert_eq!((code, reason_and_code(&status)), (413, ("RequestEntityTooLarge".into(), 413)));
    }
}

/// Real clients send all of a body before they read the answer to it.
#[tokio::test]
async fn a_client_that_sends_first_hears_why_its_body_is_refused() {
    let rig = Rig::start(Limits::default()).await;
    let body = vec![b'x'; 20 << 20];
    for token in [rig.identity.token(), "wrong"] {
        let head = format!(
            "POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let mut stream = rig.tls(b"http/1.1").await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&body).await.expect("the body is taken");
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("left open");
        let code = if token == "wrong" { "401" } else { "413" };
        assert!(answer.starts_with(format!("HTTP/1.1 {code} ").as_bytes()), "{}", String::from_utf8_lossy(&answer));
    }
}

/// Sends bytes over TLS and reads until the server closes.
async fn raw(rig: &Rig, sent: &str) -> String {
    let mut stream = rig.tls(b"http/1.1").await.unwrap();
    stream.write_all(sent.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    // The end may come without TLS's own goodbye; what counts is that it comes.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut received)).await.expect("left open");
    String::from_utf8(received).unwrap()
}

#[tokio::test]
async fn a_body_without_an_announced_length_is_bounded_too() {
    let rig = Rig::start(Limits { body_bytes: 10, ..Limits::default() }).await;
    let token = rig.identity.token();
    let head =
        format!("POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nTransfer-Encoding: chunked\r\n\r\n");
    let answer = raw(&rig, &(head + "6\r\nabcdef\r\n6\r\nabcdef\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn a_header_that_does_not_end_ends_the_connection() {
    let rig = Rig::start(Limits { header: SOON, ..Limits::default() }).await;
    assert_eq!(raw(&rig, "GET / HTTP/1.1\r\nHost:").await, "");
    assert_eq!(raw(&rig, "").await, "");
    rig.metric("underpass_apiserver_refused_total{reason=\"header_deadline\"} 2").await;
}

#[tokio::test]
async fn a_body_that_does_not_end_gets_408() {
    let rig = Rig::start(Limits { body: SOON, ..Limits::default() }).await;
    let token = rig.identity.token();
    let head = format!("POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 9\r\n\r\n");
    let answer = raw(&rig, &(head + "half")).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    rig.metric("underpass_apiserver_refused_total{reason=\"body_deadline\"} 1").await;
}

#[tokio::test]
async fn a_request_too_many_gets_429_and_room_comes_back() {
    let rig = Rig::start(Limits { in_flight: 1, ..Limits::default() }).await;
    let (mut first, mut second) = (rig.http1().await, rig.http2().await);
    let waiting = tokio::spawn({
        let request = rig.get("/gate");
        async move { first.ask(request).await }
    });
    rig.in_flight(1).await;
    let response = second.send(rig.get("/")).await.unwrap();
    assert_eq!((response.status().as_u16(), response.headers()[RETRY_AFTER].to_str().unwrap()), (429, "1"));
    assert_eq!(reason_and_code(&text(response).await), ("TooManyRequests".into(), 429));
    let watch = second.send(rig.get("/ticks?watch=true")).await.unwrap();
    assert_eq!(watch.status(), 200, "watches have their own places");
    rig.toy.gate.add_permits(1);
    assert_eq!(waiting.await.unwrap(), (200, "open".into()));
    rig.in_flight(0).await;
    assert_eq!(second.ask(rig.get("/")).await.0, 200);
}

#[tokio::test]
async fn a_watch_too_many_gets_429_and_room_comes_back() {
    let rig = Rig::start(Limits { watches: 1, ..Limits::default() }).await;
    let mut client = rig.http2().await;
    let watch = client.send(rig.get("/ticks?watch=true")).await.unwrap();
    rig.metric("apiserver_longrunning_requests 1").await;
    assert_eq!(client.ask(rig.get("/ticks?watch=true")).await.0, 429);
    drop(watch);
    rig.metric("apiserver_longrunning_requests 0").await;
    assert_eq!(client.send(rig.get("/ticks?watch=true")).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_long_answer_is_compressed_if_asked() {
    let rig = Rig::start(Limits::default()).await;
    let mut client = rig.http2().await;
    let mut request = rig.get("/long");
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    let response = client.send(request).await.unwrap();
    assert_eq!(response.headers()[CONTENT_ENCODING], "gzip");
    assert_eq!(client.ask(rig.get("/long")).await.1.len(), 4 << 20);
}

#[tokio::test]
async fn head_has_the_length_and_no_body() {
    let rig = Rig::start(Limits::default()).await;
    for http2 in [false, true] {
        let response = rig.client(http2).await.send(rig.request(Method::HEAD, "/long", "")).await.unwrap();
        assert_eq!(response.headers()["content-length"], (4_u32 << 20).to_string().as_str());
        assert_eq!(text(response).await, "");
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_write_leaves_one_line_without_secrets() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::DEBUG).with_writer({
        let lines = lines.clone();
        move || lines.clone()
    });
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let rig = Rig::start(Limits::default()).await;
    let mut client = rig.http2().await;
    // A parallel test may come through the audit line for the first time while the subscriber above is made, and then nobody
    // would be asked about it again: so it is come through once, and everybody is asked.
    client.ask(rig.request(Method::POST, "/first", "")).await;
    tracing::callsite::rebuild_interest_cache();
    lines.0.lock().clear();
    client.ask(rig.get("/read")).await;
    let mut request = rig.request(Method::POST, "/api/v1/secrets?password=hunter2", "topsecret");
    request.headers_mut().insert("user-agent", HeaderValue::from_static("kubectl/v1"));
    let response = client.send(request).await.unwrap();
    let id = response.headers()["audit-id"].to_str().unwrap().to_owned();
    client.ask(with_credentials(rig.request(Method::DELETE, "/x", ""), Some("Bearer guess"))).await;
    let log = String::from_utf8(lines.0.lock().clone()).unwrap();
    let [write, refused] = log.lines().filter(|line| line.contains("audit:")).collect::<Vec<_>>()[..] else {
        panic!("not two lines:\n{log}")
    };
    for part in [id.as_str(), "underpass-admin", "POST", "/api/v1/secrets", "200", "kubectl/v1", "microseconds"] {
        assert!(write.contains(part), "{part} is missing in {write}");
    }
    assert!(refused.contains("DELETE") && refused.contains("401"), "{refused}");
    for secret in ["hunter2", "topsecret", "guess", rig.identity.token()] {
        assert!(!log.contains(secret), "{secret} is in\n{log}");
    }
}
