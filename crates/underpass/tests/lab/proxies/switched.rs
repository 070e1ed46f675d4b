//! Another data plane for a proxy that is there.

use std::collections::BTreeSet;

use underpass_testbed::{HostedControlPlane, HostedService, Lab, wait_until};

use super::leaving::{expected, kinds, made_for};
use super::{Plane, ROLLOUT, Site, backend};

/// There and back: machines are served by whoever is asked for, at the same address, and what the one before needed is gone.
pub(super) fn one_data_plane_follows_the_other(lab: &Lab, subnet: u8) {
    let site = Site::new(lab, Plane::Envoy, subnet);
    let target = lab.namespace("target");
    let hosted =
        HostedControlPlane::start(lab, &target, &[HostedService::tls("kube-apiserver", 6443, &["api.example.com"])]);
    site.apply(&site.proxy("edge", &[backend("api", "api.example.com", 6443, "kube-apiserver", &target)]));
    site.is_ready("edge");
    let vm = lab.machine(&format!("192.168.{subnet}.50/24"));
    let uid = site.uid("edge");
    for (plane, containers) in [(Plane::Native, &["manager"][..]), (Plane::Envoy, &["envoy", "manager"])] {
        site.kubectl()
            .ok(&format!("patch proxyserver edge --type=merge -p {{\"spec\":{{\"dataPlane\":\"{plane:?}\"}}}}"));
        wait_until(&format!("containers {containers:?}, and no others"), ROLLOUT, || {
            let running = "get pods -l app=proxy-server -o jsonpath={.items[*].spec.containers[*].name}";
            let running = site.kubectl().ok(running);
            (running.split(' ').collect::<BTreeSet<_>>() == containers.iter().copied().collect()).then_some(())
        });
        site.is_ready("edge");
        vm.fetch("https://api.example.com:6443/", &site.server_ip(), &hosted.authority()).ok();
        wait_until("what this data plane needs, and nothing else", ROLLOUT, || {
            (kinds(&made_for(lab, &uid)) == expected(plane, 1)).then_some(())
        });
    }
    site.kubectl().ok("delete proxyserver edge --timeout=110s");
}
