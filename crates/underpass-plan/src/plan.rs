//! The plan: everything that one pass of a reconcile will do, as plain data.

use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use underpass_resources::tunnel_proxy::TunnelProtocol;

use crate::place::Place;

/// What one pass does to one object, in the order of the fields: the finalizer is stored before the first action runs, the status says
/// what was observed (never what is hoped for), and a finalizer is taken away last.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    pub subject: Subject,
    pub finalizer: Finalizer,
    /// The whole status to write; `None` when the stored one already says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Value>,
    pub events: Vec<Event>,
    pub actions: Vec<Action>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "seconds", rename = "lookAgainAfterSeconds")]
    pub look_again_after: Option<Duration>,
    /// Why, in sentences for the person who asks.
    pub reasons: Vec<String>,
}

/// Which object, and which life of it: a plan for an object that was deleted and made again must not hit the new one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    pub api_version: String,
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
}

/// What happens to our one finalizer on the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Finalizer {
    Leave,
    Add(&'static str),
    Remove(&'static str),
}

/// The closed set of things that are done outside of the API.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    CreateNetwork(NetworkRequest),
    RemoveNetwork {
        id: String,
        name: String,
    },
    /// Sees to the client proxy's image in the background; the object is looked at again when it is there or has failed.
    EnsureImage {
        #[serde(skip_serializing_if = "Option::is_none")]
        base: Option<String>,
    },
    StartClient(ClientRequest),
    StartServer(ServerRequest),
    PrepareTunnel(TunnelRequest),
    DeleteTunnel {
        number: u32,
    },
    RemoveContainer {
        id: String,
        name: String,
    },
    StopServer {
        pid: u32,
    },
    /// The pair's secrets, logs and records.
    RemovePairFolder,
    WriteEndpoints(ClientEndpoints),
    RemoveEndpoints {
        namespace: String,
        name: String,
    },
    /// Makes an object of the cluster what this says, and leaves what it does not say.
    ApplyObject {
        place: Place,
        object: Box<Value>,
    },
    DeleteObject {
        place: Place,
        /// A successor of the same name stays.
        uid: String,
    },
    /// Takes back what a pod that is gone has said in its proxy's status.
    ForgetReport {
        pod: String,
    },
}

/// The container of a client proxy. Which ports it listens on is the tunnels' own agreement.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientRequest {
    pub name: String,
    pub image: String,
    pub network_id: String,
    pub network_name: String,
    pub aliases: Vec<String>,
}

/// The process of a server proxy, and where it finds the client proxy.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerRequest {
    /// Each in the order in which they are tried.
    pub control: Vec<SocketAddr>,
    pub data: Vec<SocketAddr>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TunnelRequest {
    pub number: u32,
    pub name: String,
    pub protocol: TunnelProtocol,
    pub server_host: String,
    pub server_port: u16,
    pub client_port: ClientPort,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<u32>,
}

/// The port that containers connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClientPort {
    /// This one, or the tunnel cannot be.
    Fixed(u16),
    /// This one if it is free, else any.
    Preferred(u16),
    Any,
}

/// Where containers reach a tunnel, shown as the endpoints of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientEndpoints {
    pub namespace: String,
    pub name: String,
    pub service: String,
    pub addresses: Vec<String>,
    pub port: u16,
    pub protocol: TunnelProtocol,
    pub ipv6: bool,
    pub owner_name: String,
    pub owner_uid: String,
}

/// A network that a container engine shall make.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkRequest {
    pub name: String,
    /// The name of the object that asks for it.
    pub object: String,
    pub ipv6: bool,
    /// The uid of the object that the network belongs to; it goes into a label, by which a later process knows its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// Something worth telling, once per time that it happens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    pub severity: Severity,
    /// One CamelCase word.
    pub reason: &'static str,
    pub note: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Severity {
    Normal,
    Warning,
}

/// How the last action for this object failed. The driver remembers it, so that the next plan can report it and keep the back-off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    pub cause: Cause,
    pub message: String,
    /// Before this moment the action is not tried again.
    pub retry_at: Timestamp,
    #[serde(default)]
    pub failed_at: Option<Timestamp>,
}

/// Why an action failed, as far as a machine should tell the cases apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    NoContainerEngine,
    NameTaken,
    AddressesExhausted,
    NetworkInUse,
    PortTaken,
    NoImage,
    BuildFailed,
    EngineRefused,
    NetworkGone,
    ClientProxyNotStarted,
    ServerProxyNotStarted,
    NotRemoved,
    NotWritten,
}

impl Cause {
    /// The reason of a condition.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoContainerEngine => "NoContainerEngine",
            Self::NameTaken => "NameTaken",
            Self::AddressesExhausted => "AddressesExhausted",
            Self::NetworkInUse => "NetworkInUse",
            Self::PortTaken => "PortTaken",
            Self::NoImage => "NoImage",
            Self::BuildFailed => "BuildFailed",
            Self::EngineRefused => "EngineRefused",
            Self::NetworkGone => "NetworkGone",
            Self::ClientProxyNotStarted => "ClientProxyNotStarted",
            Self::ServerProxyNotStarted => "ServerProxyNotStarted",
            Self::NotRemoved => "NotRemoved",
            Self::NotWritten => "NotWritten",
        }
    }
}

