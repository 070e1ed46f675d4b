//! Containers and images as underpass asks for them and sees them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use jiff::Timestamp;

/// A container that an engine shall make. It never gets more than a program needs that only moves bytes: an unprivileged user, no
/// capabilities, no way to new privileges, a root that cannot be written to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerRequest {
    pub name: String,
    /// The reference or the id of an image that the engine has.
    pub image: String,
    /// Instead of the image's own entry point, if it is not empty.
    pub entrypoint: Vec<String>,
    pub command: Vec<String>,
    /// Never a secret: the engine tells it to everybody who may ask.
    pub environment: BTreeMap<String, String>,
    pub network: Option<NetworkChoice>,
    /// Reachable on the host at 127.0.0.1, at a port that the engine chooses.
    pub published: Vec<Port>,
    pub labels: BTreeMap<String, String>,
    pub limits: Limits,
    /// A folder that [`crate::ContainerEngine::put_files`] may write to. Docker writes nothing into a root that is read-only, so that
    /// it is a volume: with the container's name and labels, because somebody else may remove the container and leave it.
    pub private_folder: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkChoice {
    /// Its id: a name need not be the only one.
    pub id: String,
    /// DNS names of the container on this network.
    pub aliases: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    pub memory_bytes: Option<u64>,
    pub processes: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    pub number: u16,
    pub protocol: Protocol,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    Tcp,
    Udp,
}

/// A file for a container: owned by the user that the container runs as.
#[derive(Clone, PartialEq, Eq)]
pub struct File {
    /// Without the folder.
    pub name: String,
    pub mode: u32,
    pub contents: Vec<u8>,
}

/// A container as the engine describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    pub id: String,
    pub name: String,
    pub state: ContainerState,
    /// To the nanosecond: no two of one engine are of the same time.
    pub created: Option<Timestamp>,
    /// Its first process, as the host numbers it, while it runs.
    pub pid: Option<u32>,
    /// Set when it has ended.
    pub exit_code: Option<i64>,
    /// What the engine says about a start that failed or an end that was forced.
    pub error: Option<String>,
    pub image_id: String,
    pub labels: BTreeMap<String, String>,
    pub published: Vec<Published>,
    /// By the name of the network.
    pub networks: BTreeMap<String, Attachment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerState {
    Created,
    Running,
    Paused,
    /// Between two states, both of which will be seen.
    Changing,
    /// Somebody removes it: it ends, and is gone then.
    Removing,
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Published {
    pub port: Port,
    pub host: SocketAddr,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attachment {
    pub addresses: Vec<IpAddr>,
    pub aliases: Vec<String>,
}

/// An image as the engine describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub id: String,
    pub references: Vec<String>,
    pub labels: BTreeMap<String, String>,
}

impl Port {
    pub fn tcp(number: u16) -> Self {
        Self { number, protocol: Protocol::Tcp }
    }
}

impl Container {
    /// Where a port of it is reachable on the host.
    pub fn published_at(&self, port: Port) -> Option<SocketAddr> {
        self.published.iter().find(|published| published.port == port).map(|published| published.host)
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        };
        write!(f, "{}/{protocol}", self.number)
    }
}

impl std::str::FromStr for Port {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("{text} is not a port");
        let (number, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
        let protocol = match protocol {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            _ => return Err(unknown()),
        };
        Ok(Self { number: number.parse().map_err(|_| unknown())?, protocol })
    }
}

/// Contents are secrets.
impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("name", &self.name).field("mode", &self.mode).finish_non_exhaustive()
    }
}

/// What is left of a container's private folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub name: String,
    pub labels: BTreeMap<String, String>,
}
