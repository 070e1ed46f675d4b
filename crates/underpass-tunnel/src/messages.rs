//! What is said over control connections: requests with numbers, answers that name them, and wishes that nobody answers.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::handshake::Kind;

/// Tunnels of one pair.
pub const MOST_TUNNELS: usize = 512;
/// Tunnels in one page of a list: each has hundreds of bytes and some more for every address.
pub(crate) const PAGE: usize = 32;
/// The number under which the pair examines itself; no tunnel can have it.
pub(crate) const PROBE: u32 = u32::MAX;

const LONGEST_HOST: usize = 253;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    Tcp,
    Udp,
}

/// A tunnel that is to exist. Preparing the same again changes nothing; preparing another one under the same number replaces it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Prepare {
    /// Chosen by whoever asks, unique in a pair.
    pub number: u32,
    pub protocol: Protocol,
    /// A name or an address, as the server half sees it.
    pub server_address: String,
    pub server_port: u16,
    /// Where the client half listens; None: any port, and the same one for as long as the tunnel exists.
    #[serde(default)]
    pub client_port: Option<u16>,
    /// Whether any other port will do when that one is taken.
    #[serde(default)]
    pub or_any: bool,
    /// Streams, or flows of datagrams, at a time.
    #[serde(default)]
    pub max_streams: Option<u32>,
}

/// Where clients reach a tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prepared {
    /// All addresses of the client half but its loopback.
    pub addresses: Vec<IpAddr>,
    pub port: u16,
}

/// How a pair does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// Whether the client half can be given orders at the moment.
    pub connected: bool,
    /// Why not, or what went wrong last.
    pub trouble: Option<String>,
    pub data: Vec<DataSeen>,
    /// What the client half says of itself, when it is connected.
    pub client: Option<ClientSeen>,
    /// By number.
    pub tunnels: Vec<TunnelSeen>,
}

/// A part of a list that fits into a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page {
    pub(crate) listed: Listed,
    /// The number with which to go on.
    pub(crate) next: Option<u32>,
}

/// Data connections of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataSeen {
    pub carries: String,
    pub idle: usize,
    pub dialling: usize,
    pub trouble: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientSeen {
    pub refused: RefusalCounts,
    /// Numbers of the tunnels that it listens for.
    pub tunnels: Vec<u32>,
}

/// Connections to the client half's ports that were turned away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RefusalCounts {
    pub wrong_key: u64,
    pub late: u64,
    pub foreign: u64,
    pub left: u64,
    pub crowded: u64,
    pub tls: u64,
    /// Of tunnels: there were as many as there may be.
    pub full: u64,
}

/// How a tunnel does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TunnelSeen {
    #[serde(flatten)]
    pub asked: Prepare,
    #[serde(flatten)]
    pub prepared: Prepared,
    /// Streams that are open, and all that ever were.
    pub active: u32,
    pub total: u64,
    /// Towards the server, of streams that have ended.
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub dial_failures: u64,
    pub server: ServerSeen,
    /// Why clients cannot reach it at the moment, where that is known.
    pub trouble: Option<String>,
}

/// Whether a tunnel's server is there, as far as that is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServerSeen {
    Unknown,
    Reachable,
    /// Why it could not be reached when that was tried last.
    Unreachable(String),
}

/// A few bytes went from the client half through the server half and back, as those of a client do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probed {
    pub micros: u64,
}

/// To the server half.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ServerRequest {
    Prepare(Prepare),
    Delete(Number),
    /// From this number on.
    List(Number),
    Probe,
    /// Answered without asking anybody.
    Ping,
    Shutdown,
}

/// To the client half.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ClientRequest {
    Listen(Listen),
    /// So many streams and flows the server half can carry, of all tunnels together.
    Limit(Number),
    Delete(Number),
    Status,
    Probe,
    Ping,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Number {
    pub(crate) number: u32,
}

/// What the client half has to know of a tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Listen {
    pub(crate) number: u32,
    pub(crate) protocol: Protocol,
    pub(crate) port: Option<u16>,
    /// Whether any other port will do when that one is taken.
    pub(crate) or_any: bool,
    pub(crate) max_streams: Option<u32>,
}

/// A request on its way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked<R> {
    pub(crate) id: u64,
    pub(crate) request: R,
}

/// What comes back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Told {
    Answer { id: u64, answer: Value },
    Error { id: u64, error: String },
    Unasked(Unasked),
}

/// What is told without a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Unasked {
    Want(Want),
    /// Of a tunnel's server something else is known than before: a list tells what.
    News,
}

/// So many clients wait for a data connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Want {
    pub(crate) kind: Kind,
    pub(crate) count: usize,
}

impl Prepare {
    /// A tunnel for TCP, at any port and without a limit of its own.
    pub fn new(number: u32, server_address: impl Into<String>, server_port: u16) -> Self {
        let (protocol, server_address) = (Protocol::Tcp, server_address.into());
        Self { number, protocol, server_address, server_port, client_port: None, or_any: false, max_streams: None }
    }

    /// What is wrong with it: the field and the reason.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.number == PROBE {
            return Err(format!("number: {PROBE} is taken; choose a smaller one"));
        }
        if self.server_address.is_empty() || self.server_address.len() > LONGEST_HOST {
            return Err(format!(
                "serverAddress: needs 1 to {LONGEST_HOST} characters, has {}",
                self.server_address.len()
            ));
        }
        if self.server_address.chars().any(|char| char.is_control() || char.is_whitespace()) {
            return Err("serverAddress: is neither a name nor an address".to_owned());
        }
        if self.server_port == 0 {
            return Err("serverPort: must be 1 to 65535".to_owned());
        }
        if self.client_port == Some(0) {
            return Err("clientPort: must be 1 to 65535; leave it out for any".to_owned());
        }
        if self.max_streams == Some(0) {
            return Err("maxStreams: must be 1 or more; delete the tunnel to have none".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_with_its_field() {
        let good = Prepare::new(1, "127.0.0.1", 80);
        assert_eq!(good.check(), Ok(()));
        let wrong = [
            (Prepare { number: PROBE, ..good.clone() }, "number"),
            (Prepare { server_address: String::new(), ..good.clone() }, "serverAddress"),
            (Prepare { server_address: "a b".into(), ..good.clone() }, "serverAddress"),
            (Prepare { server_address: "a".repeat(254), ..good.clone() }, "serverAddress"),
            (Prepare { server_port: 0, ..good.clone() }, "serverPort"),
            (Prepare { client_port: Some(0), ..good.clone() }, "clientPort"),
            (Prepare { max_streams: Some(0), ..good }, "maxStreams"),
        ];
        for (prepare, field) in wrong {
            assert!(prepare.check().unwrap_err().starts_with(&format!("{field}: ")), "{field}");
        }
    }
}
