//! The secondary network: whether its definition can be used, and what the pods ask of it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::{Value, json};
use underpass_resources::address::IpAddress;
use underpass_resources::attachment::ResolvedAttachment;
use underpass_resources::conditions::Finding;

use super::{Attachment, Observed, changes};
use crate::proxy_server::key;

pub(super) const NETWORK_READY: &str = "NetworkReady";
/// What Multus reads of a pod.
pub(super) const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
pub(super) const NOT_FOUND: &str = "NADNotFound";

/// The size of a network about which nobody says anything.
const USUAL_PREFIX: (u8, u8) = (24, 64);
/// What the pods of a proxy with several replicas have on the network until one of them gets serverIP: some plugins want every pod to have
/// an address. Nobody asks for this one, so that all can have the same.
const PLACEHOLDER: &str = "169.254.254.254/32";
/// The argument by which those are told the address who get it by turns.
pub(super) const FLOATING: &str = "--address=";

/// What the pods are to join.
pub(super) enum Network {
    /// None but that of all pods.
    Pods,
    /// One that cannot be joined, and why.
    Unusable(Finding),
    Joined(Joined),
}

pub(super) struct Joined {
    pub(super) definition: ResolvedAttachment,
    /// The proxy's, with the size of the network.
    pub(super) address: IpAddr,
    pub(super) prefix: u8,
    /// Whether nobody says how large the network is.
    pub(super) prefix_is_assumed: bool,
    /// Whether one pod at a time takes the address by itself.
    pub(super) floats: bool,
    /// Who leads to other networks, and whether what is sent to them goes there.
    pub(super) gateway: Option<IpAddr>,
    pub(super) gateway_is_used: bool,
}

/// One entry of what Multus reads.
#[derive(Deserialize)]
struct Asked {
    namespace: String,
    name: String,
    #[serde(default)]
    ips: Vec<String>,
}

impl Network {
    pub(super) fn of(observed: &Observed) -> Self {
        let spec = &observed.object.spec;
        let wanted = spec.network_config.attachment.resolve(key(&observed.object.metadata).0);
        let (Some(definition), Some(address)) = (wanted, spec.network_config.server_ip.address()) else {
            return Self::Pods;
        };
        if let Some(owner) = &observed.address_owner {
            let ResolvedAttachment { namespace, name } = &definition;
            let message = format!(
                "{address} on NetworkAttachmentDefinition {namespace}/{name} belongs to ProxyServer {owner}: choose another serverIP"
            );
            return Self::Unusable(Finding::no(NETWORK_READY, "IPConflict", message));
        }
        let floats = changes::replicas(observed) > 1;
        let config = match usable(&observed.attachment, &definition, floats) {
            Ok(config) => config,
            Err(finding) => return Self::Unusable(finding),
        };
        let known = spec.network_config.server_ip.prefix_length().or_else(|| prefix_of(&config, address));
        let usual = if address.is_ipv4() { USUAL_PREFIX.0 } else { USUAL_PREFIX.1 };
        let gateway = spec.network_config.gateway.as_ref().and_then(IpAddress::address);
        Self::Joined(Joined {
            definition,
            address,
            prefix: known.unwrap_or(usual),
            prefix_is_assumed: known.is_none(),
            floats,
            gateway,
            // A pod that takes the address by itself sees to its routes too.
            gateway_is_used: gateway.is_some_and(|gateway| floats || sends_by(&config, gateway)),
        })
    }
}

impl Joined {
    pub(super) fn address_with_prefix(&self) -> String {
        format!("{}/{}", self.address, self.prefix)
    }

    /// Whether the network has nobody else, or everybody, by its size.
    pub(super) fn has_no_neighbours(&self) -> bool {
        let longest = if self.address.is_ipv4() { 32 } else { 128 };
        self.prefix == 0 || (self.prefix == longest && self.gateway.is_none())
    }

    pub(super) fn who_is_answered(&self) -> String {
        let (address, usual) = (self.address, if self.address.is_ipv4() { USUAL_PREFIX.0 } else { USUAL_PREFIX.1 });
        let whom = if self.prefix == 0 { "every address is" } else { "nobody else is" };
        format!(
            "{} says that {whom} on the network of serverIP, so that machines there may not be answered: write its size, as in {address}/{usual}",
            self.address_with_prefix()
        )
    }

