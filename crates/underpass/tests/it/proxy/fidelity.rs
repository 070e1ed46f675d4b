//! What a relay owes to both sides: the cases that `make bench-fidelity` also asks of other proxies.

use std::path::Path;

use underpass_testbed::fidelity::{Settings, cases, failures, run};
use underpass_testbed::proxies::Proxy;

use crate::BINARY;

#[test]
fn every_promise_is_kept() {
    assert!(cases().count() >= 40);
    let failed = failures(&run(Proxy::Underpass, Path::new(BINARY), Settings::default(), ""));
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
