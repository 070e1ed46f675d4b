//! ContainerNetwork: a network of a container engine (Podman or Docker) that tunnels can stand on.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::address::{Cidr, IpAddress};
use crate::name::EngineName;
use crate::rules::{at, fixed, fixed_optional};

/// What the network is to be. Nothing here can be changed later: a network of an engine cannot be either.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "underpass.dev",
    version = "v1alpha1",
    kind = "ContainerNetwork",
    plural = "containernetworks",
    shortname = "ctrnet",
    doc = "A network of a container engine (Podman or Docker). Underpass makes it, adopts it or removes it, as the mode says; tunnels stand on it.",
    status = "ContainerNetworkStatus",
    derive = "PartialEq",
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Network", type_ = "string", json_path = ".status.networkName"),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode", priority = "1"),
    printcolumn(name = "Subnets", type_ = "string", json_path = ".status.subnets", priority = "1"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = at(
        ".networkName",
        "has(self.networkName) || (self.mode == 'session' && !self.persistent)",
        "networkName is needed in this mode: the network outlives or precedes this object, so say which one it is"
    ),
    validation = at(
        ".mode",
        "!self.persistent || self.mode in ['session', 'persistent']",
        "persistent: true means mode persistent; leave out persistent, or write mode: persistent"
    ),
    validation = at(
        ".networkName",
        "!has(self.networkName) || !(self.networkName in ['host', 'none'])",
        "host and none are not networks that a tunnel can stand on; name a bridge network"
    ),
    validation = fixed_optional("networkName"),
    validation = fixed("ipv6"),
    validation = fixed("mode"),
    validation = fixed("persistent")
)]
pub struct ContainerNetworkSpec {
    /// Name of the network in the engine. Left out (possible in mode session only): made from the name of this object and random
    /// letters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_name: Option<EngineName>,

    /// Whether containers on the network get IPv6 addresses besides IPv4 ones.
    #[serde(default)]
    pub ipv6: bool,

    /// Who makes and who removes the network. session: made with this object, removed with it. persistent: made if it is not there,
    /// kept. existing: must be there, kept. cleanup: must be there, removed with this object.
    #[serde(default)]
    pub mode: NetworkMode,

    /// Another way to write mode persistent.
    #[serde(default)]
    pub persistent: bool,
}

/// Who makes and who removes the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkMode {
    #[default]
    Session,
    Persistent,
    Existing,
    Cleanup,
}

impl NetworkMode {
    /// Whether the network is made when it is not there.
    pub fn creates(self) -> bool {
        matches!(self, Self::Session | Self::Persistent)
    }

    /// Whether the network is removed together with the object.
    pub fn removes(self) -> bool {
        matches!(self, Self::Session | Self::Cleanup)
    }
}

impl ContainerNetworkSpec {
    /// The mode, with `persistent` taken into account.
    pub fn effective_mode(&self) -> NetworkMode {
        if self.persistent { NetworkMode::Persistent } else { self.mode }
    }
}

/// What the engine says about the network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerNetworkStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::conditions::schema")]
    pub conditions: Vec<Condition>,

    /// Where the network is in its life.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<NetworkState>,

    /// What went wrong, in the engine's words, when something did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// The engine's id of the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,

    /// The engine's name of the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_name: Option<String>,

    /// The engine's driver, usually bridge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,

    /// Whether the network has IPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<bool>,

    /// The networks that addresses are taken from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub subnets: Vec<Cidr>,

    /// The host's addresses on the network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub gateways: Vec<IpAddress>,

    /// The containers on the network, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4096))]
    pub container_ids: Vec<String>,
}

/// Where a network is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NetworkState {
    Pending,
    Running,
    FailedToStart,
    Removing,
    Removed,
    NotFound,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn persistent_wins_over_the_default_mode() {
        let spec = ContainerNetworkSpec { persistent: true, ..ContainerNetworkSpec::default() };
        assert_eq!(spec.effective_mode(), NetworkMode::Persistent);
        assert!(spec.effective_mode().creates() && !spec.effective_mode().removes());
        assert!(!NetworkMode::Cleanup.creates() && NetworkMode::Cleanup.removes());
    }
}
