//! Several pods of which one has the address.

use std::time::{Duration, Instant};

use serde_json::json;
use underpass_testbed::{HostedControlPlane, HostedService, Lab, wait_until};

use super::{Plane, ROLLOUT, Site, backend};

/// More than it takes; how long it took is printed.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(15);

#[allow(clippy::print_stdout, reason = "what was measured is told to whoever runs it with --nocapture")]
pub(super) fn one_of_several_has_the_address_and_another_follows(lab: &Lab, plane: Plane, subnet: u8) {
    let site = Site::new(lab, plane, subnet);
    // Moving an address takes a capability that the strictest standard does not know.
    site.kubectl().ok(&format!("label namespace {} pod-security.kubernetes.io/enforce-", site.namespace.name));
    let target = lab.namespace("target");
    let hosted =
        HostedControlPlane::start(lab, &target, &[HostedService::tls("kube-apiserver", 6443, &["api.example.com"])]);
    let mut proxy = site.proxy("edge", &[backend("api", "api.example.com", 6443, "kube-apiserver", &target)]);
    proxy["spec"]["replicas"] = json!(3);
    site.apply(&proxy);
    site.is_ready("edge");
    let ready = "get proxyserver edge -o jsonpath={.status.readyReplicas}";
    wait_until("three ready pods", ROLLOUT, || (site.kubectl().ok(ready) == "3").then_some(()));
    let (vm, at) = (lab.machine(&format!("192.168.{subnet}.50/24")), site.server_ip());
    let answers = || vm.fetch("https://api.example.com:6443/", &at, &hosted.authority()).code == Some(0);
    assert!(answers());
    for round in 0..2 {
        let active = || site.kubectl().ok("get proxyserver edge -o jsonpath={.status.activePod}");
        let before = active();
        assert!(before.starts_with("proxy-server-edge-"), "{before}");
        site.kubectl().ok(&format!("delete pod {before} --force --grace-period=0"));
        let begun = Instant::now();
        wait_until("an answer after the active pod was killed", TAKEN_OVER_WITHIN, || answers().then_some(()));
        println!("round {round}: served again after {:?}", begun.elapsed());
        wait_until("the status names another pod", ROLLOUT, || {
            (active() != before && !active().is_empty()).then_some(())
        });
    }
    site.kubectl().ok("delete proxyserver edge --timeout=55s");
}
