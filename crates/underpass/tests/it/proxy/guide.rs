//! `docs/proxy.md`, pasted into a shell as its readers do.

use underpass_testbed::{PATIENCE, follow_guide};

use super::own_address;
use crate::{BINARY, root};

#[test]
fn every_command_of_the_guide_shows_what_the_guide_says() {
    let address = own_address().to_string();
    let page = std::fs::read_to_string(root().join("docs/proxy.md")).unwrap().replace("127.0.0.1", &address);
    // The admin port has the test's own address too.
    let underpass = format!(
        "#!/bin/sh\nif [ \"$1\" = proxy ]; then shift; set -- proxy --admin {address}:9901 \"$@\"; fi\nexec {BINARY} \"$@\"\n"
    );
    let envoy = std::env::var("UNDERPASS_TEST_ENVOY").expect("scripts/test says where Envoy is");
    let page = page.replace("\nenvoy ", &format!("\n{envoy} "));
    follow_guide(&page, &underpass, &[], PATIENCE);
}
