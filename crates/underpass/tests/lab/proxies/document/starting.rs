//! The manifest, the first method of deployment, and what one sees when it runs.

use serde_json::{Value, json};

use super::super::ROLLOUT;
use super::METHOD_1;
use super::reader::Reader;
use underpass_testbed::wait_until;

const STATUS: &str = "kubectl get proxyserver mycluster-proxy -n hosted-clusters -o yaml";
pub(super) const MANAGER_LOGS: &str =
    "kubectl logs -n hosted-clusters deployment/proxy-server-mycluster-proxy -c manager";
pub(super) const ENVOY_LOGS: &str = "kubectl logs -n hosted-clusters deployment/proxy-server-mycluster-proxy -c envoy";

pub(super) fn with_method_1(reader: &Reader<'_>) {
    let told = reader.types(METHOD_1);
    assert!(told.contains("networkattachmentdefinition.k8s.cni.cncf.io/tenant-vlan-100 created"), "{told}");
    assert!(told.contains("proxyserver.hostedcluster.densityops.com/mycluster-proxy created"), "{told}");
    is_up(reader, "2/2");
}

/// Waits until it is, and looks at it as the document does.
#[track_caller]
pub(super) fn is_up(reader: &Reader<'_>, containers: &str) {
    wait_until("a proxy that is ready", ROLLOUT, || {
        condition(reader, "Ready").filter(|ready| ready["status"] == "True")
    });
    let proxies = reader.types("kubectl get proxyservers -n hosted-clusters");
    let lines: Vec<Vec<&str>> = proxies.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "SERVERIP", "PORT", "BACKENDS", "READY", "AGE"], "{proxies}");
    assert_eq!(lines[1][..5], ["mycluster-proxy", "192.168.100.4", "443", "2", "True"], "{proxies}");
    let pods = reader.types("kubectl get pods -n hosted-clusters -l app=proxy-server");
    let pod: Vec<&str> = pods.lines().nth(1).unwrap().split_whitespace().collect();
    assert!(pod[0].starts_with("proxy-server-mycluster-proxy-"), "{pods}");
    assert_eq!(pod[1..4], [containers, "Running", "0"], "{pods}");
}

/// Conditions and logs.
///
/// Envoy itself prints none of the three phrases that the document has people look for in its log. Clusters that are added and listeners
/// that are ready are told in these words by the manager; that a connection to a backend was established is told at its end, by the
/// line that each connection leaves in Envoy's log.
pub(super) fn says_so(reader: &Reader<'_>) {
    says(reader, "Envoy configuration applied successfully");
    reader.looks_for(
        MANAGER_LOGS,
        &[
            "Discovered endpoints for service clusters-mycluster/kube-apiserver:6443",
            "Discovered endpoints for service clusters-mycluster/oauth-openshift:443",
            "Generated Envoy configuration",
            "xDS snapshot pushed to Envoy",
            "upstream cluster mycluster-proxy-oauth-openshift: added",
            "listener 0.0.0.0:443: ready",
            "listener 0.0.0.0:6443: ready",
        ],
    );
    let recent = reader.types(&format!("{MANAGER_LOGS} --tail=50"));
    assert!(recent.contains("xDS server listening on :18000"), "{recent}");
    let theirs = reader.looks_for(
        ENVOY_LOGS,
        &["added/updated 2 cluster(s)", "add/update listener 'mycluster-proxy-listener-443'", "starting workers"],
    );
    for phrase in ["upstream cluster mycluster", "listener 0.0.0.0:443: ready", "connection to backend"] {
        assert!(!theirs.contains(phrase), "Envoy says it by itself now: {theirs}");
    }
}

/// Both conditions that the document shows, in its words but for what is said of the configuration.
#[track_caller]
pub(super) fn says(reader: &Reader<'_>, configuration: &str) {
    let expected = [
        json!({ "type": "Ready", "status": "True", "reason": "DeploymentReady", "message": "Proxy deployment is ready" }),
        json!({ "type": "ConfigurationValid", "status": "True", "reason": "ConfigApplied", "message": configuration }),
    ];
    wait_until("both conditions", ROLLOUT, || {
        let object: Value = serde_saphyr::from_str(&reader.types(STATUS)).unwrap();
        let conditions = object["status"]["conditions"].as_array()?;
        let is_said = |expected: &Value| conditions.iter().any(|found| is_part(expected, found));
        expected.iter().all(is_said).then_some(())
    });
}

fn is_part(expected: &Value, found: &Value) -> bool {
    expected.as_object().unwrap().iter().all(|(name, value)| found[name] == *value)
}

pub(super) fn condition(reader: &Reader<'_>, kind: &str) -> Option<Value> {
    let object = reader.json("get proxyserver mycluster-proxy");
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind).cloned()
}