    pub(super) fn how_to_use_the_gateway(&self) -> String {
        let ResolvedAttachment { namespace, name } = &self.definition;
        let everywhere = if self.address.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        let gateway = self.gateway.map(|gateway| gateway.to_string()).unwrap_or_default();
        format!(
            "only machines on the network itself are answered, because nothing is sent by the gateway {gateway}: give the ipam of \
             NetworkAttachmentDefinition {namespace}/{name} the route {} and chain the plugin sbr, or let there be several replicas",
            json!({ "dst": everywhere, "gw": gateway })
        )
    }

    /// What Multus reads. The address is said twice: a plugin that declares that it takes addresses gets the first; the allocators of others
    /// read the second, which also keeps them from adding those that the definition names itself.
    pub(super) fn annotation(&self) -> String {
        let ResolvedAttachment { namespace, name } = &self.definition;
        let address = if self.floats { PLACEHOLDER.to_owned() } else { self.address_with_prefix() };
        json!([{ "name": name, "namespace": namespace, "ips": [address], "cni-args": { "ips": [address] } }])
            .to_string()
    }
}

/// Which addresses on which networks the pods of a Deployment ask for, or a pod does that has not ended: for good, or by turns.
pub fn asked_addresses(object: &Value) -> BTreeSet<(ResolvedAttachment, IpAddr)> {
    if ["Succeeded", "Failed"].iter().any(|phase| object["status"]["phase"] == *phase) {
        return BTreeSet::new();
    }
    let template = object.pointer("/spec/template").unwrap_or(object);
    let asked = template["metadata"]["annotations"][NETWORKS].as_str().unwrap_or_default();
    let networks: Vec<Asked> = serde_json::from_str(asked).unwrap_or_default();
    let containers = template["spec"]["containers"].as_array().into_iter().flatten();
    let arguments = containers.filter_map(|container| container["args"].as_array()).flatten();
    let by_turns: Vec<&str> = arguments.filter_map(|argument| argument.as_str()?.strip_prefix(FLOATING)).collect();
    let of_network = |Asked { namespace, name, ips }: &Asked| {
        let definition = ResolvedAttachment { namespace: namespace.clone(), name: name.clone() };
        let for_good = ips.iter().map(String::as_str).filter(|address| *address != PLACEHOLDER);
        let all = for_good.chain(by_turns.iter().copied()).filter_map(|text| text.split('/').next()?.parse().ok());
        all.map(|address| (definition.clone(), address)).collect::<Vec<_>>()
    };
    networks.iter().flat_map(of_network).collect()
}

/// Whether the pods of a template have an address for good, and not by turns.
pub(super) fn is_static(template: &Value) -> bool {
    let asked = template["metadata"]["annotations"][NETWORKS].as_str();
    asked.is_some_and(|asked| !asked.contains(PLACEHOLDER))
}

/// Why several pods cannot take turns at the address, where that is so; a network that is not there refuses nothing yet.
pub(super) fn refuses_turns(observed: &Observed) -> Option<Finding> {
    let network = &observed.object.spec.network_config;
    let definition = network.attachment.resolve(key(&observed.object.metadata).0)?;
    let is_there = matches!(observed.attachment, Attachment::Found { .. });
    is_there.then(|| usable(&observed.attachment, &definition, true).err()).flatten()
}

/// What the definition says, if pods can join by it with an address of our choice.
fn usable(attachment: &Attachment, definition: &ResolvedAttachment, floats: bool) -> Result<Value, Finding> {
    let ResolvedAttachment { namespace, name } = definition;
    let no = |reason, message| Err(Finding::no(NETWORK_READY, reason, message));
    let config = match attachment {
        Attachment::NoMultus => {
            let message = format!(
                "the cluster does not know NetworkAttachmentDefinitions, so there is no {namespace}/{name}: install Multus"
            );
            return no(NOT_FOUND, message);
        }
        Attachment::Missing | Attachment::NotWanted => {
            let message = format!(
                "there is no NetworkAttachmentDefinition {namespace}/{name}: create it, or correct \
                 networkConfig.networkAttachmentName or networkAttachmentNamespace"
            );
            return no(NOT_FOUND, message);
        }
        // A file on the nodes says the rest.
        Attachment::Found { config } => match config.as_deref().map(str::trim) {
            None | Some("") => return Ok(Value::Null),
            Some(config) => config,
        },
    };
    let Ok(config) = serde_json::from_str::<Value>(config) else {
        let message = format!("spec.config of NetworkAttachmentDefinition {namespace}/{name} is not JSON: correct it");
        return no("NADUnsuitable", message);
    };
    let no_turns = |why: &str| {
        let message = format!(
            "NetworkAttachmentDefinition {namespace}/{name} cannot be joined by several pods that take turns at one address: {why}"
        );
        no("NADUnsuitable", message)
    };
    if floats && is_ovn(&config) {
        return no_turns("OVN-Kubernetes lets a pod speak from no other address than the one that it began with");
    }
    if floats && ipam(&config).is_none() || takes_addresses(&config, floats) {
        return Ok(config);
    }
    if takes_addresses(&config, false) {
        return no_turns("host-local gives no two pods the same; let its ipam be of type static, or leave it out");
    }
    let message = format!(
        "NetworkAttachmentDefinition {namespace}/{name} cannot give a pod the address that it asks for: its ipam must be of \
         type static or host-local, or a plugin of it must declare capabilities {{\"ips\": true}}; one of OVN-Kubernetes must have no subnets"
    );
    no("NADUnsuitable", message)
}

