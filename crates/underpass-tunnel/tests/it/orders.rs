use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use underpass_tunnel::server::system_lookup;
use underpass_tunnel::{CallerError, MOST_TUNNELS, Prepare};

use crate::rig::{
    HERE, Pair, connect, connect_at, echo_server, exchange, naming_server, receive, tunnel, wait_until, within,
};

const APART: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 11));
const FAR_APART: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 12));

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_tunnel_carries_and_a_probe_crosses_the_pair() {
    let pair = Pair::start().await;
    assert!(pair.caller.probe().await.unwrap().micros > 0);
    let prepared = pair.prepare(1, echo_server().await).await;
    assert!(prepared.addresses.iter().all(|address| !address.is_loopback()), "{prepared:?}");
    exchange(&mut connect(prepared.port).await, "hello").await;
    let listed = pair.list().await;
    assert!(listed.connected);
    assert_eq!(listed.client.unwrap().tunnels, [1]);
    assert_eq!((listed.tunnels.len(), listed.tunnels[0].total), (1, 1));
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_order_has_the_same_answer() {
    let pair = Pair::start().await;
    let server = echo_server().await;
    let first = pair.prepare(1, server).await;
    let orders = (0..5).map(|_| pair.caller.prepare(tunnel(1, server)));
    for again in futures::future::join_all(orders).await {
        assert_eq!(again.unwrap(), first);
    }
    assert_eq!(pair.list().await.tunnels.len(), 1);
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_number_is_another_tunnel_even_to_the_same_server() {
    let pair = Pair::start().await;
    let server = echo_server().await;
    let (one, two) = (pair.prepare(1, server).await, pair.prepare(2, server).await);
    assert_ne!(one.port, two.port);
    pair.caller.delete(1).await.unwrap();
    exchange(&mut connect(two.port).await, "still here").await;
    assert_eq!(pair.list().await.client.unwrap().tunnels, [2]);
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_tunnel_frees_its_port_at_once() {
    let pair = Pair::start_at(APART).await;
    let server = echo_server().await;
    let port = pair.prepare(1, server).await.port;
    for _ in 0..5 {
        pair.caller.delete(1).await.unwrap();
        drop(TcpListener::bind((APART, port)).await.expect("the port is free"));
        let wanted = Prepare { client_port: Some(port), ..tunnel(1, server) };
        assert_eq!(pair.caller.prepare(wanted).await.unwrap().port, port);
    }
    exchange(&mut connect_at(APART, port).await, "back").await;
    pair.caller.delete(1).await.unwrap();
    pair.caller.delete(1).await.expect("what is not there is deleted");
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_order_under_the_same_number_replaces_the_tunnel_and_keeps_its_port() {
    let pair = Pair::start().await;
    let (left, right) = (naming_server("left").await, naming_server("right").await);
    let first = pair.prepare(1, left).await;
    let mut old = connect(first.port).await;
    assert_eq!(receive(&mut old, 4).await, "left");
    assert_eq!(pair.prepare(1, right).await, first);
    assert_eq!(receive(&mut connect(first.port).await, 5).await, "right");
    assert_eq!(pair.list().await.tunnels.len(), 1);
    wait_until(async || pair.active(1).await >= 1, "the new stream counts").await;
    pair.stop().await;
}

const SLOW: &str = "slow.example.com";
static SLOW_BEGUN: Semaphore = Semaphore::const_new(0);
static SLOW_ENDS: Semaphore = Semaphore::const_new(0);

/// One name is found at HERE, when the test says so.
fn slow_lookup(name: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
    if name != SLOW {
        return system_lookup(name, port);
    }
    SLOW_BEGUN.add_permits(1);
    async move {
        SLOW_ENDS.acquire().await.unwrap().forget();
        Ok(vec![(HERE, port).into()])
    }
    .boxed()
}

/// The order is given, then `meanwhile` happens, and only then its name is found. What came of the order.
async fn overtaken_by(pair: &Pair, order: Prepare, meanwhile: impl Future<Output = ()>) -> Result<(), CallerError> {
    let meanwhile = async {
        within(SLOW_BEGUN.acquire()).await.unwrap().forget();
        meanwhile.await;
        SLOW_ENDS.add_permits(1);
    };
    let (prepared, ()) = tokio::join!(pair.caller.prepare(order), meanwhile);
    prepared.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_waited_for_a_name_does_not_undo_a_later_one() {
    let pair = Pair::start_looking_up(slow_lookup).await;
    let (left, right) = (naming_server("left").await, naming_server("right").await);
    let slow = || Prepare { server_address: SLOW.into(), ..tunnel(1, left) };
    let later = async { drop(pair.prepare(1, right).await) };
    let refused = overtaken_by(&pair, slow(), later).await.unwrap_err();
    assert!(matches!(&refused, CallerError::Refused(reason) if reason.contains("a later order")), "{refused}");
    let port = pair.list().await.tunnels[0].prepared.port;
    assert_eq!(receive(&mut connect(port).await, 5).await, "right");

    let delete = async { pair.caller.delete(1).await.unwrap() };
    overtaken_by(&pair, slow(), delete).await.expect_err("it is deleted");
    let listed = pair.list().await;
    assert!(listed.tunnels.is_empty() && listed.client.unwrap().tunnels.is_empty(), "it stays so");

    overtaken_by(&pair, slow(), async {}).await.expect("nobody wants anything else any more");
    let port = pair.list().await.tunnels[0].prepared.port;
    assert_eq!(receive(&mut connect(port).await, 4).await, "left");
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wanted_port_that_is_taken_is_told() {
    let pair = Pair::start().await;
    let server = echo_server().await;
    let port = pair.prepare(1, server).await.port;
    let refused = pair.caller.prepare(Prepare { client_port: Some(port), ..tunnel(2, server) }).await.unwrap_err();
    assert!(matches!(&refused, CallerError::Refused(reason) if reason.contains("taken by tunnel 1")), "{refused}");
    let other = TcpListener::bind((HERE, 0)).await.unwrap();
    let port = other.local_addr().unwrap().port();
    let refused = pair.caller.prepare(Prepare { client_port: Some(port), ..tunnel(2, server) }).await.unwrap_err();
    let reason = refused.to_string();
    assert!(reason.contains(&port.to_string()) && reason.contains("in use"), "{reason}");
    assert_eq!(pair.list().await.tunnels.len(), 1);
    exchange(&mut connect(pair.prepare(1, server).await.port).await, "unharmed").await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preferred_port_that_is_taken_is_replaced_by_one_that_stays() {
    let pair = Pair::start().await;
    let server = echo_server().await;
    let port = pair.prepare(1, server).await.port;
    let preferring = Prepare { client_port: Some(port), or_any: true, ..tunnel(2, server) };
    let other = pair.caller.prepare(preferring.clone()).await.unwrap().port;
    assert_ne!(other, port);
    pair.caller.delete(1).await.unwrap();
    let elsewhere = echo_server().await;
    let again = Prepare { server_port: elsewhere.port(), ..preferring };
    assert_eq!(pair.caller.prepare(again).await.unwrap().port, other, "its clients know it");
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused_with_its_field() {
    let pair = Pair::start().await;
    let server = echo_server().await;
    let wrong = [
        (Prepare { server_port: 0, ..tunnel(1, server) }, "serverPort: "),
        (Prepare { server_address: "no such host".into(), ..tunnel(1, server) }, "serverAddress: "),
        (Prepare { server_address: "nowhere.invalid".into(), ..tunnel(1, server) }, "serverAddress: "),
    ];
    for (order, field) in wrong {
        let reason = pair.caller.prepare(order).await.unwrap_err().to_string();
        assert!(reason.starts_with(field), "{reason}");
    }
    assert!(pair.list().await.tunnels.is_empty());
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_so_many_tunnels_and_no_more() {
    let pair = Pair::start_at(FAR_APART).await;
    let server = echo_server().await;
    let most = u32::try_from(MOST_TUNNELS).unwrap();
    let mut ports = BTreeSet::new();
    for number in 0..most {
        ports.insert(pair.prepare(number, server).await.port);
    }
    assert_eq!(ports.len(), MOST_TUNNELS);
    let reason = pair.caller.prepare(tunnel(most, server)).await.unwrap_err().to_string();
    assert!(reason.contains("512 tunnels"), "{reason}");
    exchange(&mut connect_at(FAR_APART, *ports.last().unwrap()).await, "the last one").await;
    assert_eq!(pair.list().await.tunnels.len(), MOST_TUNNELS);
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_order_to_end_is_answered_before_it_is_obeyed() {
    let pair = Pair::start().await;
    pair.caller.shutdown().await.unwrap();
    pair.server.told_to_stop().await;
    pair.stop().await;
}
