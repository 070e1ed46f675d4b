//! Machines that are not on the proxy's network, but behind a router there.

use serde_json::{Value, json};
use underpass_testbed::{HostedControlPlane, HostedService, Lab, Machine, wait_until};

use super::{Plane, ROLLOUT, Site, backend};

/// The second network is where the machine is.
pub(super) fn machines_behind_a_router_are_answered(lab: &Lab, plane: Plane, replicas: u8, [near, far]: [u8; 2]) {
    let site = Site::new(lab, plane, near);
    site.kubectl().ok(&format!("label namespace {} pod-security.kubernetes.io/enforce-", site.namespace.name));
    let target = lab.namespace("target");
    let hosted =
        HostedControlPlane::start(lab, &target, &[HostedService::tls("kube-apiserver", 6443, &["api.example.com"])]);
    let router = lab.machine(&format!("192.168.{near}.1/24"));
    router.run(&format!("ip address add 192.168.{far}.1/24 dev eth0; echo 1 >/proc/sys/net/ipv4/ip_forward")).ok();
    let vm = lab.machine(&format!("192.168.{far}.50/24"));
    vm.run(&format!("ip route add 192.168.{near}.0/24 via 192.168.{far}.1")).ok();
    let neighbour = lab.machine(&format!("192.168.{near}.50/24"));

    let fetch =
        |machine: &Machine| machine.fetch("https://api.example.com:6443/", &site.server_ip(), &hosted.authority());
    let mut proxy = site.proxy("edge", &[backend("api", "api.example.com", 6443, "kube-apiserver", &target)]);
    proxy["spec"]["replicas"] = json!(replicas);
    proxy["spec"]["networkConfig"]["gateway"] = json!(format!("192.168.{near}.1"));
    if replicas == 1 {
        site.apply(&proxy);
        let told = site.becomes("edge", "Degraded", "True", "GatewayUnused");
        assert!(told.contains("sbr"), "{told}");
        site.is_ready("edge");
        fetch(&neighbour).ok();
        assert_eq!(fetch(&vm).code, Some(28), "what is sent to others goes elsewhere, and no answer comes");
        site.apply(&source_routed(near));
        proxy["spec"]["networkConfig"]["networkAttachmentName"] = json!("routed");
    }
    site.apply(&proxy);
    site.becomes("edge", "Degraded", "False", "AsExpected");
    site.is_ready("edge");
    for machine in [&vm, &neighbour] {
        wait_until("an answer from the proxy", ROLLOUT, || (fetch(machine).code == Some(0)).then_some(()));
    }
    site.kubectl().ok("delete proxyserver edge --timeout=110s");
}

/// As the guide has it.
fn source_routed(subnet: u8) -> Value {
    let gateway = format!("192.168.{subnet}.1");
    let config = json!({ "cniVersion": "0.3.1", "plugins": [
        {
            "type": "macvlan", "master": "eth1", "mode": "bridge",
            "ipam": { "type": "static", "routes": [{ "dst": "0.0.0.0/0", "gw": gateway }] },
        },
        { "type": "sbr" },
    ]});
    json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": { "name": "routed" }, "spec": { "config": config.to_string() },
    })
}