impl Plan {
    /// A plan that changes nothing.
    pub fn nothing(subject: Subject, reason: impl Into<String>) -> Self {
        Self {
            subject,
            finalizer: Finalizer::Leave,
            status: None,
            events: Vec::new(),
            actions: Vec::new(),
            look_again_after: None,
            reasons: vec![reason.into()],
        }
    }

    /// Whether carrying it out writes anything anywhere.
    pub fn changes_nothing(&self) -> bool {
        self.finalizer == Finalizer::Leave && self.status.is_none() && self.events.is_empty() && self.actions.is_empty()
    }
}

impl Action {
    /// Whether it must not be done when `other`, which comes before it, could not be. Of what is done on a machine each step needs the one
    /// before.
    pub fn builds_on(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::ApplyObject { place, .. }, Self::ApplyObject { place: other, .. }) => {
                match (place.kind.kind, other.kind.kind) {
                    // By these pods are only reached, or fewer of them evicted at once.
                    ("Deployment", "Service" | "PodDisruptionBudget") => false,
                    ("Deployment", _) => true,
                    // The Role has the record of what stands in other namespaces.
                    ("RoleBinding", "Role") => true,
                    _ => false,
                }
            }
            // The pods of before may still use it.
            (Self::DeleteObject { .. }, Self::ApplyObject { place, .. }) => place.kind.kind == "Deployment",
            // A pair that cannot be told of one cannot be told of the next, and would be waited for again.
            (Self::DeleteTunnel { .. }, Self::DeleteTunnel { .. }) => true,
            _ if self.is_of_a_tunnel() || other.is_of_a_tunnel() => false,
            _ => !(self.is_of_an_object() && other.is_of_an_object()),
        }
    }

    /// Of each tunnel by itself: one's trouble is not another's, and a pair is taken away whatever shows it.
    fn is_of_a_tunnel(&self) -> bool {
        matches!(
            self,
            Self::PrepareTunnel(_) | Self::DeleteTunnel { .. } | Self::WriteEndpoints(_) | Self::RemoveEndpoints { .. }
        )
    }

    fn is_of_an_object(&self) -> bool {
        matches!(self, Self::ApplyObject { .. } | Self::DeleteObject { .. } | Self::ForgetReport { .. })
    }
}

impl Subject {
    pub fn new(api_version: &str, kind: &str, metadata: &ObjectMeta) -> Self {
        Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
        }
    }
}

impl Failure {
    /// As it is, with a back-off of at most `longest`.
    pub fn retried_within(&self, longest: Duration) -> Self {
        let soon = self.failed_at.and_then(|failed| failed.checked_add(longest).ok());
        Self { retry_at: soon.map_or(self.retry_at, |soon| soon.min(self.retry_at)), ..self.clone() }
    }

    /// How long to wait until the action may be tried again; `None` when that moment has come.
    pub fn wait(&self, now: Timestamp) -> Option<Duration> {
        let left = self.retry_at.duration_since(now);
        Duration::try_from(left).ok().filter(|left| !left.is_zero())
    }
}

fn seconds<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(|duration| duration.as_secs_f64()).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::{ObjectKind, kind};

    fn place(kind: ObjectKind) -> Place {
        Place { kind, namespace: "hosted".to_owned(), name: "edge".to_owned() }
    }

    fn apply(name: &'static str) -> Action {
        Action::ApplyObject { place: place(kind("v1", name, "")), object: Box::default() }
    }

    fn delete(name: &'static str) -> Action {
        Action::DeleteObject { place: place(kind("v1", name, "")), uid: "u".to_owned() }
    }

    #[test]
    fn nothing_is_done_that_builds_on_what_could_not_be() {
        let binding = apply("RoleBinding");
        assert!(binding.builds_on(&apply("Role")), "it would not be recorded");
        assert!(!binding.builds_on(&binding) && !binding.builds_on(&apply("Service")));
        let deployment = apply("Deployment");
        for (needs, is_needed) in [
            ("ConfigMap", true),
            ("Role", true),
            ("RoleBinding", true),
            ("Service", false),
            ("PodDisruptionBudget", false),
        ] {
            assert_eq!(deployment.builds_on(&apply(needs)), is_needed, "{needs}");
        }
        assert!(delete("ConfigMap").builds_on(&deployment), "the pods of before have it");
        assert!(!delete("RoleBinding").builds_on(&binding) && !delete("Role").builds_on(&delete("Service")));
        assert!(Action::RemovePairFolder.builds_on(&Action::StopServer { pid: 1 }), "who stops next is written there");
    }

    #[test]
    fn one_tunnel_s_endpoints_hold_up_nothing() {
        let remove = |name: &str| Action::RemoveEndpoints { namespace: "a".to_owned(), name: name.to_owned() };
        assert!(!remove("one").builds_on(&remove("other")));
        let container = Action::RemoveContainer { id: "c".to_owned(), name: "c".to_owned() };
        assert!(!container.builds_on(&remove("one")) && !Action::StopServer { pid: 1 }.builds_on(&remove("one")));
        let delete = |number| Action::DeleteTunnel { number };
        assert!(!delete(1).builds_on(&container), "a stray is no tunnel's trouble");
        assert!(delete(2).builds_on(&delete(1)), "it has the same pair");
        assert!(!container.builds_on(&delete(1)) && !Action::StopServer { pid: 1 }.builds_on(&delete(1)));
    }
}
