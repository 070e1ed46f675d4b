//! The end: of idle connections, and of the server.

use super::*;

async fn served(rig: Rig) {
    tokio::time::timeout(PATIENCE, rig.serving).await.expect("the server goes on").unwrap();
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let rig = Rig::start(Limits { idle: SOON, ..Limits::default() }).await;
    for http2 in [false, true] {
        let mut client = rig.client(http2).await;
        assert_eq!(client.ask(rig.get("/")).await.0, 200);
        client.ended().await;
    }
}

#[tokio::test]
async fn watches_end_cleanly_and_open_requests_are_answered() {
    let rig = Rig::start(Limits::default()).await;
    let (mut watches, mut answers) = (Vec::new(), Vec::new());
    for http2 in [false, true] {
        let mut client = rig.client(http2).await;
        watches.push(BodyStream::new(client.send(rig.get("/ticks?watch=true")).await.unwrap().into_body()));
        let (mut client, request) = (rig.client(http2).await, rig.get("/gate"));
        answers.push(tokio::spawn(async move { client.ask(request).await }));
    }
    rig.watching(2).await;
    rig.in_flight(2).await;
    rig.toy.ticks.send(Bytes::from("last")).unwrap();
    for watch in &mut watches {
        assert_eq!(next(watch).await.unwrap(), "last");
    }
    rig.stop.cancel();
    for watch in &mut watches {
        assert_eq!(next(watch).await, None);
    }
    until("no new connections", || std::net::TcpStream::connect(rig.address).is_err()).await;
    rig.toy.gate.add_permits(2);
    for answer in answers {
        assert_eq!(answer.await.unwrap(), (200, "open".into()));
    }
    served(rig).await;
}

#[tokio::test]
async fn a_request_that_does_not_end_is_cut() {
    let rig = Rig::start(Limits { drain: SOON, ..Limits::default() }).await;
    let mut answers = Vec::new();
    for http2 in [false, true] {
        let (mut client, request) = (rig.client(http2).await, rig.get("/gate"));
        answers.push(tokio::spawn(async move { client.send(request).await.map(|response| response.status()) }));
    }
    let _handshaking = TcpStream::connect(rig.address).await.unwrap();
    rig.in_flight(2).await;
    rig.metric("underpass_apiserver_connections 3").await;
    rig.stop.cancel();
    for answer in answers {
        assert!(answer.await.unwrap().is_err());
    }
    rig.in_flight(0).await;
    served(rig).await;
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_request_along() {
    let rig = Rig::start(Limits::default()).await;
    for http2 in [false, true] {
        let (mut client, request) = (rig.client(http2).await, rig.get("/gate"));
        let answer = tokio::spawn(async move { client.ask(request).await });
        rig.in_flight(1).await;
        answer.abort();
        rig.in_flight(0).await;
    }
    rig.metric("apiserver_request_total{verb=\"GET\",code=\"499\"} 2").await;
}
