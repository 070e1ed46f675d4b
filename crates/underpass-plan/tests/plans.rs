//! Every file in `plans/` is one case: what was observed (YAML), a line of dashes, and the plan as a person reads it.
//! `UPDATE=1 cargo test -p underpass-plan` rewrites the plans; read the difference before you commit it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod snapshots;

use underpass_plan::{Plan, container_network, infra, proxy_deployment, tunnel_proxy, unbuilt};

#[test]
fn every_case_gives_its_plan() {
    snapshots::check("plans", "\n---- plan\n", |name, input| plan(name, input).to_string());
}

fn plan(name: &str, input: &str) -> Plan {
    if name.starts_with("container-network") {
        let observed = serde_saphyr::from_str(input).unwrap_or_else(|error| panic!("{name}: {error}"));
        return container_network::plan(&observed);
    }
    if name.starts_with("tunnel-proxy") {
        let observed = serde_saphyr::from_str(input).unwrap_or_else(|error| panic!("{name}: {error}"));
        return tunnel_proxy::plan(&observed);
    }
    if name.starts_with("infra") {
        let observed = serde_saphyr::from_str(input).unwrap_or_else(|error| panic!("{name}: {error}"));
        return infra::plan(&observed);
    }
    if name.starts_with("proxy-server") {
        let observed = serde_saphyr::from_str(input).unwrap_or_else(|error| panic!("{name}: {error}"));
        return proxy_deployment::plan(&observed);
    }
    let observed = serde_saphyr::from_str(input).unwrap_or_else(|error| panic!("{name}: {error}"));
    unbuilt::plan(&observed)
}
