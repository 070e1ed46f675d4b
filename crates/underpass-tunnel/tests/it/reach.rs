//! What the server half knows of the servers themselves.

use futures::FutureExt;
use tokio::net::{TcpListener, TcpSocket};
use underpass_tunnel::ServerSeen;

use crate::rig::{Pair, connect, is_reset, listener, nobody, wait_until, within};

async fn until_refused(pair: &Pair) {
    let refused = async || matches!(pair.server_seen().await, ServerSeen::Unreachable(why) if why.contains("refused"));
    wait_until(refused, "it is told that nothing listens").await;
}

async fn until_reachable(pair: &Pair) {
    wait_until(async || pair.server_seen().await == ServerSeen::Reachable, "the server is seen").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_and_goes_is_told_and_never_disturbed() {
    let pair = Pair::start().await;
    let address = nobody().await;
    pair.prepare(1, address).await;
    until_refused(&pair).await;
    let server = TcpListener::bind(address).await.unwrap();
    until_reachable(&pair).await;
    assert!(server.accept().now_or_never().is_none(), "nobody has connected to it");
    drop(server);
    until_refused(&pair).await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_streams_met_is_told_until_the_server_is_back() {
    let pair = Pair::start().await;
    let (server, address) = listener().await;
    let port = pair.prepare(1, address).await.port;
    until_reachable(&pair).await;
    let mut news = pair.caller.news();
    drop(server);
    assert!(is_reset(port).await);
    within(news.changed()).await.expect("nobody has to ask for it");
    until_refused(&pair).await;
    let server = TcpListener::bind(address).await.unwrap();
    let _client = connect(port).await;
    within(server.accept()).await.unwrap();
    within(news.changed()).await.expect("good news are told, too");
    until_reachable(&pair).await;
    pair.stop().await;
}

/// Whether one that listens on all IPv6 addresses takes IPv4 as well is not to be seen from outside.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_on_all_addresses_is_met_once() {
    let socket = TcpSocket::new_v6().unwrap();
    socket.bind("[::]:0".parse().unwrap()).unwrap();
    let server = socket.listen(8).unwrap();
    let pair = Pair::start().await;
    pair.prepare(1, (crate::rig::HERE, server.local_addr().unwrap().port()).into()).await;
    until_reachable(&pair).await;
    within(server.accept()).await.unwrap();
    for _ in 0..3 {
        pair.list().await;
    }
    assert!(server.accept().now_or_never().is_none(), "once is enough");
    pair.stop().await;
}
