//! Clients that do not read: they lose their own answer, and nobody else's.

use tokio::io::AsyncWriteExt;

use super::*;

const DROPPED: &str = "underpass_apiserver_watchers_dropped_total{reason=\"stalled\"} 1";

#[tokio::test]
async fn on_http1_the_connection_of_the_watcher_ends() {
    let rig = Rig::start(Limits { stall: SOON, ..Limits::default() }).await;
    let mut other = rig.http1().await;
    let mut ticks = BodyStream::new(other.send(rig.get("/ticks?watch=true")).await.unwrap().into_body());
    let mut deaf = rig.tls(b"http/1.1").await.unwrap();
    let token = rig.identity.token();
    let request = format!("GET /flood?watch=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n");
    deaf.write_all(request.as_bytes()).await.unwrap();
    rig.metric(DROPPED).await;
    rig.metric("underpass_apiserver_connections 1").await;
    rig.toy.ticks.send(Bytes::from("still here")).unwrap();
    assert_eq!(next(&mut ticks).await.unwrap(), "still here");
}

#[tokio::test]
async fn on_http2_only_the_stream_of_the_watcher_ends() {
    let rig = Rig::start(Limits { stall: SOON, ..Limits::default() }).await;
    let mut client = rig.http2().await;
    let mut ticks = BodyStream::new(client.send(rig.get("/ticks?watch=true")).await.unwrap().into_body());
    let deaf = client.send(rig.get("/flood?watch=true")).await.unwrap();
    rig.toy.ticks.send(Bytes::from("before")).unwrap();
    assert_eq!(next(&mut ticks).await.unwrap(), "before");
    rig.metric(DROPPED).await;
    rig.toy.ticks.send(Bytes::from("after")).unwrap();
    assert_eq!(next(&mut ticks).await.unwrap(), "after");
    assert_eq!(client.ask(rig.get("/")).await.0, 200);
    assert!(deaf.into_body().collect().await.is_err(), "the stream was reset, not ended");
    rig.metric("apiserver_longrunning_requests 1").await;
}

#[tokio::test]
async fn on_http2_a_long_answer_that_is_not_read_frees_its_place() {
    let rig = Rig::start(Limits { stall: SOON, in_flight: 1, ..Limits::default() }).await;
    let mut client = rig.http2().await;
    let _deaf = client.send(rig.get("/long")).await.unwrap();
    assert_eq!(client.ask(rig.get("/")).await.0, 429);
    rig.metric("underpass_apiserver_refused_total{reason=\"stalled\"} 1").await;
    rig.in_flight(0).await;
    assert_eq!(client.ask(rig.get("/")).await.0, 200);
}

#[tokio::test]
async fn a_quiet_watch_is_not_a_stalled_one() {
    let rig = Rig::start(Limits { stall: SOON, idle: SOON, ..Limits::default() }).await;
    let mut clients = [rig.http1().await, rig.http2().await];
    let mut watches = Vec::new();
    for client in &mut clients {
        watches.push(BodyStream::new(client.send(rig.get("/ticks?watch=true")).await.unwrap().into_body()));
    }
    // A third connection that falls idle, later than the watches began, shows that the limits have passed.
    let mut idle = rig.http1().await;
    idle.ask(rig.get("/")).await;
    idle.ended().await;
    rig.toy.ticks.send(Bytes::from("late")).unwrap();
    for watch in &mut watches {
        assert_eq!(next(watch).await.unwrap(), "late");
    }
}
