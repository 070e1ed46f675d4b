//! The proxy of a hosted cluster: which names of it lead to which Service of its control plane.

use serde_json::{Value, json};
use underpass_resources::infra::InfraProxy;
use underpass_resources::name::Label;
use underpass_resources::{Infra, LONGEST_NAME};

use crate::place::{ObjectKind, Place, bounded, kind};
use crate::proxy_server::key;

const PROXY_SERVER: ObjectKind = kind("hostedcluster.densityops.com/v1alpha1", "ProxyServer", "proxyservers");

/// Where machines look for the API server, unless it is published by a Route.
const API_PORT: u16 = 6443;
/// Where they look for everything else.
const TLS_PORT: u16 = 443;
/// What machines call their own API server by, as pods do in every cluster.
const IN_CLUSTER: [&str; 4] =
    ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];

pub(super) fn place(infra: &Infra) -> Place {
    let (namespace, name) = key(&infra.metadata);
    Place { kind: PROXY_SERVER, namespace: namespace.to_owned(), name: bounded(&format!("{name}-proxy"), LONGEST_NAME) }
}

/// The spec of the ProxyServer; `None` when none is wanted, or when the Infra does not say how the cluster is called or where its Services are.
/// Fields that the Infra has
/// no word about are left to whoever wants to set them.
pub(super) fn wanted(infra: &Infra) -> Option<Value> {
    let (network, proxy, domain) = (&infra.spec.network_config, infra.spec.proxy()?, infra.spec.domain()?);
    let (address, (_, prefix)) = (proxy.server_ip.as_ref()?, network.cidr.parts()?);
    let attachment = network.attachment(key(&infra.metadata).0);
    let services = infra.control_plane_namespace();
    if services.len() > Label::MAX_LENGTH {
        return None;
    }
    let mut spec = json!({
        "networkConfig": {
            "serverIP": format!("{address}/{prefix}"),
            "networkAttachmentName": attachment.name,
            "networkAttachmentNamespace": attachment.namespace,
        },
        "backends": backends(proxy, &services, &domain),
        "dataPlane": proxy.data_plane,
        "proxyImage": proxy.proxy_image,
        "replicas": proxy.replicas,
    });
    if let Some(image) = &proxy.manager_image {
        spec["managerImage"] = json!(image);
    }
    Some(spec)
}

/// One name that leads to a Service, and the others that do.
struct Names {
    first: String,
    others: Vec<String>,
}

/// What a hosted control plane publishes. On both ports what comes without a name is for the API server: machines reach it by its address too.
fn backends(proxy: &InfraProxy, namespace: &str, domain: &str) -> Vec<Value> {
    let below = |label: &str| format!("{label}.{domain}");
    let names = |first: &str, others: &[&str]| Names {
        first: below(first),
        others: others.iter().copied().map(below).collect(),
    };
    let backend = |name: &str, names: Names, port: u16, service: &str, target_port: u16| {
        json!({
            "name": name, "hostname": names.first, "alternateHostnames": names.others, "port": port,
            "targetService": service, "targetPort": target_port, "targetNamespace": namespace,
        })
    };
    let api_server = &*proxy.api_server_service;
    let mut in_cluster = names("kubernetes", &["api", "api-int"]);
    in_cluster.others.extend(IN_CLUSTER.map(str::to_owned));
    let mut all = vec![
        default(backend("kube-apiserver", names("api", &[]), API_PORT, api_server, 6443)),
        backend("kube-apiserver-internal", names("api-int", &[]), API_PORT, api_server, 6443),
        default(backend("kube-apiserver-kubernetes-hostname", in_cluster, TLS_PORT, api_server, 6443)),
        backend("oauth-openshift", names("oauth", &["oauth-openshift.apps"]), TLS_PORT, "oauth-openshift", 6443),
    ];
    for port in &proxy.ignition_ports {
        let name = on_port("ignition-server", *port);
        all.push(backend(&name, names("ignition", &["ignition-server"]), *port, "ignition-server-proxy", 443));
    }
    for port in &proxy.konnectivity_ports {
        let name = on_port("konnectivity-server", *port);
        all.push(backend(&name, names("konnectivity", &["konnectivity-server"]), *port, "konnectivity-server", 8091));
    }
    all
}

/// For what comes without a name.
fn default(mut backend: Value) -> Value {
    backend["default"] = json!(true);
    backend
}

/// The usual port is not said.
fn on_port(name: &str, port: u16) -> String {
    if port == TLS_PORT { name.to_owned() } else { format!("{name}-{port}") }
}
