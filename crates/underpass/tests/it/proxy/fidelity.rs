//! What a relay owes to both sides: the cases that `make bench-fidelity` also asks of other proxies.

use std::path::Path;

use underpass_testbed::fidelity::{Settings, cases, failures, run};
use underpass_testbed::proxies::{Proxy, Running};

use crate::BINARY;

#[test]
fn every_promise_is_kept() {
    assert!(cases().count() >= 40);
    let proxy = Proxy::Underpass;
    let start = |routing: &_| Running::start(proxy, Path::new(BINARY), routing);
    let failed = failures(&run(start, proxy, Settings::default(), ""));
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// What an Envoy cannot do, whoever tells it what to do: the same cases, and why.
const ENVOYS_OWN: [&str; 15] = [
    // Its inspector reads at most 16 KiB.
    "hello: largest record",
    "hello: 20 kB",
    "hello: 20 kB, name at the end",
    // It takes an address for a name, and nobody has that name.
    "name: IP literal",
    // A connection that is closed while it is inspected goes nowhere.
    "FIN with the hello",
    "plain TCP: FIN with the first bytes",
    // It comes, but late: how long a silent client is waited for has to be the same on all ports, or a port's second backend would end the
    // connections of the first.
    "plain TCP: server speaks first",
    // Until 1.36 it ends in order what the other side has reset.
    "RST: client, after the hello",
    "RST: client, after an answer",
    "RST: client, after the backend's FIN",
    "RST: backend, after the hello",
    "RST: backend, after the client's FIN",
    "RST: backend, at once",
    // It says nothing to whoever does not speak TLS.
    "plain HTTP on a TLS port",
    "plain HTTP in two segments",
];

#[test]
fn every_promise_that_envoy_can_keep_is_kept_when_it_is_told_by_us() {
    let proxy = Proxy::FedEnvoy;
    let start = |routing: &_| Running::start(proxy, Path::new(BINARY), routing);
    let failed = failures(&run(start, proxy, Settings::default(), ""));
    let ours: Vec<_> =
        failed.iter().filter(|line| !ENVOYS_OWN.iter().any(|own| line.starts_with(&format!("{own} (")))).collect();
    assert!(ours.is_empty(), "{ours:#?}");
}
