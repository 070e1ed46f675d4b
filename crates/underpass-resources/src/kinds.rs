//! The table of our kinds, in the order in which their objects are deleted at shutdown.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::crd::finish;
use crate::{
    ContainerNetwork, ContainerNetworkTunnelProxy, DHCPServer, DNSServer, EgressGateway, GatewayClient, Infra,
    InterceptRequest, ProxyServer, Workstation,
};

pub const HOSTED_CLUSTER_GROUP: &str = "hostedcluster.densityops.com";
pub const UNDERPASS_GROUP: &str = "underpass.dev";
pub const VERSION: &str = "v1alpha1";
/// `kubectl get underpass` shows the objects of all our kinds.
pub const CATEGORY: &str = "underpass";

/// What generic code needs to know of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub group: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
    /// Kinds whose objects must be gone before objects of this kind are deleted: they stand on them, or would make them anew.
    pub deleted_after: &'static [&'static str],
}

impl Kind {
    pub fn api_version(&self) -> String {
        format!("{}/{VERSION}", self.group)
    }

    /// The name of its CustomResourceDefinition.
    pub fn crd_name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }
}

/// All our kinds. Whoever deletes objects in this order never takes away what another one still stands on.
pub const KINDS: &[Kind] = &[
    underpass("InterceptRequest", "interceptrequests", true, &[]),
    underpass("GatewayClient", "gatewayclients", true, &[]),
    underpass("ContainerNetworkTunnelProxy", "containernetworktunnelproxies", false, &[]),
    hosted_cluster("Infra", "infras", &[]),
    underpass("Workstation", "workstations", true, &["InterceptRequest"]),
    underpass("EgressGateway", "egressgateways", true, &["GatewayClient"]),
    underpass("ContainerNetwork", "containernetworks", false, &["ContainerNetworkTunnelProxy"]),
    hosted_cluster("DHCPServer", "dhcpservers", &["Infra"]),
    hosted_cluster("DNSServer", "dnsservers", &["Infra"]),
    hosted_cluster("ProxyServer", "proxyservers", &["Infra", "DNSServer"]),
];

const fn underpass(
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    deleted_after: &'static [&'static str],
) -> Kind {
    Kind { group: UNDERPASS_GROUP, kind, plural, namespaced, deleted_after }
}

const fn hosted_cluster(kind: &'static str, plural: &'static str, deleted_after: &'static [&'static str]) -> Kind {
    Kind { group: HOSTED_CLUSTER_GROUP, kind, plural, namespaced: true, deleted_after }
}

/// The kind of this name, if it is ours.
pub fn kind(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.kind == name)
}

/// The CRDs of all our kinds, in the order of [`KINDS`].
pub fn crds() -> Vec<CustomResourceDefinition> {
    [
        InterceptRequest::crd(),
        GatewayClient::crd(),
        ContainerNetworkTunnelProxy::crd(),
        Infra::crd(),
        Workstation::crd(),
        EgressGateway::crd(),
        ContainerNetwork::crd(),
        DHCPServer::crd(),
        DNSServer::crd(),
        ProxyServer::crd(),
    ]
    .into_iter()
    .map(finish)
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_what_the_crds_say() {
        let crds = crds();
        assert_eq!(crds.len(), KINDS.len());
        for (kind, crd) in KINDS.iter().zip(&crds) {
            assert_eq!(kind.kind, crd.spec.names.kind);
            assert_eq!(kind.plural, crd.spec.names.plural);
            assert_eq!(kind.group, crd.spec.group);
            assert_eq!(kind.namespaced, crd.spec.scope == "Namespaced");
            assert_eq!(crd.metadata.name.as_deref(), Some(kind.crd_name().as_str()));
            assert_eq!(crd.spec.versions[0].name, VERSION);
            assert_eq!(crd.spec.names.categories.as_deref(), Some(&[CATEGORY.to_owned()][..]));
        }
    }

    #[test]
    fn nothing_is_deleted_before_what_stands_on_it() {
        for (index, kind) in KINDS.iter().enumerate() {
            for earlier in kind.deleted_after {
                assert!(KINDS[..index].iter().any(|other| other.kind == *earlier), "{} after {earlier}", kind.kind);
            }
        }
    }
}
