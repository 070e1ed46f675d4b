//! The way out.

use std::io::Read;
use std::net::TcpStream;

use underpass_testbed::Signal;

use super::{Backend, PATIENCE, Proxy, Site, assert_carries, assert_contains, get, open, wait_until};

fn start(drain_seconds: u32) -> (Site, Proxy, TcpStream) {
    let api = Backend::start("api");
    let mut site = Site::new().with("api", "api.example.com", &api);
    site.spec["drainSeconds"] = drain_seconds.into();
    site.write();
    let proxy = Proxy::start(&site);
    let connection = open(site.door(), "api.example.com", "api");
    (site, proxy, connection)
}

fn wait_for_draining(proxy: &Proxy) {
    wait_until("draining", PATIENCE, || (get(proxy.admin, "/ready").ok()? == (503, "DRAINING\n".into())).then_some(()));
}

#[test]
fn connections_may_go_on_and_nothing_new_is_accepted() {
    let (site, proxy, mut connection) = start(600);
    proxy.process.signal(Signal::TERM);
    wait_for_draining(&proxy);
    wait_until("the door is closed", PATIENCE, || TcpStream::connect(site.door()).is_err().then_some(()));
    assert_carries(&mut connection);
    drop(connection);
    let ended = proxy.process.wait();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_contains(&ended.stderr, &["draining", "drained"]);
}

#[test]
fn when_the_drain_time_is_over_connections_are_cut() {
    let (_site, proxy, mut connection) = start(0);
    proxy.process.signal(Signal::INT);
    let ended = proxy.process.wait();
    assert_eq!(ended.code, Some(0), "{ended}");
    let mut rest = Vec::new();
    // A cut may be a reset.
    let _ = connection.read_to_end(&mut rest);
    assert_eq!(rest, b"");
    assert_contains(&ended.stdout, &["\"end\":\"drained\""]);
}

#[test]
fn a_second_signal_ends_at_once() {
    let (_site, mut proxy, _connection) = start(600);
    proxy.process.signal(Signal::TERM);
    wait_for_draining(&proxy);
    // Signals right after the first are its echo, so that whoever is impatient has to say it again.
    wait_until("the end", PATIENCE, || {
        proxy.process.signal(Signal::TERM);
        (!proxy.process.is_running()).then_some(())
    });
    let ended = proxy.process.wait();
    assert_eq!(ended.code, Some(130), "{ended}");
    assert_contains(&ended.stderr, &["ended by a second signal"]);
    assert_contains(&ended.stdout, &["\"end\":\"drained\""]);
}
