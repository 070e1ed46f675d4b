//! The admin pages: metrics, clusters, the whole configuration.

use serde_json::Value;
use underpass_testbed::{Process, wait_until};

use super::super::ROLLOUT;
use super::reader::Reader;
use super::{OAUTH, SERVER_IP, Tenant};

const METRICS: &str = "curl http://localhost:9901/stats/prometheus";
const CLUSTERS: &str = "curl http://localhost:9901/clusters";
const CONFIGURATION: &str = "curl http://localhost:9901/config_dump";
const STATS: &str = "curl http://localhost:9901/stats";
/// Of the same admin pages, for those whose container has no netstat.
const LISTENING: &str = "curl http://localhost:9901/listeners";
const ACTIVE: &str = r#"kubectl exec -n hosted-clusters deployment/proxy-server-mycluster-proxy -c envoy -- sh -c "curl -s localhost:9901/stats | grep cx_active""#;

/// The document's two questions to the configuration, as paths: `jq '.configs[1].dynamic_listeners'` and
/// `jq '.configs[3].dynamic_active_clusters'`. Not every machine has a jq.
const LISTENERS: &str = "/configs/1/dynamic_listeners";
const ACTIVE_CLUSTERS: &str = "/configs/3/dynamic_active_clusters";

/// Envoy numbers the parts of its configuration in another way than the document does: its two questions get no answer, and what they are
/// about stands elsewhere. Nobody but Envoy can change that.
pub(super) fn with_envoy(reader: &Reader<'_>, tenant: &Tenant<'_>) {
    let open = connection(tenant);
    let configuration = pages(reader);
    assert_eq!((configuration.pointer(LISTENERS), configuration.pointer(ACTIVE_CLUSTERS)), (None, None));
    let listeners = configuration.pointer("/configs/2/dynamic_listeners").unwrap().to_string();
    assert!(listeners.contains(&format!("\"server_names\":[\"{OAUTH}\"")), "{listeners}");
    let clusters = configuration.pointer("/configs/1/dynamic_active_clusters").unwrap().to_string();
    assert!(clusters.contains("\"name\":\"mycluster-proxy-oauth-openshift\""), "{clusters}");
    let active = reader.types(ACTIVE);
    assert!(is_active(&active), "{active}");
    drop(open);
    uses_resources(reader);
}

pub(super) fn with_our_own(reader: &Reader<'_>, tenant: &Tenant<'_>) {
    let open = connection(tenant);
    let configuration = pages(reader);
    let listeners = configuration.pointer(LISTENERS).unwrap().to_string();
    assert!(listeners.contains(&format!("\"{OAUTH}\":\"mycluster-proxy-oauth-openshift\"")), "{listeners}");
    let clusters = configuration.pointer(ACTIVE_CLUSTERS).unwrap().to_string();
    assert!(clusters.contains("clusters-mycluster/oauth-openshift:443"), "{clusters}");
    drop(open);
    uses_resources(reader);
    let log = reader.types(super::starting::MANAGER_LOGS);
    for phrase in [
        "Discovered endpoints for service clusters-mycluster/oauth-openshift:443",
        "upstream cluster mycluster-proxy-oauth-openshift: added",
        "listener 0.0.0.0:443: ready",
        "listener 0.0.0.0:6443: ready",
    ] {
        assert!(log.contains(phrase), "{phrase} is missing:\n{log}");
    }
}

/// One that stays open.
fn connection(tenant: &Tenant<'_>) -> Process {
    let mut open = tenant.vm.follow(&format!("https://{OAUTH}:443/stream"), SERVER_IP, &tenant.plane.authority());
    open.wait_for_stdout("a stream", |text| text.lines().nth(1).map(|_| ()));
    open
}

/// Asks for all of them while a connection is open; what `/config_dump` says.
fn pages(reader: &Reader<'_>) -> Value {
    let shown = reader.forwarding(&[METRICS, CLUSTERS, CONFIGURATION, STATS, LISTENING]);
    for (metric, whose) in [
        ("envoy_cluster_upstream_cx_active", "mycluster-proxy-oauth-openshift"),
        ("envoy_cluster_upstream_cx_total", "mycluster-proxy-oauth-openshift"),
        ("envoy_listener_downstream_cx_active", "443"),
        ("envoy_listener_downstream_cx_total", "443"),
    ] {
        let values = shown[0].lines().filter(|line| line.starts_with(&format!("{metric}{{")) && line.contains(whose));
        let some = values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).any(|value| value > 0.0);
        assert!(some, "{metric} of {whose} is missing:\n{}", shown[0]);
    }
    for cluster in ["mycluster-proxy-kube-apiserver-external::", "mycluster-proxy-oauth-openshift::"] {
        assert!(shown[1].contains(cluster) && shown[1].contains("health_flags::healthy"), "{}", shown[1]);
    }
    assert!(is_active(&shown[3]), "{}", shown[3]);
    for address in ["0.0.0.0:443", "0.0.0.0:6443"] {
        assert!(shown[4].lines().any(|line| line.ends_with(address)), "{}", shown[4]);
    }
    serde_json::from_str(&shown[2]).unwrap()
}

/// Whether a page of `name: value` has a connection that is open.
fn is_active(page: &str) -> bool {
    let named =
        page.lines().find_map(|line| line.strip_prefix("cluster.mycluster-proxy-oauth-openshift.upstream_cx_active: "));
    named.is_some_and(|count| count.parse::<u32>().unwrap() > 0)
}

fn uses_resources(reader: &Reader<'_>) {
    reader.lab.metrics();
    let pod = reader.pod();
    wait_until("what the pod uses", ROLLOUT, || {
        let ended = reader.tries("kubectl top pod -n hosted-clusters -l app=proxy-server");
        let line = ended.stdout.lines().find(|line| line.starts_with(&pod))?;
        let figures: Vec<&str> = line.split_whitespace().skip(1).collect();
        (figures.len() == 2 && figures[0].ends_with('m') && figures[1].ends_with("Mi")).then_some(())
    });
}
