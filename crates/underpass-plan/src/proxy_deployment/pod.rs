//! The pod of a proxy: who runs in it, as whom, and what they may see.
//!
//! Nobody is root, but for who moves an address between replicas, and nobody gets privileges. Ports below 1024 are opened by a setting of the pod's own network, which Kubernetes counts
//! among the safe ones: a capability alone would not reach a process that is not root. Only the manager has a token of the API server.

use serde_json::{Value, json};
use underpass_resources::ProxyServer;
use underpass_resources::compute::Resources;
use underpass_resources::proxy_server::{ADMIN_PORT, DataPlane, MANAGER_PORT, METRICS_PORT};

use super::network::{FLOATING, Joined, NETWORKS, Network};
use super::{Observed, changes, objects, place};
use crate::made::OWNER_ANNOTATION;
use crate::proxy_server::key;

/// The user that our image names, which exists nowhere else.
const USER: u32 = 65532;
/// The container that takes serverIP when it is the pod's turn.
pub(super) const ADDRESS: &str = "address";
const TOKEN_FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// What Multus calls the first network that a pod joins beside that of all pods.
const INTERFACE: &str = "net1";
/// Its pages answer once the API server has told it what to carry. To start it anew while that is away helps nobody: an hour later, at the earliest.
const START_SECONDS: u32 = 3600;
/// Beyond the time that connections have to end, for everything else that an end takes.
const GRACE: u32 = 15;

pub(super) fn template(observed: &Observed, network: &Network, bootstrap: Option<&str>) -> Value {
    let proxy = &observed.object;
    let (namespace, name) = key(&proxy.metadata);
    let mut annotations = json!({
        OWNER_ANNOTATION: format!("{namespace}/{name}"),
        "kubectl.kubernetes.io/default-container": carrier(proxy),
        "prometheus.io/scrape": "true",
        "prometheus.io/port": METRICS_PORT.to_string(),
        "prometheus.io/path": "/stats/prometheus",
    });
    if let Some(bootstrap) = bootstrap {
        annotations["underpass.dev/bootstrap"] = json!(objects::fingerprint(bootstrap));
    }
    if let Network::Joined(joined) = network {
        annotations[NETWORKS] = json!(joined.annotation());
    }
    json!({
        "metadata": { "labels": objects::labels(proxy), "annotations": annotations },
        "spec": pod(observed, network),
    })
}

/// The account under which the pods run.
pub(super) fn account(proxy: &ProxyServer) -> String {
    proxy.spec.service_account_name.as_ref().map_or_else(|| place::account(proxy).name, ToString::to_string)
}

/// Whether serverIP goes from pod to pod, which takes somebody in them who may do that. Of a network that cannot be joined now, there may
/// still be pods.
pub(super) fn moves_an_address(observed: &Observed, network: &Network) -> bool {
    changes::replicas(observed) > 1 && !matches!(network, Network::Pods)
}

/// The container that carries the traffic.
fn carrier(proxy: &ProxyServer) -> &'static str {
    match proxy.spec.data_plane {
        DataPlane::Envoy => "envoy",
        DataPlane::Native => "manager",
    }
}

fn pod(observed: &Observed, network: &Network) -> Value {
    let proxy = &observed.object;
    let mut spec = json!({
        "serviceAccountName": account(proxy),
        // The manager alone gets a token, by a volume of its own.
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": proxy.spec.drain_seconds + GRACE,
        "securityContext": security(observed, network),
        "affinity": apart(proxy),
        "containers": containers(observed, network),
        "volumes": volumes(proxy),
    });
    let resolvers = &proxy.spec.network_config.dns;
    if !resolvers.is_empty() {
        spec["dnsPolicy"] = json!("None");
        spec["dnsConfig"] = json!({ "nameservers": resolvers });
    }
    spec
}

fn security(observed: &Observed, network: &Network) -> Value {
    let mut context = json!({
        "runAsNonRoot": true,
        "seccompProfile": { "type": "RuntimeDefault" },
        "sysctls": [{ "name": "net.ipv4.ip_unprivileged_port_start", "value": "0" }],
    });
    // OpenShift gives every namespace users of its own and refuses others; but where one has to be root, it chooses none for the others.
    if !observed.site.openshift || moves_an_address(observed, network) {
        context["runAsUser"] = json!(USER);
        context["runAsGroup"] = json!(USER);
    }
    context
}

fn apart(proxy: &ProxyServer) -> Value {
    json!({ "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 100,
        "podAffinityTerm": {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": { "matchLabels": objects::selector(proxy) },
        },
    }]}})
}

fn containers(observed: &Observed, network: &Network) -> Vec<Value> {
    let proxy = &observed.object;
    let mut containers = match proxy.spec.data_plane {
        DataPlane::Envoy => vec![envoy(proxy), manager(observed)],
        DataPlane::Native => vec![native(observed)],
    };
    if let Network::Joined(joined) = network
        && joined.floats
    {
        containers.push(address(observed, joined));
    }
    containers
}

/// Who takes serverIP when it is this pod's turn. It changes addresses of the pod's own network, which takes a capability and, since nothing
/// hands capabilities to other users, root; it has no other, and can gain none.
fn address(observed: &Observed, joined: &Joined) -> Value {
    let proxy = &observed.object;
    let (namespace, _) = key(&proxy.metadata);
    let mut args = vec![
        "floating-address".to_owned(),
        format!("{FLOATING}{}", joined.address_with_prefix()),
        format!("--interface={INTERFACE}"),
        format!("--namespace={namespace}"),
        format!("--lease={}", place::lease(proxy).name),
        format!("--ready=http://127.0.0.1:{ADMIN_PORT}/ready"),
    ];
    args.extend(joined.gateway.as_ref().map(|gateway| format!("--gateway={gateway}")));
    json!({
        "name": ADDRESS,
        "image": our_image(observed),
        "imagePullPolicy": "IfNotPresent",
        "args": args,
        "env": [field("POD_NAME", "metadata.name")],
        "resources": { "requests": { "cpu": "10m", "memory": "32Mi" }, "limits": { "cpu": "250m", "memory": "128Mi" } },
        "securityContext": {
            "runAsNonRoot": false,
            "runAsUser": 0,
            "allowPrivilegeEscalation": false,
            "capabilities": { "drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"] },
            "readOnlyRootFilesystem": true,
        },
        "volumeMounts": [{ "name": "api-access", "mountPath": TOKEN_FOLDER, "readOnly": true }],
    })
}