/// The plugins of a chain, or the only one.
fn plugins(config: &Value) -> Vec<&Value> {
    match config["plugins"].as_array() {
        Some(plugins) => plugins.iter().collect(),
        None => vec![config],
    }
}

fn ipam(config: &Value) -> Option<&Value> {
    plugins(config).into_iter().map(|plugin| &plugin["ipam"]).find(|ipam| ipam["type"].is_string())
}

/// While pods take turns all ask for the same one, outside of whatever range is given away there.
fn takes_addresses(config: &Value, floats: bool) -> bool {
    ipam(config).is_some_and(|ipam| ipam["type"] == "static" || ipam["type"] == "host-local" && !floats)
        || plugins(config).iter().any(|plugin| plugin["capabilities"]["ips"] == true)
        || is_ovn(config) && !has_subnets(config)
}

/// OVN-Kubernetes gives addresses itself where it knows subnets, and else takes the one that a pod asks for.
fn is_ovn(config: &Value) -> bool {
    plugins(config).iter().any(|plugin| plugin["type"] == "ovn-k8s-cni-overlay")
}

fn has_subnets(config: &Value) -> bool {
    plugins(config).iter().any(|plugin| plugin["subnets"].as_str().is_some_and(|subnets| !subnets.is_empty()))
}

/// Whether pods send by a gateway what they send from their address there, and nothing else: a route to it, which the plugin `sbr` puts into
/// a table for that address. Of a file on the nodes that is not known.
fn sends_by(config: &Value, gateway: IpAddr) -> bool {
    let leads = |route: &Value| {
        let goes = |field: &str| route[field].as_str().unwrap_or_default();
        ["0.0.0.0/0", "::/0"].contains(&goes("dst")) && goes("gw").parse() == Ok(gateway)
    };
    let routes = ipam(config).and_then(|ipam| ipam["routes"].as_array());
    config.is_null()
        || plugins(config).iter().any(|plugin| plugin["type"] == "sbr")
            && routes.is_some_and(|all| all.iter().any(leads))
}

/// The size of the network, where the definition says it: of the networks that it names the one with the address, else the first of its family.
fn prefix_of(config: &Value, address: IpAddr) -> Option<u8> {
    let ipam = ipam(config)?;
    let each = |list: &'static str, field: &'static str| {
        ipam[list].as_array().into_iter().flatten().map(move |item| &item[field])
    };
    let ranges = ipam["ranges"].as_array().into_iter().flatten().filter_map(|set| set.as_array()).flatten();
    let said = each("addresses", "address")
        .chain([&ipam["subnet"]])
        .chain(ranges.map(|range| &range["subnet"]))
        .chain([&ipam["range"]])
        .chain(each("ipRanges", "range"));
    let of_family = |network: &IpNet| network.addr().is_ipv4() == address.is_ipv4();
    let networks: Vec<IpNet> = said.filter_map(network).filter(of_family).collect();
    let with_it = networks.iter().find(|network| network.contains(&address));
    with_it.or(networks.first()).map(IpNet::prefix_len)
}

