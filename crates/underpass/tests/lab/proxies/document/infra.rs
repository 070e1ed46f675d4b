//! The second method of deployment: one Infra, of which a proxy is made that leads to all that a hosted control plane publishes.

use serde_json::Value;
use underpass_testbed::{HostedControlPlane, HostedService, wait_until};

use super::super::ROLLOUT;
use super::reader::Reader;
use super::{SERVER_IP, Tenant};

const INFRA: &str = include_str!("infra.yaml");
const APPLY: &str = "kubectl apply -f config/samples/hostedcluster_v1alpha1_infra.yaml";
/// Where the control plane is of an Infra that does not say it: NAMESPACE-NAME.
const CONTROL_PLANE: &str = "hosted-clusters-mycluster-infra";

const API: &str = "api.mycluster.example.com";
const INTERNAL: &str = "api-int.mycluster.example.com";
const OAUTH: &str = "oauth.mycluster.example.com";
const OAUTH_OF_APPS: &str = "oauth-openshift.apps.mycluster.example.com";
const IGNITION: &str = "ignition.mycluster.example.com";
const IGNITION_SERVER: &str = "ignition-server.mycluster.example.com";
const KONNECTIVITY: &str = "konnectivity-server.mycluster.example.com";
const IN_CLUSTER: &str = "kubernetes.default.svc";

pub(super) fn with_method_2(reader: &Reader<'_>) {
    let namespace = reader.lab.namespace_called(CONTROL_PLANE);
    let plane = HostedControlPlane::start(reader.lab, &namespace, &services());
    let tenant = Tenant { vm: reader.lab.machine("192.168.100.51/24"), plane };
    reader.keeps("hostedcluster_v1alpha1_infra.yaml", INFRA);
    assert_eq!(reader.types(APPLY), "infra.hostedcluster.densityops.com/mycluster-infra created\n");
    let message = becomes(reader, "False", "NotInThisVersion");
    assert!(message.starts_with("the proxy works; "), "{message}");
    let ready = reader.types("kubectl get infra mycluster-infra -o jsonpath='{.status.componentStatus}'");
    assert_eq!(ready, r#"{"dhcpReady":false,"dnsReady":false,"proxyReady":true}"#);
    leads_to_all(&tenant);
    is_changed(reader, &tenant);
    goes(reader);
}

fn services() -> Vec<HostedService<'static>> {
    vec![
        HostedService::tls("kube-apiserver", 6443, &[API, INTERNAL, IN_CLUSTER]),
        HostedService::tls("oauth-openshift", 6443, &[OAUTH, OAUTH_OF_APPS]),
        HostedService::tls("ignition-server-proxy", 443, &[IGNITION, IGNITION_SERVER]),
        HostedService::tls("konnectivity-server", 8091, &[KONNECTIVITY]),
    ]
}

fn leads_to_all(tenant: &Tenant<'_>) {
    let expected = [
        (API, 6443, "kube-apiserver"),
        (INTERNAL, 6443, "kube-apiserver"),
        (API, 443, "kube-apiserver"),
        (IN_CLUSTER, 443, "kube-apiserver"),
        (OAUTH, 443, "oauth-openshift"),
        (OAUTH_OF_APPS, 443, "oauth-openshift"),
        (IGNITION, 443, "ignition-server-proxy"),
        (IGNITION_SERVER, 443, "ignition-server-proxy"),
        (KONNECTIVITY, 443, "konnectivity-server"),
    ];
    tenant.reaches(SERVER_IP, &expected);
    for port in [443, 6443] {
        let by_address = tenant.vm.run(&format!("curl -sk --max-time 10 https://{SERVER_IP}:{port}/")).ok();
        assert!(by_address.starts_with(&tenant.plane.name_of("kube-apiserver")), "{port}: {by_address}");
        assert_eq!(tenant.who("console.mycluster.example.com", port), None, "a name that nobody has");
    }
}

/// What is not wanted any more is not waited for, and one more port is served by the pod that there is.
fn is_changed(reader: &Reader<'_>, tenant: &Tenant<'_>) {
    let pods = || reader.types("kubectl get pods -l app=proxy-server -o jsonpath='{.items[*].metadata.uid}'");
    let pod = pods();
    reader.types(
        "kubectl patch infra mycluster-infra --type=merge -p \
         '{\"spec\": {\"infraComponents\": {\"dhcp\": {\"enabled\": false}, \"dns\": {\"enabled\": false}, \
         \"proxy\": {\"ignitionPorts\": [443, 22623]}}}}'",
    );
    assert_eq!(becomes(reader, "True", "ComponentsReady"), "the proxy works");
    tenant.reaches(SERVER_IP, &[(IGNITION, 22623, "ignition-server-proxy"), (IGNITION, 443, "ignition-server-proxy")]);
    assert_eq!(pods(), pod, "no pod was started for that");
}

/// First the proxy alone, by a word of the Infra; then all of it.
fn goes(reader: &Reader<'_>) {
    let says_proxy = |enabled: bool| {
        reader.types(&format!(
            "kubectl patch infra mycluster-infra --type=merge -p '{{\"spec\": {{\"infraComponents\": {{\"proxy\": {{\"enabled\": {enabled}}}}}}}}}'"
        ));
    };
    let left = || {
        reader.types(&format!("kubectl get proxyservers,deployments,pods,services -o name; kubectl get rolebindings -n {CONTROL_PLANE} -o name"))
    };
    says_proxy(false);
    becomes(reader, "True", "NothingWanted");
    wait_until("nothing of a proxy that is disabled", ROLLOUT, || left().is_empty().then_some(()));
    says_proxy(true);
    becomes(reader, "True", "ComponentsReady");
    reader.types("kubectl delete infra mycluster-infra --timeout=110s");
    wait_until("nothing of an Infra that is deleted", ROLLOUT, || left().is_empty().then_some(()));
}

/// Waits for that condition Ready about what the Infra says now. Its message.
#[track_caller]
fn becomes(reader: &Reader<'_>, status: &str, reason: &str) -> String {
    wait_until(&format!("an Infra with Ready={status} {reason}"), ROLLOUT, || {
        let infra: Value = reader.json("get infra mycluster-infra");
        let ready = &infra["status"]["conditions"][0];
        let is_new = ready["observedGeneration"] == infra["metadata"]["generation"];
        (is_new && ready["status"] == status && ready["reason"] == reason)
            .then(|| ready["message"].as_str().unwrap_or_default().to_owned())
    })
}
