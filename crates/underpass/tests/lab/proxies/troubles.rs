//! What the documents tell people to look for is said on the object by itself.

use serde_json::json;
use underpass_testbed::{HostedControlPlane, HostedService, Lab};

use super::{Plane, Site, backend};

pub(super) fn are_told_on_the_object(lab: &Lab) {
    let site = Site::new(lab, Plane::Native, 116);
    let target = lab.namespace("target");
    let hosted =
        HostedControlPlane::start(lab, &target, &[HostedService::tls("kube-apiserver", 6443, &["api.example.com"])]);
    let mut backends = vec![
        backend("api", "api.example.com", 6443, "kube-apiserver", &target),
        backend("oauth", "oauth.example.com", 443, "oauth-openshift", &target),
    ];
    let mut proxy = site.proxy("edge", &backends);
    proxy["spec"]["networkConfig"]["networkAttachmentName"] = json!("tenant-vlan-200");
    site.apply(&proxy);
    let message = site.becomes("edge", "NetworkReady", "False", "NADNotFound");
    assert!(message.contains("tenant-vlan-200"), "{message}");
    assert_eq!(site.kubectl().ok("get deployments -o name"), "", "no pod is started without its network");
    site.make_network("tenant-vlan-200");
    site.is_ready("edge");
    let message = site.becomes("edge", "BackendsResolved", "False", "ServiceNotFound");
    assert!(message.contains("backend oauth") && message.contains("oauth-openshift"), "{message}");
    site.becomes("edge", "Degraded", "True", "BackendsUnavailable");
    hosted.serve(&[HostedService::tls("oauth-openshift", 6443, &["oauth.example.com"])]);
    site.becomes("edge", "BackendsResolved", "True", "AllResolved");
    target.kubectl.ok("scale deployment oauth-openshift --replicas=0");
    site.becomes("edge", "BackendsResolved", "False", "NoEndpoints");
    backends.truncate(1);
    an_image_that_is_not_there(&site, &backends);
    let events = site.kubectl().ok("get events --field-selector involvedObject.kind=ProxyServer");
    for reason in ["NADNotFound", "ServiceNotFound", "NoEndpoints", "ImagePullFailed", "DeploymentReady"] {
        assert!(events.contains(reason), "{reason} is missing:\n{events}");
    }
}

fn an_image_that_is_not_there(site: &Site<'_>, backends: &[serde_json::Value]) {
    let mut proxy = site.proxy("edge", backends);
    proxy["spec"]["managerImage"] = json!("lab.local/nowhere:1");
    site.apply(&proxy);
    let message = site.becomes("edge", "Degraded", "True", "ImagePullFailed");
    assert!(message.contains("lab.local/nowhere:1"), "{message}");
    site.becomes("edge", "Ready", "False", "ImagePullFailed");
}
