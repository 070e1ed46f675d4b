//! Where the objects of a proxy stand: their names follow from its own.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use underpass_resources::ProxyServer;

use crate::proxy_server::key;

/// On the ProxyServer's Role: the namespaces in which a RoleBinding was, or is about to be, made.
pub(super) const RECORD: &str = "underpass.dev/target-namespaces";

/// Of a label's value, and of a Service's name.
const LABEL_LENGTH: usize = 63;
/// Of most names.
const NAME_LENGTH: usize = 253;
/// Of the name of who writes a field.
const MANAGER_LENGTH: usize = 128;

/// A kind of Kubernetes as it is addressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectKind {
    pub api_version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
}

/// Where one object stands, or would.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    #[serde(flatten)]
    pub kind: ObjectKind,
    pub namespace: String,
    pub name: String,
}

pub const NAMESPACE: ObjectKind = kind("v1", "Namespace", "namespaces");
pub const NETWORK_ATTACHMENT: ObjectKind =
    kind("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "network-attachment-definitions");
pub(super) const LEASE: ObjectKind = kind("coordination.k8s.io/v1", "Lease", "leases");
pub(super) const SERVICE_ACCOUNT: ObjectKind = kind("v1", "ServiceAccount", "serviceaccounts");
pub(super) const CONFIG_MAP: ObjectKind = kind("v1", "ConfigMap", "configmaps");
pub(super) const SERVICE: ObjectKind = kind("v1", "Service", "services");
pub(super) const ROLE: ObjectKind = kind("rbac.authorization.k8s.io/v1", "Role", "roles");
pub(super) const ROLE_BINDING: ObjectKind = kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings");
pub(super) const DEPLOYMENT: ObjectKind = kind("apps/v1", "Deployment", "deployments");
pub(super) const BUDGET: ObjectKind = kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets");

/// The kinds of which a proxy has objects. What happens to a Lease is none of the controllers' business: it is renewed all the time.
pub const KINDS: [ObjectKind; 7] = [SERVICE_ACCOUNT, ROLE, ROLE_BINDING, CONFIG_MAP, SERVICE, BUDGET, DEPLOYMENT];

const fn kind(api_version: &'static str, kind: &'static str, plural: &'static str) -> ObjectKind {
    ObjectKind { api_version, kind, plural }
}

/// What an object says of itself where it was found.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    api_version: String,
    kind: String,
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    namespace: String,
    name: String,
}

impl Place {
    fn of(proxy: &ProxyServer, kind: ObjectKind, name: String) -> Self {
        Self { kind, namespace: key(&proxy.metadata).0.to_owned(), name }
    }

    pub(super) fn is_of(&self, object: &Value) -> bool {
        let Ok(Named { api_version, kind, metadata }) = Named::deserialize(object) else { return false };
        (api_version.as_str(), kind.as_str()) == (self.kind.api_version, self.kind.kind)
            && (metadata.namespace, metadata.name) == (self.namespace.clone(), self.name.clone())
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind.kind, self.namespace, self.name)
    }
}

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
    Place::of(proxy, SERVICE_ACCOUNT, own_name(proxy))
}

pub fn role(proxy: &ProxyServer) -> Place {
    Place::of(proxy, ROLE, own_name(proxy))
}

pub(super) fn binding(proxy: &ProxyServer) -> Place {
    Place::of(proxy, ROLE_BINDING, own_name(proxy))
}

pub(super) fn constraints_binding(proxy: &ProxyServer) -> Place {
    Place::of(proxy, ROLE_BINDING, bounded(&format!("{}-proxy-scc", key(&proxy.metadata).1), NAME_LENGTH))
}

/// Another one, since the role of a binding cannot be changed.
pub(super) fn replicas_constraints_binding(proxy: &ProxyServer) -> Place {
    Place::of(proxy, ROLE_BINDING, bounded(&format!("{}-proxy-replicas-scc", key(&proxy.metadata).1), NAME_LENGTH))
}

pub(super) fn budget(proxy: &ProxyServer) -> Place {
    Place::of(proxy, BUDGET, own_name(proxy))
}

pub(super) fn lease(proxy: &ProxyServer) -> Place {
    Place::of(proxy, LEASE, own_name(proxy))
}

pub(super) fn config_map(proxy: &ProxyServer) -> Place {
    let names = proxy.spec.naming_style.names(key(&proxy.metadata).1);
    Place::of(proxy, CONFIG_MAP, bounded(&names.config_map, NAME_LENGTH))
}

pub(super) fn deployment(proxy: &ProxyServer) -> Place {
    let names = proxy.spec.naming_style.names(key(&proxy.metadata).1);
    Place::of(proxy, DEPLOYMENT, bounded(&names.deployment, NAME_LENGTH))
}

pub(super) fn service(proxy: &ProxyServer) -> Place {
    let names = proxy.spec.naming_style.names(key(&proxy.metadata).1);
    Place::of(proxy, SERVICE, bounded(&names.service, LABEL_LENGTH))
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

fn own_name(proxy: &ProxyServer) -> String {
    bounded(&format!("{}-proxy", key(&proxy.metadata).1), NAME_LENGTH)
}

/// What is too long ends in a hash of all of it, so that two do not become one.
fn bounded(name: &str, length: usize) -> String {
    if name.len() <= length {
        return name.to_owned();
    }
    let hash = hash(name.as_bytes());
    let kept = &name[..name.floor_char_boundary(length - 9)];
    format!("{}-{}", kept.trim_end_matches(['-', '.']), &hash[..8])
}

pub(super) fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes)[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_stay_different() {
        let (one, other) = (format!("{}a", "x".repeat(70)), format!("{}b", "x".repeat(70)));
        assert_eq!(bounded(&one, 63).len(), 63);
        assert_ne!(bounded(&one, 63), bounded(&other, 63));
        assert_eq!(bounded("short", 63), "short");
    }
}
