//! What people change on what was made for a proxy.

use serde_json::json;
use underpass_testbed::{HostedControlPlane, HostedService, Lab, wait_until};

use super::{Plane, Site, backend};

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
