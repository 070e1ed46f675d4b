//! "Proxy Setup for Hosted Control Planes", the document that ProxyServers follow, from its top to its bottom: every manifest and every
//! command as it prints them, and what it says one should see. First with Envoy, as it tells; then, of what is not about Envoy's own
//! container, with our own data plane.
//!
//! What cannot be typed here: `oc`, `docker pull`, `make deploy` of that project and `hypershift create cluster`. Its security context
//! constraints are applied in the tests of the installation, where the cluster passes for an OpenShift; nothing enforces them here. What
//! its Infra makes besides a proxy is not built yet, and the Infra says so.
//!
//! The files beside this one are the document's own texts.

mod advanced;
mod infra;
mod monitoring;
mod reader;
mod starting;
mod troubleshooting;
mod updating;

use underpass_testbed::{HostedControlPlane, HostedService, Lab, Machine};

use reader::Reader;

pub(crate) const CONSTRAINTS: &str = include_str!("constraints.yaml");
const METHOD_1: &str = include_str!("method-1.sh");
const PROXY_SERVER: &str = include_str!("proxyserver.yaml");

const SERVER_IP: &str = "192.168.100.4";
const API: &str = "api.mycluster.example.com";
const OAUTH: &str = "oauth-openshift.apps.mycluster.example.com";
/// The name that the document asks for on port 443, though no backend of its manifest has it: one is added.
const ANY: &str = "api.cluster.com";

/// The control plane that the manifest leads to, and a VM that wants to reach it.
struct Tenant<'a> {
    vm: Machine,
    plane: HostedControlPlane<'a>,
}

pub(super) fn is_true_from_top_to_bottom(lab: &Lab) {
    let namespace = lab.namespace_called("clusters-mycluster");
    let tenant =
        Tenant { vm: lab.machine("192.168.100.50/24"), plane: HostedControlPlane::start(lab, &namespace, &services()) };
    let reader = Reader::new(lab);
    starting::with_method_1(&reader);
    starting::says_so(&reader);
    tenant.reaches(SERVER_IP, &[(API, 6443, "kube-apiserver"), (OAUTH, 443, "oauth-openshift")]);
    troubleshooting::what_can_be_looked_up(&reader);
    troubleshooting::inside_the_container(&reader);
    troubleshooting::from_the_vlan_without_a_name(&tenant);
    updating::without_a_restart(&reader, &tenant);
    troubleshooting::from_the_vlan_by_name(&reader, &tenant);
    monitoring::with_envoy(&reader, &tenant);
    troubleshooting::wrong_backends_are_told(&reader);
    updating::with_a_restart(&reader, &tenant);
    advanced::several_replicas(&reader, &tenant);
    natively(&reader, &tenant);
    reader.types("kubectl delete proxyserver mycluster-proxy --timeout=110s");
    infra::with_method_2(&reader);
}

/// The same manifest with another data plane.
fn natively(reader: &Reader<'_>, tenant: &Tenant<'_>) {
    reader.types("kubectl delete proxyserver mycluster-proxy --timeout=110s");
    reader.keeps("hostedcluster_v1alpha1_proxyserver.yaml", &format!("{PROXY_SERVER}  dataPlane: Native\n"));
    reader.types(METHOD_1);
    starting::is_up(reader, "1/1");
    starting::says(reader, "Configuration applied successfully");
    tenant.reaches(SERVER_IP, &[(API, 6443, "kube-apiserver"), (OAUTH, 443, "oauth-openshift")]);
    troubleshooting::what_can_be_looked_up(reader);
    troubleshooting::from_the_vlan_without_a_name(tenant);
    updating::without_a_restart(reader, tenant);
    troubleshooting::from_the_vlan_by_name(reader, tenant);
    monitoring::with_our_own(reader, tenant);
    troubleshooting::wrong_backends_are_told(reader);
}

/// All that the document calls common, and what stands behind the names that it makes up.
fn services() -> Vec<HostedService<'static>> {
    vec![
        HostedService::tls("kube-apiserver", 6443, &[API, "api-int.mycluster.example.com"]),
        HostedService::tls("oauth-openshift", 443, &[OAUTH]),
        HostedService::tls("ignition-server", 443, &["ignition-server.mycluster.example.com"]),
        HostedService::tls("konnectivity-server", 8090, &["konnectivity-server.mycluster.example.com"]),
        HostedService::tls("any", 443, &[ANY, OAUTH]),
    ]
}

impl Tenant<'_> {
    /// By name and port, with the certificate of that service.
    #[track_caller]
    fn reaches(&self, at: &str, expected: &[(&str, u16, &str)]) {
        for (name, port, service) in expected {
            let answer = self.vm.fetch(&format!("https://{name}:{port}/"), at, &self.plane.authority()).ok();
            assert!(answer.starts_with(&self.plane.name_of(service)), "{name}:{port}: {answer}");
        }
    }

    /// Who answers for a name; None: nobody.
    fn who(&self, name: &str, port: u16) -> Option<String> {
        let ended = self.vm.fetch(&format!("https://{name}:{port}/"), SERVER_IP, &self.plane.authority());
        (ended.code == Some(0)).then(|| ended.stdout.split(' ').next().unwrap_or_default().to_owned())
    }
}
