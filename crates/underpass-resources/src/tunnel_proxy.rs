//! ContainerNetworkTunnelProxy: a pair of proxies that lets containers on a network reach servers on the host.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::address::{Host, IpAddress};
use crate::name::{DomainName, Image, Label, ObjectName};
use crate::number_or_text::NumberOrText;
use crate::rules::{at, fixed, fixed_optional, fixed_set, here};

/// Where the client proxy takes orders and data connections, inside its container: no tunnel can have these ports.
pub const CONTROL_PORT: u16 = 15_049;
pub const DATA_PORT: u16 = 15_050;

/// The network of the containers, and the servers that they are to reach.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "underpass.dev",
    version = "v1alpha1",
    kind = "ContainerNetworkTunnelProxy",
    plural = "containernetworktunnelproxies",
    shortname = "cntp",
    doc = "Lets containers on a Podman or Docker network reach servers on the host, servers on 127.0.0.1 included: a client proxy stands on the network, a server proxy on the host, and each tunnel is a port of the former that leads to one server.",
    status = "ContainerNetworkTunnelProxyStatus",
    derive = "PartialEq",
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Network", type_ = "string", json_path = ".spec.containerNetworkName"),
    printcolumn(
        name = "Tunnels",
        type_ = "string",
        json_path = ".status.tunnelsReady",
        description = "Tunnels that are Ready, of all"
    ),
    printcolumn(name = "Restarts", type_ = "integer", json_path = ".status.restartCount", priority = "1"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = fixed("containerNetworkName"),
    validation = fixed_set("aliases"),
    validation = fixed_optional("baseImage"),
    validation = at(
        ".aliases",
        "!has(self.aliases) || !self.aliases.exists(a, a.lowerAscii() == 'localhost')",
        "localhost leads every container to itself, whatever a network says; choose another alias, for example host.internal"
    ),
    // Quadratic, so a longer list is left to the controller, which reports the second tunnel as Failed.
    validation = at(
        ".tunnels",
        "!has(self.tunnels) || size(self.tunnels) > 64 || self.tunnels.filter(t, has(t.clientProxyPort)).all(t, \
         self.tunnels.exists_one(o, has(o.clientProxyPort) && o.clientProxyPort == t.clientProxyPort && o.protocol == t.protocol))",
        "two tunnels ask for the same clientProxyPort; give each tunnel its own, or leave it out to have one chosen"
    )
)]
pub struct ContainerNetworkTunnelProxySpec {
    /// Name of the ContainerNetwork whose containers are to be served. It need not exist yet. Cannot be changed.
    pub container_network_name: ObjectName,

    /// Names by which containers on the network find the client proxy, for example host.internal. Cannot be changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "set"))]
    pub aliases: Vec<DomainName>,

    /// The tunnels. They may be added, changed and removed at any time; a changed tunnel is closed and opened again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub tunnels: Vec<Tunnel>,

    /// Image to build the client proxy's image on. Left out: an image of nothing but our program, made without any build or pull.
    /// Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_image: Option<Image>,

    /// What happens when one of the two proxies dies. Never: the state becomes Failed and everything is cleaned up. Always: the pair
    /// is started again, with growing pauses.
    #[serde(default)]
    pub restart_policy: RestartPolicy,
}

/// What happens when one of the two proxies dies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestartPolicy {
    #[default]
    Never,
    Always,
}

/// One way from the network to one server, which is named by address and port, or by Service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = here(
        "has(self.serverServiceName) != (has(self.serverAddress) || has(self.serverPort))",
        "name the server in exactly one way: either serverAddress and serverPort, or serverServiceName"
    ),
    validation = at(
        ".serverPort",
        "!has(self.serverAddress) || has(self.serverPort)",
        "serverPort is missing; serverAddress and serverPort go together"
    ),
    validation = at(
        ".serverAddress",
        "!has(self.serverPort) || has(self.serverAddress)",
        "serverAddress is missing; serverAddress and serverPort go together, for example serverAddress: 127.0.0.1"
    ),
    validation = at(
        ".serverAddress",
        "!has(self.serverAddress) || !self.serverAddress.matches('^(0[.]0[.]0[.]0|[0:]*:[0:]*)$')",
        "serverAddress is where to listen, not where a server is; write 127.0.0.1 or ::1 for one on this host"
    ),
    validation = at(
        ".serverAddress",
        "!has(self.serverAddress) || !self.serverAddress.matches('^((22[4-9]|23[0-9])[.][0-9]+[.][0-9]+[.][0-9]+|[fF][fF][0-9a-fA-F]{2}:.*)$')",
        "serverAddress is a multicast address, which stands for many; a tunnel leads to one server"
    ),
    validation = at(
        ".serverServiceName",
        "has(self.serverServiceName) || !(has(self.serverServiceNamespace) || has(self.serverServicePort))",
        "serverServiceNamespace and serverServicePort belong to serverServiceName; add it, or remove them"
    ),
    validation = at(
        ".clientProxyPort",
        format!("!has(self.clientProxyPort) || self.protocol != 'TCP' || (self.clientProxyPort != {CONTROL_PORT} && self.clientProxyPort != {DATA_PORT})"),
        format!("the client proxy itself listens on {CONTROL_PORT} and {DATA_PORT}; choose another clientProxyPort, or leave it out to have one chosen")
    ),
    validation = at(
        ".clientServiceName",
        "has(self.clientServiceName) || !has(self.clientServiceNamespace)",
        "clientServiceNamespace belongs to clientServiceName; add it, or remove clientServiceNamespace"
    )
)]
pub struct Tunnel {
    /// Name of the tunnel, unique in this object.
    pub name: Label,

    /// Host name or address of the server as seen from the host, for example 127.0.0.1. Needs serverPort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_address: Option<Host>,

