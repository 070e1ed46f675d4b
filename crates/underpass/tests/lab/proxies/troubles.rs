//! What the documents tell people to look for is said on the object by itself.

use serde_json::{Value, json};
use underpass_testbed::{HostedControlPlane, HostedService, Lab, wait_until};

use super::{Plane, ROLLOUT, Site, backend};

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
    // One that promises to take addresses and has nobody who gives any.
    site.make_network_with("tenant-vlan-200", &json!({ "capabilities": { "ips": true } }));
    let message = site.becomes("edge", "NetworkReady", "False", "IPMismatch");
    assert!(message.contains(&site.server_ip()), "{message}");
    site.becomes("edge", "Ready", "False", "IPMismatch");
    site.make_network("tenant-vlan-200");
    site.kubectl().ok(&format!("delete pod {} --wait=false", site.pod("edge")));
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

fn an_image_that_is_not_there(site: &Site<'_>, backends: &[Value]) {
    let mut proxy = site.proxy("edge", backends);
    proxy["spec"]["managerImage"] = json!("lab.local/nowhere:1");
    site.apply(&proxy);
    let message = site.becomes("edge", "Degraded", "True", "ImagePullFailed");
    assert!(message.contains("lab.local/nowhere:1"), "{message}");
    site.becomes("edge", "Ready", "False", "ImagePullFailed");
}

/// Two proxies ask for one address: one has it, and the other follows when that has gone.
pub(super) fn an_address_of_another_proxy_is_told(lab: &Lab) {
    let site = Site::new(lab, Plane::Native, 129);
    let target = lab.namespace("target");
    let hosted =
        HostedControlPlane::start(lab, &target, &[HostedService::tls("kube-apiserver", 6443, &["api.example.com"])]);
    let backends = [backend("api", "api.example.com", 6443, "kube-apiserver", &target)];
    site.apply(&site.proxy("edge", &backends));
    site.is_ready("edge");
    site.apply(&site.proxy("twin", &backends));
    let message = site.becomes("twin", "NetworkReady", "False", "IPConflict");
    assert!(message.contains(&format!("ProxyServer {}/edge", site.namespace.name)), "{message}");
    assert_eq!(site.kubectl().ok("get deployments -o name").trim_end(), "deployment.apps/proxy-server-edge");
    site.is_ready("edge");
    site.kubectl().ok("delete proxyserver edge --timeout=110s");
    site.is_ready("twin");
    let vm = lab.machine("192.168.129.50/24");
    let fetched = vm.fetch("https://api.example.com:6443/", &site.server_ip(), &hosted.authority());
    assert_eq!(fetched.code, Some(0), "{fetched}");
}

/// Who refuses them, and in which words, stands on the object: the cluster's own standards, and what an OpenShift says of its constraints.
pub(super) fn pods_that_are_refused_are_told(lab: &Lab) {
    let site = Site::new(lab, Plane::Native, 131);
    let mut proxy = site.proxy(
        "edge",
        &[json!({
            "name": "api", "hostname": "api.example.com", "port": 6443,
            "targetService": "kubernetes", "targetPort": 443, "targetNamespace": "default",
        })],
    );
    // To move an address takes more than the namespace allows.
    proxy["spec"]["replicas"] = json!(2);
    site.apply(&proxy);
    let message = site.becomes("edge", "Degraded", "True", "PodsRefused");
    assert!(message.contains("violates PodSecurity") && message.contains("NET_ADMIN"), "{message}");
    proxy["spec"]["replicas"] = json!(1);
    site.apply(&proxy);
    site.is_ready("edge");
    let policy = denying_all_pods(&site);
    wait_until("SCCDenied of edge", ROLLOUT, || {
        site.kubectl().ok("delete pods -l app=proxy-server --wait=false");
        site.condition("edge", "Degraded").filter(|(status, reason, _)| status == "True" && reason == "SCCDenied")
    });
    site.becomes("edge", "Ready", "False", "SCCDenied");
    site.kubectl().ok(&format!("delete validatingadmissionpolicy,validatingadmissionpolicybinding {policy}"));
}

/// As an OpenShift does that has no constraint for them; nothing else here enforces any. The name of both objects that do so.
fn denying_all_pods(site: &Site<'_>) -> String {
    let name = format!("no-constraint-{}", site.namespace.name);
    let kind = |kind: &str, spec: Value| {
        let api = "admissionregistration.k8s.io/v1";
        json!({ "apiVersion": api, "kind": kind, "metadata": { "name": name }, "spec": spec })
    };
    let pods = json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] });
    let denies =
        json!({ "expression": "false", "message": "unable to validate against any security context constraint" });
    site.apply(&kind(
        "ValidatingAdmissionPolicy",
        json!({ "matchConstraints": { "resourceRules": [pods] }, "validations": [denies] }),
    ));
    let here =
        json!({ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": site.namespace.name } } });
    site.apply(&kind(
        "ValidatingAdmissionPolicyBinding",
        json!({ "policyName": name, "validationActions": ["Deny"], "matchResources": here }),
    ));
    name
}

/// An account that was there before gets none of our rights, and nothing is started.
pub(super) fn what_others_have_is_not_used(lab: &Lab) {
    let site = Site::new(lab, Plane::Native, 130);
    let target = lab.namespace("target");
    site.kubectl().ok("create serviceaccount edge-proxy");
    site.apply(&site.proxy("edge", &[backend("api", "api.example.com", 6443, "kube-apiserver", &target)]));
    let message = site.becomes("edge", "Ready", "False", "NameTaken");
    assert!(message.contains("ServiceAccount") && message.contains("edge-proxy"), "{message}");
    assert_eq!(site.kubectl().ok("get deployments,roles,rolebindings -o name"), "");
    assert_eq!(target.kubectl.ok("get rolebindings -o name"), "");
    site.kubectl().ok("delete serviceaccount edge-proxy");
    site.becomes("edge", "NetworkReady", "True", "Attached");
}
