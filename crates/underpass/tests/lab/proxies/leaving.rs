//! Two proxies side by side, and the end of one.

use serde_json::Value;
use underpass_testbed::{HostedControlPlane, HostedService, Lab, PATIENCE, wait_until};

use super::{Plane, Site, backend};

const KINDS: &str =
    "serviceaccounts,roles,rolebindings,configmaps,services,deployments,poddisruptionbudgets,leases,pods";

pub(super) fn takes_everything_along_and_nothing_of_another(lab: &Lab) {
    let site = Site::new(lab, Plane::Native, 117);
    let (one, other) = (lab.namespace("one"), lab.namespace("other"));
    let api = HostedService::tls("kube-apiserver", 6443, &["api.example.com"]);
    let _one = HostedControlPlane::start(lab, &one, std::slice::from_ref(&api));
    let _other = HostedControlPlane::start(lab, &other, &[api]);
    let backends = |namespaces: &[&underpass_testbed::LabNamespace]| -> Vec<Value> {
        let entry = |(number, namespace): (usize, &&underpass_testbed::LabNamespace)| {
            backend(&format!("api-{number}"), &format!("api-{number}.example.com"), 6443, "kube-apiserver", namespace)
        };
        namespaces.iter().enumerate().map(entry).collect()
    };
    site.apply(&site.proxy("edge", &backends(&[&one, &other])));
    let mut second = site.proxy("second", &backends(&[&one]));
    second["spec"]["networkConfig"]["serverIP"] = "192.168.117.5".into();
    site.apply(&second);
    site.is_ready("edge");
    site.is_ready("second");
    endpoints_are_apart(&site);
    let bindings =
        |namespace: &underpass_testbed::LabNamespace| namespace.kubectl.ok("get rolebindings -o name").lines().count();
    assert_eq!((bindings(&one), bindings(&other)), (2, 1));
    site.apply(&site.proxy("edge", &backends(&[&one])));
    wait_until("no right is left where nothing leads to", PATIENCE, || (bindings(&other) == 0).then_some(()));
    let uid = site.kubectl().ok("get proxyserver edge -o jsonpath={.metadata.uid}");
    site.kubectl().ok("delete proxyserver edge --timeout=110s");
    let left = lab.kubectl().ok(&format!("get {KINDS} -A -l underpass.dev/owner-uid={uid} -o name"));
    assert_eq!(left, "");
    assert_eq!(bindings(&one), 1);
    site.is_ready("second");
    site.kubectl().ok("delete proxyserver second --timeout=110s");
}

/// Behind a Service are the pods of its own proxy.
fn endpoints_are_apart(site: &Site<'_>) {
    for name in ["edge", "second"] {
        let slices = site.kubectl().json(&format!("get endpointslices -l kubernetes.io/service-name={name}-svc"));
        let pods: Vec<&str> = slices["items"][0]["endpoints"]
            .as_array()
            .unwrap()
            .iter()
            .map(|endpoint| endpoint["targetRef"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(pods, [site.pod(name)]);
    }
}