    /// Port of the server. Needs serverAddress.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub server_port: Option<u16>,

    /// Service that leads to the server, in place of serverAddress and serverPort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_service_name: Option<Label>,

    /// Namespace of that Service. Left out: default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_service_namespace: Option<Label>,

    /// Port of that Service, by number or name. May be left out when it has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "service_port")]
    pub server_service_port: Option<NumberOrText>,

    /// Service whose endpoints are to show where containers reach this tunnel. Left out: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_service_name: Option<Label>,

    /// Namespace of that Service. Left out: default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_service_namespace: Option<Label>,

    /// Port on the client proxy that containers connect to. Left out: the server's port if it is free, else another; either way it
    /// stays the same across restarts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub client_proxy_port: Option<u16>,

    /// TCP or UDP.
    #[serde(default)]
    pub protocol: TunnelProtocol,

    /// How many connections the tunnel carries at once; more are refused. Left out: half of what its pair can carry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_connections: Option<u32>,
}

/// What a tunnel carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum TunnelProtocol {
    #[default]
    Tcp,
    Udp,
}

/// Where a tunnel's server is, as its spec says.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerReference<'a> {
    Address { host: &'a str, port: u16 },
    Service { namespace: &'a str, name: &'a str, port: Option<&'a NumberOrText> },
}

impl Tunnel {
    /// The server that is meant; `None` for a tunnel that names none or two, which validation refuses.
    pub fn server(&self) -> Option<ServerReference<'_>> {
        match (&self.server_address, self.server_port, &self.server_service_name) {
            (Some(host), Some(port), None) => Some(ServerReference::Address { host, port }),
            (None, None, Some(name)) => Some(ServerReference::Service {
                namespace: self.server_service_namespace.as_deref().unwrap_or("default"),
                name,
                port: self.server_service_port.as_ref(),
            }),
            _ => None,
        }
    }
}

/// What became of the pair and of its tunnels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerNetworkTunnelProxyStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Ready sums up NetworkReady, ImageReady, ClientProxyReady, ServerProxyReady and TunnelsReady: it says that containers reach the
    /// host. ServersReachable says whether something answers there, and is no part of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::conditions::schema")]
    pub conditions: Vec<Condition>,

    /// Where the pair is in its life.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<TunnelProxyState>,

    /// Why it is there, when that is not obvious.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// One entry per tunnel, sorted by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub tunnel_statuses: Vec<TunnelStatus>,

    /// How many tunnels are Ready, of how many, for example 2/3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnels_ready: Option<String>,

    /// Grows whenever the status of a tunnel changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel_configuration_version: Option<i32>,

    /// Image of the client proxy, with its tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_proxy_container_image: Option<String>,

    /// The engine's id of the client proxy's container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_proxy_container_id: Option<String>,

    /// Port on 127.0.0.1 at which the client proxy takes commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_proxy_control_port: Option<u16>,

    /// Port on 127.0.0.1 at which the client proxy takes data connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_proxy_data_port: Option<u16>,

    /// Process of the server proxy on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_proxy_process_id: Option<i64>,

    /// When that process was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_proxy_startup_timestamp: Option<MicroTime>,

    /// File with the standard output of the server proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_proxy_std_out_file: Option<String>,

    /// File with the standard error of the server proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_proxy_std_err_file: Option<String>,

    /// Port on 127.0.0.1 at which the server proxy takes commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_proxy_control_port: Option<u16>,

    /// How often the pair was started again (restartPolicy Always).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_count: Option<i32>,

    /// How often it was since the pair has last lived a minute: the pauses before its starts double with it (restartPolicy Always).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts_in_a_row: Option<i32>,

    /// Before this moment a pair that died is not started again (restartPolicy Always).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_restart_timestamp: Option<MicroTime>,
}

/// Where the pair is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TunnelProxyState {
    Pending,
    BuildingImage,
    Starting,
    Running,
    Failed,
}

/// What became of one tunnel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TunnelStatus {
    /// Name of the tunnel.
    pub name: String,

    /// The pair's own number for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel_id: Option<i64>,

    /// Whether containers can use it.
    pub state: TunnelState,

    /// Why it is not Ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,

    /// Addresses of the client proxy on the network, while the tunnel is Ready; never loopback.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "set"))]
    pub client_proxy_addresses: Vec<IpAddress>,

    /// Port on those addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_proxy_port: Option<u16>,

    /// The port that a tunnel that is not Ready had, and is going to have again if it is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_client_proxy_port: Option<u16>,

    /// Whether the server on the host is there. Unknown: not tried yet, or no datagram has come back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_state: Option<ServerState>,

    /// Why the server could not be reached when that was tried last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_error: Option<String>,

    /// When this entry last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<MicroTime>,
}

/// Whether containers can use a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TunnelState {
    NotReady,
    Ready,
    Failed,
}

/// Whether a tunnel's server is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServerState {
    Unknown,
    Reachable,
    Unreachable,
}

fn service_port(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "maxLength": 63,
        "x-kubernetes-validations": [{
            "rule": "type(self) == string || (self >= 1 && self <= 65535)",
            "message": "is not a port; write a number from 1 to 65535, or the name of a port of the Service",
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_in_exactly_one_way() {
        let mut tunnel =
            Tunnel { server_address: Some("127.0.0.1".into()), server_port: Some(80), ..Tunnel::default() };
        assert_eq!(tunnel.server(), Some(ServerReference::Address { host: "127.0.0.1", port: 80 }));
        tunnel.server_service_name = Some("web".into());
        assert_eq!(tunnel.server(), None);
        tunnel.server_address = None;
        tunnel.server_port = None;
        assert_eq!(tunnel.server(), Some(ServerReference::Service { namespace: "default", name: "web", port: None }));
    }
}
