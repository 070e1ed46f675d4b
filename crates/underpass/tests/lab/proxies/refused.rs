//! What a data plane refuses: told on the object, with everything else as it was, and tried again by itself.

use underpass_testbed::{HostedControlPlane, HostedService, Lab, PATIENCE, wait_until};

use super::{Plane, Site, backend};

const TAKEN: u16 = 7443;

/// Something else in the pod has the port of a new backend.
pub(super) fn a_port_that_is_taken_is_told_and_tried_again(lab: &Lab, plane: Plane, subnet: u8) {
    let site = Site::new(lab, plane, subnet);
    let target = lab.namespace("target");
    let hosted =
        HostedControlPlane::start(lab, &target, &[HostedService::tls("kube-apiserver", 6443, &["api.example.com"])]);
    let serving = backend("api", "api.example.com", 6443, "kube-apiserver", &target);
    site.apply(&site.proxy("edge", std::slice::from_ref(&serving)));
    site.is_ready("edge");
    let squatter = Squatter::beside(&site, TAKEN);
    let late = backend("late", "api.example.com", TAKEN, "kube-apiserver", &target);
    site.apply(&site.proxy("edge", &[serving, late]));
    let message = site.becomes("edge", "ConfigurationValid", "False", "ConfigRejected");
    assert!(message.contains(&site.pod("edge")) && message.contains(&TAKEN.to_string()), "{message}");
    let vm = lab.machine(&format!("192.168.{subnet}.50/24"));
    let fetch = |port: u16| {
        let url = format!("https://api.example.com:{port}/");
        vm.fetch(&url, &site.server_ip(), &hosted.authority()).code == Some(0)
    };
    assert!(fetch(6443), "what was served before is served on");
    squatter.end();
    site.becomes("edge", "ConfigurationValid", "True", "ConfigApplied");
    wait_until("the backend whose port was taken serves", PATIENCE, || fetch(TAKEN).then_some(()));
    site.is_ready("edge");
}

/// A server in the network of a pod, until it is told to end.
struct Squatter<'a> {
    lab: &'a Lab,
    node: String,
    network: String,
}

impl<'a> Squatter<'a> {
    /// In the network that has serverIP.
    fn beside(site: &Site<'a>, port: u16) -> Self {
        let pod = site.pod_object("edge");
        let node = pod["spec"]["nodeName"].as_str().unwrap().to_owned();
        let has_it = format!("ip -n $one -o -4 address show to {} | grep -q .", site.server_ip());
        let find = format!("for one in $(ip netns list | cut -d' ' -f1); do {has_it} && echo $one || true; done");
        let network = site.lab.on(&node, &find).ok().trim().to_owned();
        // It goes into the background by itself, when it listens.
        site.lab.on(&node, &format!("ip netns exec {network} busybox httpd -p {port} -h /proc/self/fdinfo")).ok();
        Self { lab: site.lab, node, network }
    }

    fn end(self) {
        let is_it = "tr '\\0' ' ' </proc/$one/cmdline | grep -q '^busybox httpd'";
        let end = format!("for one in $(ip netns pids {}); do ! {is_it} || kill $one; done", self.network);
        self.lab.on(&self.node, &end).ok();
    }
}