fn our_image(observed: &Observed) -> &str {
    observed.object.spec.manager_image.as_ref().map_or(observed.site.image.as_str(), |image| image)
}

fn field(name: &str, path: &str) -> Value {
    json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } })
}

fn envoy(proxy: &ProxyServer) -> Value {
    let spec = &proxy.spec;
    json!({
        "name": "envoy",
        "image": spec.proxy_image,
        "imagePullPolicy": "IfNotPresent",
        // Not by the image's entry point, which changes the owner of files that may not be changed.
        "command": ["/usr/local/bin/envoy"],
        "args": [
            "-c", "/etc/envoy/bootstrap.json", "-l", spec.log_level.as_str(),
            "--disable-hot-restart", "--drain-time-s", spec.drain_seconds.max(1).to_string(),
        ],
        "ports": [port("proxy", spec.port), port("metrics", METRICS_PORT)],
        "readinessProbe": asked("/ready", METRICS_PORT, 2, 3),
        "resources": resources(spec.resources.as_ref(), ["100m", "256Mi", "500m", "512Mi"]),
        "securityContext": confined(),
        "volumeMounts": [
            { "name": "bootstrap-config", "mountPath": "/etc/envoy", "readOnly": true },
            { "name": "tmp", "mountPath": "/tmp" },
        ],
    })
}

fn manager(observed: &Observed) -> Value {
    let spec = &observed.object.spec;
    let mut container = ours(observed);
    container["args"].as_array_mut().expect("made above").push(json!(format!("--xds-port={}", spec.xds_port)));
    container["ports"] = json!([port("pages", MANAGER_PORT)]);
    container["startupProbe"] = asked("/healthz", MANAGER_PORT, 1, START_SECONDS);
    container["livenessProbe"] = asked("/healthz", MANAGER_PORT, 10, 3);
    container["readinessProbe"] = asked("/readyz", MANAGER_PORT, 2, 3);
    container["resources"] = resources(spec.manager_resources.as_ref(), ["50m", "128Mi", "250m", "256Mi"]);
    container
}

fn native(observed: &Observed) -> Value {
    let spec = &observed.object.spec;
    let mut container = ours(observed);
    container["ports"] = json!([port("proxy", spec.port), port("metrics", METRICS_PORT)]);
    container["startupProbe"] = asked("/healthz", METRICS_PORT, 1, START_SECONDS);
    container["livenessProbe"] = asked("/healthz", METRICS_PORT, 10, 3);
    container["readinessProbe"] = asked("/ready", METRICS_PORT, 2, 3);
    container["resources"] = resources(spec.resources.as_ref(), ["100m", "256Mi", "500m", "512Mi"]);
    container
}

/// Our own program, which is told by the cluster and tells it what came of it.
fn ours(observed: &Observed) -> Value {
    let proxy = &observed.object;
    let (namespace, name) = key(&proxy.metadata);
    json!({
        "name": "manager",
        "image": our_image(observed),
        "imagePullPolicy": "IfNotPresent",
        "args": [
            "proxy",
            format!("--namespace={namespace}"),
            format!("--proxy-name={name}"),
            format!("--proxy-log-level={}", proxy.spec.log_level.as_str()),
            "--pod=$(POD_NAME)",
            "--pod-ip=$(POD_IP)",
        ],
        "env": [field("POD_NAME", "metadata.name"), field("POD_IP", "status.podIP")],
        "securityContext": confined(),
        "volumeMounts": [{ "name": "api-access", "mountPath": TOKEN_FOLDER, "readOnly": true }],
    })
}

fn confined() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": { "drop": ["ALL"], "add": ["NET_BIND_SERVICE"] },
        "readOnlyRootFilesystem": true,
    })
}

fn port(name: &str, number: u16) -> Value {
    json!({ "name": name, "containerPort": number, "protocol": "TCP" })
}

fn asked(path: &str, port: u16, period: u32, failures: u32) -> Value {
    json!({
        "httpGet": { "path": path, "port": port },
        "periodSeconds": period,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    })
}

/// As asked for, or these: from how much processor and memory to how much.
fn resources(asked: Option<&Resources>, usual: [&str; 4]) -> Value {
    match asked {
        Some(asked) => json!(asked.to_requirements()),
        None => json!({
            "requests": { "cpu": usual[0], "memory": usual[1] },
            "limits": { "cpu": usual[2], "memory": usual[3] },
        }),
    }
}

fn volumes(proxy: &ProxyServer) -> Value {
    let access = json!({ "name": "api-access", "projected": { "sources": [
        { "serviceAccountToken": { "path": "token", "expirationSeconds": 3607 } },
        { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
        { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": { "fieldPath": "metadata.namespace" } }] } },
    ]}});
    match proxy.spec.data_plane {
        DataPlane::Native => json!([access]),
        DataPlane::Envoy => json!([
            access,
            { "name": "bootstrap-config", "configMap": { "name": place::config_map(proxy).name } },
            { "name": "tmp", "emptyDir": { "sizeLimit": "64Mi" } },
        ]),
    }
}
