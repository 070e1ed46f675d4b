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
