//! All that the plan of a tunnel proxy may look at.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use underpass_resources::tunnel_proxy::TunnelProtocol;
use underpass_resources::{ContainerNetwork, ContainerNetworkTunnelProxy};

use crate::plan::{ClientEndpoints, Failure, TunnelRequest};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    pub object: ContainerNetworkTunnelProxy,
    /// The ContainerNetwork that the spec names.
    #[serde(default)]
    pub network: Option<ContainerNetwork>,
    /// The other tunnel proxies on the same network of the engine.
    #[serde(default)]
    pub neighbours: Vec<ContainerNetworkTunnelProxy>,
    /// Other people's containers on that network. Beside a pair that was started these are other instances' client proxies alone.
    #[serde(default)]
    pub bystanders: Vec<Bystander>,
    pub engine: Engine,
    #[serde(default)]
    pub image: Image,
    /// What stands in the pair's folder; `None` when there is no folder.
    #[serde(default)]
    pub folder: Option<Folder>,
    #[serde(default)]
    pub pair: Pair,
    /// For how long one half or both have not answered. No point in time: a clock that is set would be silence, too.
    #[serde(default)]
    pub silent_for: Option<Duration>,
    /// By tunnel number: what the pair refused to prepare.
    #[serde(default)]
    pub refusals: BTreeMap<u32, Refusal<TunnelRequest>>,
    /// What the pair was asked to prepare and has not answered.
    #[serde(default)]
    pub preparing: Vec<TunnelRequest>,
    /// The Services that tunnels lead to, and their endpoints.
    #[serde(default)]
    pub services: Vec<Service>,
    #[serde(default)]
    pub slices: Vec<EndpointSlice>,
    /// The EndpointSlices that were written for this object.
    #[serde(default)]
    pub own_slices: Vec<EndpointSlice>,
    /// Those that could not be written.
    #[serde(default)]
    pub unwritten: Vec<Refusal<ClientEndpoints>>,
    #[serde(default)]
    pub failure: Option<Failure>,
    pub now: Timestamp,
}

/// The container engine as it was seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Engine {
    /// `why` says where it was looked for and what to do.
    Unavailable { why: String },
    /// It answered: the containers that carry this object's uid.
    Available { containers: Vec<Container> },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    pub id: String,
    pub name: String,
    pub running: bool,
    /// Whether it is on its way to another state: what it lacks then says nothing.
    #[serde(default)]
    pub changing: bool,
    /// Whether somebody removes it just now.
    #[serde(default)]
    pub removing: bool,
    #[serde(default)]
    pub created: Option<Timestamp>,
    #[serde(default)]
    pub exit_code: Option<i64>,
    /// The last lines that a container that ended has said.
    #[serde(default)]
    pub last_words: Option<String>,
    /// Ports on the host's 127.0.0.1, as the engine chose them.
    #[serde(default)]
    pub control_port: Option<u16>,
    #[serde(default)]
    pub data_port: Option<u16>,
    /// Its addresses on networks that the host is on too.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// What it is called besides its name, by the network's name; empty where the engine tells of no network.
    #[serde(default)]
    pub aliases: BTreeMap<String, Vec<String>>,
}

/// A container that somebody else has put on the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bystander {
    pub id: String,
    pub name: String,
    #[serde(default)]
    pub created: Option<Timestamp>,
    /// What it is called on the network besides its name.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Whether it is a client proxy of another instance.
    #[serde(default)]
    pub client_proxy: bool,
}

/// The client proxy's image, as far as this process has seen to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Image {
    #[default]
    Unknown,
    /// It is being looked for.
    Looking,
    /// It is being made.
    Working,
    Ready {
        reference: String,
    },
    Failed {
        message: String,
        retry_at: Timestamp,
    },
}

/// What was written down when the pair was started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Folder {
    #[serde(default)]
    pub client: Option<StartedClient>,
    #[serde(default)]
    pub server: Option<StartedServer>,
    /// Whether these controllers have started the pair or seen it alive.
    #[serde(default = "yes")]
    pub watched: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartedClient {
    pub container_id: String,
    pub network_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartedServer {
    pub pid: u32,
    pub control_port: u16,
    pub started_at: Timestamp,
    pub std_out_file: String,
    pub std_err_file: String,
    /// How the process ended, when it is gone.
    #[serde(default)]
    pub ended: Option<String>,
}

/// What the pair answers when it is asked for its tunnels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Pair {
    #[default]
    NotAsked,
    /// The server proxy did not answer.
    Silent { why: String },
    Answered {
        /// Whether the two halves have proven themselves to each other and something crossed between them; if not, why.
        #[serde(default)]
        gap: Option<String>,
        #[serde(default)]
        tunnels: Vec<PreparedTunnel>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreparedTunnel {
    pub number: u32,
    pub protocol: TunnelProtocol,
    pub server_host: String,
    pub server_port: u16,
    #[serde(default)]
    pub max_connections: Option<u32>,
    pub addresses: Vec<IpAddr>,
    pub client_port: u16,
    /// Why clients cannot reach it, where the client half has said so.
    #[serde(default)]
    pub trouble: Option<String>,
    #[serde(default)]
    pub server: Server,
}

/// Whether a tunnel's server is there, as the server proxy sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Server {
    #[default]
    Unknown,
    Reachable,
    Unreachable {
        why: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal<R> {
    /// What was asked for; a refusal says nothing about another request.
    pub request: R,
    pub message: String,
    pub retry_at: Timestamp,
}

impl<R> Refusal<R> {
    /// How long it is not asked for again.
    pub(super) fn wait(&self, now: Timestamp) -> Option<Duration> {
        Duration::try_from(self.retry_at.duration_since(now)).ok().filter(|left| !left.is_zero())
    }
}

fn yes() -> bool {
    true
}

impl Observed {
    pub(super) fn containers(&self) -> &[Container] {
        match &self.engine {
            Engine::Unavailable { .. } => &[],
            Engine::Available { containers } => containers,
        }
    }

    pub(super) fn started_client(&self) -> Option<&StartedClient> {
        self.folder.as_ref()?.client.as_ref()
    }

    pub(super) fn started_server(&self) -> Option<&StartedServer> {
        self.folder.as_ref()?.server.as_ref()
    }

    pub(super) fn is_watched(&self) -> bool {
        self.folder.as_ref().is_none_or(|folder| folder.watched)
    }

    /// The container that was started as the client proxy, if the engine shows it.
    pub(super) fn client(&self) -> Option<&Container> {
        let started = self.started_client()?;
        self.containers().iter().find(|container| container.id == started.container_id)
    }

    pub(super) fn uid(&self) -> String {
        self.object.metadata.uid.clone().unwrap_or_default()
    }
}
