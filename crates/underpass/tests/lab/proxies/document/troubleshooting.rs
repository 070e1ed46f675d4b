//! What to look at when something does not work. That the object itself tells most of it is tested elsewhere (`troubles`).

use serde_json::json;
use underpass_testbed::PATIENCE;
use underpass_testbed::wait_until;

use super::reader::Reader;
use super::starting::MANAGER_LOGS;
use super::updating::added;
use super::{ANY, OAUTH, Tenant};

/// Definitions, names, Services, rights: whatever needs no pod's help.
pub(super) fn what_can_be_looked_up(reader: &Reader<'_>) {
    for (command, shown) in [
        ("kubectl get network-attachment-definitions -n hosted-clusters", "tenant-vlan-100"),
        (
            "kubectl get proxyserver mycluster-proxy -o jsonpath='{.spec.networkConfig.networkAttachmentNamespace}'",
            "hosted-clusters",
        ),
        (
            "kubectl get proxyserver mycluster-proxy -o jsonpath='{.spec.backends[*].targetService}'",
            "kube-apiserver oauth-openshift",
        ),
        ("kubectl get service -n clusters-mycluster kube-apiserver", "6443/TCP"),
        ("kubectl get service -n clusters-mycluster oauth-openshift", "443/TCP"),
        (
            r#"kubectl get proxyserver mycluster-proxy -o jsonpath='{range .spec.backends[*]}{.hostname}{"\n"}{end}'"#,
            "api.mycluster.example.com\noauth-openshift.apps.mycluster.example.com\n",
        ),
        // The document's own default of 300 is not that of the API that it describes.
        (
            r#"kubectl get proxyserver mycluster-proxy -o jsonpath='{range .spec.backends[*]}{.name}: {.timeoutSeconds}s{"\n"}{end}'"#,
            "kube-apiserver-external: 300s\noauth-openshift: 30s\n",
        ),
        // No event tells of constraints: nothing here enforces any.
        ("kubectl describe pod <proxy-pod-name> -n hosted-clusters", "Successfully assigned hosted-clusters/"),
        (
            r#"kubectl describe pod <proxy-pod-name> -n hosted-clusters | grep -A5 "Image""#,
            "quay.io/cldmnky/oooi:latest",
        ),
    ] {
        let text = reader.types(command);
        assert!(text.contains(shown), "{command}\nshould show\n{shown}\nbut shows\n{text}");
    }
    network_status(reader);
    rights(reader);
}

/// Five lines reach as far as the address on the network of all pods, which Multus writes first; the one on the VLAN stands below.
fn network_status(reader: &Reader<'_>) {
    let command =
        r#"kubectl get pod <proxy-pod-name> -n hosted-clusters -o yaml | grep -A5 "k8s.v1.cni.cncf.io/network-status""#;
    let text = reader.types(command);
    assert!(text.contains("\"interface\": \"eth0\""), "{text}");
    let text = reader.types(&command.replace("-A5", "-A20"));
    assert!(
        text.contains("\"name\": \"hosted-clusters/tenant-vlan-100\"") && text.contains("\"192.168.100.4\""),
        "{text}"
    );
}

/// The document's pods run under the account `default`, ours under one of their own: that one may, and `default` may not. Endpoints are read
/// as EndpointSlices.
fn rights(reader: &Reader<'_>) {
    let may = |what: &str, account: &str| {
        let ended = reader.tries(&format!(
            "kubectl auth can-i get {what} --as=system:serviceaccount:hosted-clusters:{account} -n clusters-mycluster"
        ));
        ended.stdout.trim().to_owned()
    };
    assert_eq!((may("services", "default"), may("endpoints", "default")), ("no".into(), "no".into()));
    let own = "mycluster-proxy-proxy";
    assert_eq!((may("services", own), may("endpointslices", own)), ("yes".into(), "yes".into()));
}

/// With Envoy's container, which has a shell and its tools.
pub(super) fn inside_the_container(reader: &Reader<'_>) {
    let images = reader.types(r#"kubectl describe pod <proxy-pod-name> -n hosted-clusters | grep -A5 "Image""#);
    assert!(images.contains("envoyproxy/envoy:v1.36.4"), "{images}");
    let ended = reader.tries_with(
        "kubectl exec -it -n hosted-clusters deployment/proxy-server-mycluster-proxy -c envoy -- sh",
        "netstat -tlnp | grep -E \"443|6443\"\n",
    );
    for address in ["0.0.0.0:443", "0.0.0.0:6443"] {
        let listens = |line: &str| line.contains(&format!(" {address} ")) && line.contains("LISTEN");
        assert!(ended.stdout.lines().any(listens), "{ended}");
    }
    let ended = reader.tries(
        r#"kubectl exec -n hosted-clusters deployment/proxy-server-mycluster-proxy -c envoy -- sh -c "nc -zv localhost 18000""#,
    );
    // Newer ones also print the address.
    let told = ended.stderr.replace(" (127.0.0.1)", "");
    assert!(told.contains("Connection to localhost 18000 port [tcp/*] succeeded!"), "{ended}");
}

pub(super) fn from_the_vlan_without_a_name(tenant: &Tenant<'_>) {
    let ended = tenant.vm.run("curl -vk https://192.168.100.4:443");
    assert!(ended.code == Some(35) && ended.stderr.contains("TLS"), "{ended}");
}

pub(super) fn from_the_vlan_by_name(reader: &Reader<'_>, tenant: &Tenant<'_>) {
    let answer = tenant.vm.run("curl -vk --resolve api.cluster.com:443:192.168.100.4 https://api.cluster.com:443").ok();
    assert!(answer.starts_with(&tenant.plane.name_of("any")), "{answer}");
    let shown =
        tenant.vm.run("openssl s_client -connect 192.168.100.4:443 -servername api.cluster.com </dev/null").ok();
    assert!(shown.contains("CN = any.clusters-mycluster") || shown.contains("CN=any.clusters-mycluster"), "{shown}");
    let names = reader.types(
        r#"kubectl get proxyserver mycluster-proxy -o jsonpath='{range .spec.backends[*]}{.hostname}{"\n"}{end}'"#,
    );
    assert!(names.lines().any(|name| name == ANY), "{names}");
}

/// A Service that is not there, and a name that another backend has.
pub(super) fn wrong_backends_are_told(reader: &Reader<'_>) {
    let missing = json!({
        "name": "missing", "hostname": "missing.example.com", "port": 443,
        "targetService": "missing", "targetPort": 443, "targetNamespace": "clusters-mycluster",
    });
    let mut second = missing.clone();
    second["name"] = json!("second");
    second["hostname"] = json!("second.example.com");
    second["alternateHostnames"] = json!([OAUTH]);
    reader.edits(
        "kubectl edit proxyserver mycluster-proxy -n hosted-clusters",
        &json!([added(&missing), added(&second)]),
    );
    reader.looks_for(
        &format!("{MANAGER_LOGS} --tail=100"),
        &["failed to discover endpoints", "service not found: clusters-mycluster/missing", "invalid configuration"],
    );
    wait_until("the object says so too", PATIENCE, || {
        let resolved = super::starting::condition(reader, "BackendsResolved")?;
        (resolved["reason"] == "ServiceNotFound").then_some(())
    });
}
