//! Two proxies side by side, and the end of one.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use underpass_testbed::{HostedControlPlane, HostedService, Lab, PATIENCE, wait_until};

use super::{Plane, Site, backend};

const KINDS: &str =
    "serviceaccounts,roles,rolebindings,configmaps,services,deployments,poddisruptionbudgets,leases,pods";
/// What a proxy has in any case, and what one has whose configuration is a file, and one of several pods.
const ALWAYS: [&str; 6] = ["serviceaccount", "role", "rolebinding", "service", "deployment", "pod"];
const WITH_ENVOY: [&str; 1] = ["configmap"];
const OF_SEVERAL: [&str; 2] = ["poddisruptionbudget", "lease"];

pub(super) fn takes_everything_along_and_nothing_of_another(lab: &Lab, plane: Plane, replicas: usize, subnet: u8) {
    let site = Site::new(lab, plane, subnet);
    if replicas > 1 {
        // Moving an address takes a capability that the strictest standard does not know.
        site.kubectl().ok(&format!("label namespace {} pod-security.kubernetes.io/enforce-", site.namespace.name));
    }
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
    let edge = |namespaces: &[&underpass_testbed::LabNamespace]| {
        let mut edge = site.proxy("edge", &backends(namespaces));
        edge["spec"]["replicas"] = json!(replicas);
        edge
    };
    site.apply(&edge(&[&one, &other]));
    let mut second = site.proxy("second", &backends(&[&one]));
    second["spec"]["networkConfig"]["serverIP"] = format!("192.168.{subnet}.5").into();
    site.apply(&second);
    site.is_ready("edge");
    site.is_ready("second");
    endpoints_are_apart(&site);
    let bindings =
        |namespace: &underpass_testbed::LabNamespace| namespace.kubectl.ok("get rolebindings -o name").lines().count();
    assert_eq!((bindings(&one), bindings(&other)), (2, 1));
    site.apply(&edge(&[&one]));
    wait_until("no right is left where nothing leads to", PATIENCE, || (bindings(&other) == 0).then_some(()));
    let uid = site.uid("edge");
    assert_eq!(kinds(&made_for(lab, &uid)), expected(plane, replicas));
    site.kubectl().ok("delete proxyserver edge --timeout=110s");
    assert_eq!(made_for(lab, &uid), "");
    assert_eq!(bindings(&one), 1);
    site.is_ready("second");
    site.kubectl().ok("delete proxyserver second --timeout=110s");
}

/// Everything, in all namespaces.
pub(super) fn made_for(lab: &Lab, uid: &str) -> String {
    lab.kubectl().ok(&format!("get {KINDS} -A -l underpass.dev/owner-uid={uid} -o name"))
}

/// Of `deployment.apps/NAME` and the like: every one must have been there to be gone.
pub(super) fn kinds(names: &str) -> BTreeSet<&str> {
    names.lines().filter_map(|name| name.split(['.', '/']).next()).collect()
}

pub(super) fn expected(plane: Plane, replicas: usize) -> BTreeSet<&'static str> {
    let with_envoy = WITH_ENVOY.into_iter().filter(|_| plane != Plane::Native);
    let of_several = OF_SEVERAL.into_iter().filter(|_| replicas > 1);
    ALWAYS.into_iter().chain(with_envoy).chain(of_several).collect()
}

/// Behind a Service are the pods of its own proxy.
fn endpoints_are_apart(site: &Site<'_>) {
    for name in ["edge", "second"] {
        // Of several pods one makes the proxy ready, and the others come after it.
        wait_until(&format!("the pods of {name} behind its Service, and no other"), PATIENCE, || {
            let slices = site.kubectl().json(&format!("get endpointslices -l kubernetes.io/service-name={name}-svc"));
            let behind: BTreeSet<String> = slices["items"][0]["endpoints"]
                .as_array()?
                .iter()
                .map(|endpoint| endpoint["targetRef"]["name"].as_str().unwrap().to_owned())
                .collect();
            let all = site.pod(name);
            (behind == all.split(' ').map(str::to_owned).collect()).then_some(())
        });
    }
}
