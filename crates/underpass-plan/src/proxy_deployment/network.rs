//! The secondary network: whether its definition can be used, and what the pods ask of it.

use std::net::IpAddr;

use serde_json::{Value, json};
use underpass_resources::address::Cidr;
use underpass_resources::attachment::ResolvedAttachment;
use underpass_resources::conditions::Finding;

use super::{Attachment, Observed};
use crate::proxy_server::key;

pub(super) const NETWORK_READY: &str = "NetworkReady";
pub(super) const NOT_FOUND: &str = "NADNotFound";

/// The size of a network about which nobody says anything.
const USUAL_PREFIX: (u8, u8) = (24, 64);
/// What the pods of a proxy with several replicas have on the network until one of them gets serverIP: some plugins want every pod to have
/// an address. Nobody asks for this one, so that all can have the same.
const PLACEHOLDER: &str = "169.254.254.254/32";

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
}

impl Network {
    pub(super) fn of(observed: &Observed) -> Self {
        let spec = &observed.object.spec;
        let wanted = spec.network_config.attachment.resolve(key(&observed.object.metadata).0);
        let (Some(definition), Some(address)) = (wanted, spec.network_config.server_ip.address()) else {
            return Self::Pods;
        };
        let floats = spec.replicas > 1;
        let config = match usable(&observed.attachment, &definition, floats) {
            Ok(config) => config,
            Err(finding) => return Self::Unusable(finding),
        };
        let known = spec
            .network_config
            .server_ip
            .prefix_length()
            .or_else(|| observed.infra_network.as_ref().and_then(Cidr::parts).map(|(_, prefix)| prefix))
            .or_else(|| prefix_of(&config));
        let usual = if address.is_ipv4() { USUAL_PREFIX.0 } else { USUAL_PREFIX.1 };
        Self::Joined(Joined {
            definition,
            address,
            prefix: known.unwrap_or(usual),
            prefix_is_assumed: known.is_none(),
            floats,
        })
    }
}

impl Joined {
    pub(super) fn address_with_prefix(&self) -> String {
        format!("{}/{}", self.address, self.prefix)
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
        Attachment::Found { config: None } => return Ok(Value::Null),
        Attachment::Found { config: Some(config) } => config,
    };
    let Ok(config) = serde_json::from_str::<Value>(config) else {
        let message = format!("spec.config of NetworkAttachmentDefinition {namespace}/{name} is not JSON: correct it");
        return no("NADUnsuitable", message);
    };
    if floats && ipam(&config).is_none() || takes_addresses(&config) {
        return Ok(config);
    }
    let message = format!(
        "NetworkAttachmentDefinition {namespace}/{name} cannot give a pod the address that it asks for: its ipam must be of \
         type static or host-local, or a plugin of it must declare capabilities {{\"ips\": true}}"
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

fn takes_addresses(config: &Value) -> bool {
    ipam(config).is_some_and(|ipam| ipam["type"] == "static" || ipam["type"] == "host-local")
        || plugins(config).iter().any(|plugin| plugin["capabilities"]["ips"] == true)
}

/// The size of the network, where the definition says it.
fn prefix_of(config: &Value) -> Option<u8> {
    let ipam = ipam(config)?;
    let said = [&ipam["addresses"][0]["address"], &ipam["subnet"], &ipam["ranges"][0][0]["subnet"], &ipam["range"]];
    said.into_iter().find_map(|text| text.as_str()?.split_once('/')?.1.parse().ok())
}
