//! Workstation: a developer's machine, joined to the cluster for as long as it says that it is alive.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::address::{Cidr, IpAddress};
use crate::name::PublicKey;
use crate::rules::at;

/// Who the machine is, and how long it may be silent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "underpass.dev",
    version = "v1alpha1",
    kind = "Workstation",
    plural = "workstations",
    shortname = "ws",
    namespaced,
    doc = "A developer's machine, joined to the cluster by WireGuard. Its private key never leaves it; only the public one stands here.",
    status = "WorkstationStatus",
    derive = "PartialEq",
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.address"),
    printcolumn(name = "Transport", type_ = "string", json_path = ".status.transport"),
    printcolumn(name = "Intercepts", type_ = "integer", json_path = ".status.intercepts"),
    printcolumn(name = "Heartbeat", type_ = "date", json_path = ".status.lastHeartbeatTime")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = at(
        ".fallbackAfterSeconds",
        "self.fallbackAfterSeconds < self.restoreAfterSeconds",
        "fallbackAfterSeconds must be shorter than restoreAfterSeconds: traffic first falls back, then everything is restored"
    ),
    validation = at(
        ".fallbackAfterSeconds",
        "self.heartbeatSeconds < self.fallbackAfterSeconds",
        "fallbackAfterSeconds must be longer than heartbeatSeconds, else a machine on time counts as late"
    )
)]
pub struct WorkstationSpec {
    /// WireGuard public key of the machine, as `wg pubkey` prints it.
    pub public_key: PublicKey,

    /// Networks on the machine that the cluster may reach, such as that of its containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "set"))]
    pub subnets: Vec<Cidr>,

    /// How packets travel. Auto: by UDP if that gets through, else in a stream through the Kubernetes API. UDP or Stream: only so.
    #[serde(default)]
    pub transport: Transport,

    /// Largest packet inside the tunnel. Left out: found out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1280, max = 9000))]
    pub mtu: Option<u32>,

    /// Seconds between two heartbeats of the machine.
    #[serde(default = "default_heartbeat")]
    #[schemars(range(min = 1, max = 300))]
    pub heartbeat_seconds: u32,

    /// Seconds without a heartbeat after which traffic falls back to the originals.
    #[serde(default = "default_fallback")]
    #[schemars(range(min = 2, max = 3600))]
    pub fallback_after_seconds: u32,

    /// Seconds without a heartbeat after which everything is restored and the machine's intercepts end.
    #[serde(default = "default_restore")]
    #[schemars(range(min = 10, max = 86_400))]
    pub restore_after_seconds: u32,
}

/// How packets between the cluster and a workstation travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Transport {
    #[default]
    Auto,
    #[serde(rename = "UDP")]
    Udp,
    Stream,
}

fn default_heartbeat() -> u32 {
    5
}

fn default_fallback() -> u32 {
    20
}

fn default_restore() -> u32 {
    600
}

/// What the cluster knows of the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkstationStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::conditions::schema")]
    pub conditions: Vec<Condition>,

    /// Where the machine is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<WorkstationState>,

    /// The machine's address in the tunnel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddress>,

    /// WireGuard public key of the cluster's end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_public_key: Option<PublicKey>,

    /// Addresses and ports at which the cluster's end can be reached by UDP.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub endpoints: Vec<String>,

    /// How packets travel at the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,

    /// When the machine last said that it is alive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_time: Option<MicroTime>,

    /// When the two ends last agreed on keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_handshake_time: Option<MicroTime>,

    /// How many intercepts lead to the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intercepts: Option<i32>,
}

/// Where a workstation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WorkstationState {
    Pending,
    Connected,
    Late,
    Gone,
}
