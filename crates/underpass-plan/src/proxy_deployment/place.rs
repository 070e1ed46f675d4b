//! Where the objects of a proxy stand: their names follow from its own.

use std::collections::BTreeSet;

use serde_json::Value;
use underpass_resources::ProxyServer;

use crate::place::{LABEL_LENGTH, NAME_LENGTH, ObjectKind, Place, bounded, kind};
use crate::proxy_server::key;

/// On the ProxyServer's Role: the namespaces in which a RoleBinding was, or is about to be, made.
pub(super) const RECORD: &str = "underpass.dev/target-namespaces";

/// Of the name of who writes a field.
const MANAGER_LENGTH: usize = 128;

pub const NAMESPACE: ObjectKind = kind("v1", "Namespace", "namespaces");
pub const NETWORK_ATTACHMENT: ObjectKind =
    kind("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "network-attachment-definitions");
pub const LEASE: ObjectKind = kind("coordination.k8s.io/v1", "Lease", "leases");
pub(super) const SERVICE_ACCOUNT: ObjectKind = kind("v1", "ServiceAccount", "serviceaccounts");
pub(super) const CONFIG_MAP: ObjectKind = kind("v1", "ConfigMap", "configmaps");
pub(super) const SERVICE: ObjectKind = kind("v1", "Service", "services");
pub(super) const ROLE: ObjectKind = kind("rbac.authorization.k8s.io/v1", "Role", "roles");
pub(super) const ROLE_BINDING: ObjectKind = kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings");
pub const DEPLOYMENT: ObjectKind = kind("apps/v1", "Deployment", "deployments");
pub(super) const BUDGET: ObjectKind = kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets");

/// The kinds of which a proxy has objects. What happens to a Lease is none of the controllers' business: it is renewed all the time.
pub const KINDS: [ObjectKind; 7] = [SERVICE_ACCOUNT, ROLE, ROLE_BINDING, CONFIG_MAP, SERVICE, BUDGET, DEPLOYMENT];

/// Every place at which something of the proxy may stand. `record` is what its Role says, if it has one.
pub fn places(proxy: &ProxyServer, record: Option<&Value>) -> Vec<Place> {
    let mut places = vec![
        account(proxy),
        role(proxy),
        binding(proxy),
        constraints_binding(proxy),
        replicas_constraints_binding(proxy),
        config_map(proxy),
        service(proxy),
        budget(proxy),
        lease(proxy),
        deployment(proxy),
    ];
    let mut namespaces = target_namespaces(proxy);
    namespaces.extend(record.map(recorded).unwrap_or_default());
    places.extend(namespaces.iter().map(|namespace| target_binding(proxy, namespace)));
    places
}

/// The namespaces that its backends lead to.
pub fn target_namespaces(proxy: &ProxyServer) -> BTreeSet<String> {
    proxy.spec.backends.iter().map(|backend| backend.target_namespace.to_string()).collect()
}

/// Those in which something was made, by the Role's own word.
pub(super) fn recorded(role: &Value) -> BTreeSet<String> {
    let text = role["metadata"]["annotations"][RECORD].as_str().unwrap_or_default();
    text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

pub(super) fn account(proxy: &ProxyServer) -> Place {
    place(proxy, SERVICE_ACCOUNT, own_name(proxy))
}

pub fn role(proxy: &ProxyServer) -> Place {
    place(proxy, ROLE, own_name(proxy))
}

pub(super) fn binding(proxy: &ProxyServer) -> Place {
    place(proxy, ROLE_BINDING, own_name(proxy))
}

pub(super) fn constraints_binding(proxy: &ProxyServer) -> Place {
    place(proxy, ROLE_BINDING, bounded(&format!("{}-proxy-scc", key(&proxy.metadata).1), NAME_LENGTH))
}

/// Another one, since the role of a binding cannot be changed.
pub(super) fn replicas_constraints_binding(proxy: &ProxyServer) -> Place {
    place(proxy, ROLE_BINDING, bounded(&format!("{}-proxy-replicas-scc", key(&proxy.metadata).1), NAME_LENGTH))
}

pub(super) fn budget(proxy: &ProxyServer) -> Place {
    place(proxy, BUDGET, own_name(proxy))
}

pub(super) fn lease(proxy: &ProxyServer) -> Place {
    place(proxy, LEASE, own_name(proxy))
}

pub(super) fn config_map(proxy: &ProxyServer) -> Place {
    let names = proxy.spec.naming_style.names(key(&proxy.metadata).1);
    place(proxy, CONFIG_MAP, bounded(&names.config_map, NAME_LENGTH))
}

pub(super) fn deployment(proxy: &ProxyServer) -> Place {
    let names = proxy.spec.naming_style.names(key(&proxy.metadata).1);
    place(proxy, DEPLOYMENT, bounded(&names.deployment, NAME_LENGTH))
}

pub(super) fn service(proxy: &ProxyServer) -> Place {
    let names = proxy.spec.naming_style.names(key(&proxy.metadata).1);
    place(proxy, SERVICE, bounded(&names.service, LABEL_LENGTH))
}

/// In a namespace of somebody else, where the name has to say whose it is.
pub(super) fn target_binding(proxy: &ProxyServer, namespace: &str) -> Place {
    let (own, name) = key(&proxy.metadata);
    let name = bounded(&format!("underpass-proxy.{own}.{name}"), NAME_LENGTH);
    Place { kind: ROLE_BINDING, namespace: namespace.to_owned(), name }
}

/// The value of the label by which the pods of one proxy are known.
pub(super) fn instance(proxy: &ProxyServer) -> String {
    bounded(key(&proxy.metadata).1, LABEL_LENGTH)
}

/// By whose name a pod writes into the status of its ProxyServer.
pub fn report_writer(pod: &str) -> String {
    bounded(&format!("underpass-proxy.{pod}"), MANAGER_LENGTH)
}

fn place(proxy: &ProxyServer, kind: ObjectKind, name: String) -> Place {
    Place { kind, namespace: key(&proxy.metadata).0.to_owned(), name }
}

fn own_name(proxy: &ProxyServer) -> String {
    bounded(&format!("{}-proxy", key(&proxy.metadata).1), NAME_LENGTH)
}