/// `10.0.0.0/24`, or from where in it addresses are given: `10.0.0.20-10.0.0.50/24`.
fn network(text: &Value) -> Option<IpNet> {
    let (addresses, prefix) = text.as_str()?.split_once('/')?;
    let first = addresses.split('-').next()?.trim();
    IpNet::new(first.parse().ok()?, prefix.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may")]

    use super::*;
    use crate::plan::Action;

    /// What the Deployment of a proxy with so many replicas asks for, and what a pod of it does in that phase.
    fn asked(replicas: u8, phase: &str) -> [Vec<String>; 2] {
        let observed = json!({
            "object": {
                "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer",
                "metadata": { "name": "edge", "namespace": "hosted", "uid": "u-1" },
                "spec": {
                    "replicas": replicas, "backends": [],
                    "networkConfig": { "serverIP": "192.168.100.4/24", "networkAttachmentName": "vlan" },
                },
            },
            "attachment": { "found": { "config": "{\"type\": \"macvlan\", \"ipam\": {\"type\": \"static\"}}" } },
            "site": { "image": "underpass:1" },
            "now": "2026-01-01T00:00:00Z",
        });
        let plan = super::super::plan(&serde_json::from_value(observed).unwrap());
        let deployment = plan.actions.into_iter().find_map(|action| match action {
            Action::ApplyObject { object, .. } if object["kind"] == "Deployment" => Some(object),
            _ => None,
        });
        let deployment = deployment.unwrap();
        let mut pod = deployment["spec"]["template"].clone();
        pod["status"] = json!({ "phase": phase });
        [*deployment, pod].map(|object| {
            let asked = asked_addresses(&object).into_iter();
            asked.map(|(network, address)| format!("{address} {}/{}", network.namespace, network.name)).collect()
        })
    }

    #[test]
    fn what_pods_ask_for_is_known_of_them_whether_they_have_it_for_good_or_by_turns() {
        let address = || vec!["192.168.100.4 hosted/vlan".to_owned()];
        assert_eq!(asked(1, "Running"), [address(), address()]);
        assert_eq!(asked(3, "Pending"), [address(), address()]);
        assert_eq!(asked(1, "Failed"), [address(), vec![]]);
        assert!(asked_addresses(&json!({})).is_empty());
    }

    #[test]
    fn the_size_of_the_network_is_that_of_the_address() {
        let size = |ipam: Value, address: &str| prefix_of(&json!({ "ipam": ipam }), address.parse().unwrap());
        let both = json!({
            "type": "static",
            "addresses": [{ "address": "10.1.0.1/16" }, { "address": "10.2.0.1/20" }, { "address": "fd00::1/64" }],
        });
        assert_eq!(size(both.clone(), "10.2.0.4"), Some(20));
        assert_eq!(size(both.clone(), "10.1.0.4"), Some(16));
        assert_eq!(size(both.clone(), "192.168.0.4"), Some(16), "the first of its family");
        assert_eq!(size(both, "fd00::4"), Some(64));
        let ranges =
            json!({ "type": "host-local", "ranges": [[{ "subnet": "fd00::/64" }], [{ "subnet": "10.1.0.0/22" }]] });
        assert_eq!(size(ranges, "10.1.0.4"), Some(22));
        assert_eq!(size(json!({ "type": "host-local", "subnet": "10.1.0.0/25" }), "10.1.0.4"), Some(25));
        assert_eq!(size(json!({ "type": "whereabouts", "range": "10.1.0.5-10.1.0.9/21" }), "10.1.0.4"), Some(21));
        assert_eq!(size(json!({ "type": "static" }), "10.1.0.4"), None);
    }

    #[test]
    fn which_definitions_give_a_pod_the_address_that_it_asks_for() {
        let definition = ResolvedAttachment { namespace: "hosted".to_owned(), name: "vlan".to_owned() };
        let gives = |config: &str, floats: bool| {
            let attachment = Attachment::Found { config: Some(config.to_owned()) };
            usable(&attachment, &definition, floats).is_ok()
        };
        let ovn = r#"{"type": "ovn-k8s-cni-overlay", "topology": "localnet"}"#;
        let ovn_with_subnets = r#"{"type": "ovn-k8s-cni-overlay", "topology": "layer2", "subnets": "10.1.0.0/24"}"#;
        for (config, alone, by_turns) in [
            ("", true, true),
            (r#"{"type": "macvlan"}"#, false, true),
            (r#"{"type": "macvlan", "ipam": {"type": "static"}}"#, true, true),
            (r#"{"type": "macvlan", "ipam": {"type": "host-local"}}"#, true, false),
            (r#"{"type": "macvlan", "ipam": {"type": "dhcp"}}"#, false, false),
            (r#"{"type": "macvlan", "ipam": {"type": "dhcp"}, "capabilities": {"ips": true}}"#, true, true),
            (ovn, true, false),
            (ovn_with_subnets, false, false),
            ("{", false, false),
        ] {
            assert_eq!((gives(config, false), gives(config, true)), (alone, by_turns), "{config}");
        }
    }
}
