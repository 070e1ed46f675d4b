//! What changes while it works.

use std::time::Duration;

use serde_json::json;
use underpass_testbed::{HostedControlPlane, HostedService, Lab, Machine, PATIENCE, Process, wait_until};

use super::{Plane, Site, backend};

/// Names come and go, a Service gets other pods, and connections that have nothing to do with it go on, in the same pod.
pub(super) fn everything_that_can_be_changed_while_connections_stream(lab: &Lab, plane: Plane, subnet: u8) {
    let site = Site::new(lab, plane, subnet);
    let target = lab.namespace("target");
    let names = ["api.example.com", "late.example.com"];
    let hosted = HostedControlPlane::start(
        lab,
        &target,
        &[HostedService::tls("kube-apiserver", 6443, &names), HostedService::tls("other", 6443, &names)],
    );
    let first = backend("api", "api.example.com", 6443, "kube-apiserver", &target);
    site.apply(&site.proxy("edge", std::slice::from_ref(&first)));
    site.is_ready("edge");
    let (vm, at, pod) = (lab.machine(&format!("192.168.{subnet}.50/24")), site.server_ip(), site.pod("edge"));
    let mut streams: Vec<Process> =
        (0..8).map(|_| vm.follow("https://api.example.com:6443/stream", &at, &hosted.authority())).collect();
    for stream in &mut streams {
        counted(stream);
    }
    let late = backend("late", "late.example.com", 6443, "other", &target);
    let answers = |name: &str| vm.fetch(&format!("https://{name}:6443/"), &at, &hosted.authority());
    for round in 0..5 {
        site.apply(&site.proxy("edge", &[first.clone(), late.clone()]));
        let who = wait_until(&format!("the new name, round {round}"), PATIENCE, || {
            Some(answers("late.example.com")).filter(|ended| ended.code == Some(0)).map(|ended| ended.stdout)
        });
        assert!(who.starts_with(&hosted.name_of("other")), "{who}");
        site.apply(&site.proxy("edge", std::slice::from_ref(&first)));
        wait_until(&format!("the name is gone, round {round}"), PATIENCE, || {
            (answers("late.example.com").code != Some(0)).then_some(())
        });
    }
    for stream in &mut streams {
        counted(stream);
    }
    pods_of_a_service_are_followed(&site, &vm, &hosted, &target);
    assert_eq!(
        (site.pod("edge"), site.restarts(&pod)),
        (pod.clone(), restarts(plane).to_owned()),
        "nothing started anew"
    );
}

/// Another pod answers when the first has gone.
fn pods_of_a_service_are_followed(
    site: &Site<'_>,
    vm: &Machine,
    hosted: &HostedControlPlane<'_>,
    target: &underpass_testbed::LabNamespace,
) {
    let ask = || vm.fetch("https://api.example.com:6443/", &site.server_ip(), &hosted.authority());
    let before = ask().ok();
    target.kubectl.ok("rollout restart deployment/kube-apiserver");
    target.kubectl.ok("rollout status deployment/kube-apiserver --timeout=60s");
    wait_until("an answer of another pod", PATIENCE, || {
        Some(ask()).filter(|ended| ended.code == Some(0) && ended.stdout != before).map(|_| ())
    });
}

/// One number for each container.
fn restarts(plane: Plane) -> &'static str {
    if plane == Plane::Native { "0" } else { "0 0" }
}

/// Waits until more has come than was there.
#[track_caller]
fn counted(stream: &mut Process) {
    let before = stream.stdout().lines().count();
    wait_until("a stream that goes on", Duration::from_secs(20), || {
        (stream.stdout().lines().count() > before + 2).then_some(())
    });
}

/// Replicas and resources of the Deployment, where documents tell people to change them there, until the object itself says otherwise.
pub(super) fn what_people_change_by_hand_stays(lab: &Lab) {
    let site = Site::new(lab, Plane::Native, 115);
    let target = lab.namespace("target");
    let _hosted =
        HostedControlPlane::start(lab, &target, &[HostedService::tls("kube-apiserver", 6443, &["api.example.com"])]);
    let mut proxy = site.proxy("edge", &[backend("api", "api.example.com", 6443, "kube-apiserver", &target)]);
    // Without a secondary network every pod can have the same configuration.
    proxy["spec"]["networkConfig"] = json!({ "serverIP": site.server_ip() });
    site.apply(&proxy);
    site.is_ready("edge");
    site.kubectl().ok("scale deployment proxy-server-edge --replicas=2");
    let ready = |count: i32| {
        wait_until(&format!("{count} replicas"), super::ROLLOUT, || {
            let found = site.kubectl().ok("get proxyserver edge -o jsonpath={.status.readyReplicas}");
            (found == count.to_string()).then_some(())
        });
    };
    ready(2);
    let patch = json!({ "spec": { "template": { "spec": { "containers": [
        { "name": "manager", "resources": { "limits": { "memory": "1Gi", "cpu": "2000m" } } },
    ]}}}});
    site.kubectl().ok(&format!("patch deployment proxy-server-edge -p '{patch}'"));
    // Something of ours has to be written again.
    site.kubectl().ok("patch proxyserver edge --type=merge -p '{\"spec\":{\"logLevel\":\"debug\"}}'");
    wait_until("two pods with everything that was changed", super::ROLLOUT, || {
        let deployment = site.kubectl().json("get deployment proxy-server-edge");
        let status = &deployment["status"];
        let newest = status["observedGeneration"] == deployment["metadata"]["generation"];
        let all_new = status["updatedReplicas"] == 2 && status["replicas"] == 2 && status["readyReplicas"] == 2;
        (newest && all_new && deployment.to_string().contains("--proxy-log-level=debug")).then_some(())
    });
    let deployment = site.kubectl().json("get deployment proxy-server-edge");
    assert_eq!(
        deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"], "1Gi",
        "{deployment:#}"
    );
    assert_eq!(deployment["spec"]["replicas"], 2);
}
