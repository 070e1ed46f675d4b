//! GatewayClient: one client pod behind a gateway, and the event that asked for it.
//!
//! It outlives its pod, so that an event that arrives again finds what became of it the first time.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::address::IpAddress;
use crate::compute::Resources;
use crate::name::{Image, Label, LabelValue};
use crate::rules::{fixed, fixed_optional};

/// Which gateway, which pod, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "underpass.dev",
    version = "v1alpha1",
    kind = "GatewayClient",
    plural = "gatewayclients",
    shortname = "gwc",
    namespaced,
    doc = "One client pod whose traffic goes through an EgressGateway and no other way; usually made for an event, whose answer it keeps.",
    status = "GatewayClientStatus",
    derive = "PartialEq",
    printcolumn(name = "Gateway", type_ = "string", json_path = ".spec.gatewayName"),
    printcolumn(name = "Pod", type_ = "string", json_path = ".status.podName"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Event", type_ = "string", json_path = ".spec.event.id", priority = "1"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = fixed("gatewayName"),
    validation = fixed_optional("event"),
    validation = fixed("image"),
    validation = fixed("command"),
    validation = fixed_optional("serviceAccountName"),
    validation = fixed_optional("resources")
)]
pub struct GatewayClientSpec {
    /// What the gateway is asked for by: the gatewayValue of an EgressGateway, which is its name unless it says otherwise. Cannot be
    /// changed.
    pub gateway_name: LabelValue,

    /// The event that asked for this client. Left out: nobody did by an event. Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<EventReference>,

    /// Image of the client. Cannot be changed.
    #[serde(default = "default_image")]
    pub image: Image,

    /// Command of the client. Cannot be changed.
    #[serde(default = "default_command")]
    #[schemars(length(min = 1, max = 64), inner(length(max = 4096)))]
    pub command: Vec<String>,

    /// ServiceAccount of the client's pod. Left out: default, without its token. Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<Label>,

    /// Processor and memory of the client. Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,

    /// Seconds after which the client's pod is removed. Left out: when this object is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 31_536_000))]
    pub ttl_seconds: Option<u32>,
}

/// A CloudEvent, by what makes it unique.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventReference {
    /// The event's source.
    #[schemars(length(min = 1, max = 2048))]
    pub source: String,

    /// The event's id, unique together with its source.
    #[schemars(length(min = 1, max = 1024))]
    pub id: String,

    /// The event's type.
    #[serde(rename = "type", default = "default_event_type")]
    #[schemars(length(min = 1, max = 256))]
    pub type_: String,

    /// The event's trace context, handed on in the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub traceparent: Option<String>,

    /// The message that came with the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub message: Option<String>,
}

fn default_image() -> Image {
    "alpine/curl".into()
}

fn default_command() -> Vec<String> {
    vec!["sleep".into(), "infinity".into()]
}

fn default_event_type() -> String {
    "io.podgateway.client.pending".into()
}

/// What became of the client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayClientStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::conditions::schema")]
    pub conditions: Vec<Condition>,

    /// Where the client is in its life.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<ClientState>,

    /// Name of the client's pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,

    /// Its address in the tunnel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddress>,

    /// When client and gateway last agreed on keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_handshake_time: Option<MicroTime>,

    /// The answer to the event; sent again, unchanged, when the event arrives again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<EventReply>,
}

/// Where a client is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClientState {
    Pending,
    Starting,
    Routed,
    Failed,
    Terminated,
}

/// The answer to an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventReply {
    /// The answer's id.
    pub id: String,

    /// The answer's type.
    #[serde(rename = "type")]
    pub type_: String,

    /// The answer's message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// When it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<MicroTime>,
}
