//! What the status says: the conditions of the parts, their sum, and the pair's ids and ports.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use serde_json::json;
use underpass_resources::conditions::{self, Finding, READY, Truth};
use underpass_resources::tunnel_proxy::{
    ContainerNetworkTunnelProxyStatus as Status, ServerState, TunnelState, TunnelStatus,
};

use super::observed::{Engine, Image, Observed, Pair};
use super::{Decision, network, stands_failed, subject};
use crate::plan::{Event, Plan, Severity};
use crate::ready::Ready;

const NETWORK: &str = "NetworkReady";
const IMAGE: &str = "ImageReady";
const CLIENT: &str = "ClientProxyReady";
const SERVER: &str = "ServerProxyReady";
const TUNNELS: &str = "TunnelsReady";
/// Beside the others, and no part of their sum: a server that is not there is no trouble of the tunnel's.
const SERVERS: &str = "ServersReachable";

/// One finding per part, in the order in which they stand on each other.
pub(super) struct Steps {
    network: Finding,
    image: Finding,
    client: Finding,
    server: Finding,
    tunnels: Finding,
    servers: Finding,
}

impl Steps {
    /// What is seen of each part.
    pub(super) fn seen(observed: &Observed) -> Self {
        Self {
            network: match network(observed) {
                Ok((_, name)) => Finding::yes(NETWORK, "NetworkRunning", format!("the engine has the network {name}")),
                Err(why) => Finding::no(NETWORK, "WaitingForNetwork", why),
            },
            image: image(observed),
            client: client(observed),
            server: server(observed),
            tunnels: Finding::no(TUNNELS, "NotRunning", "the pair does not run"),
            servers: Finding::unknown(SERVERS, "NotRunning", "the pair does not run"),
        }
    }

    pub(super) fn client(mut self, reason: &'static str, message: &str) -> Self {
        self.client = Finding::no(CLIENT, reason, message);
        self
    }

    pub(super) fn server(mut self, reason: &'static str, message: &str) -> Self {
        self.server = Finding::no(SERVER, reason, message);
        self
    }

    pub(super) fn tunnels(mut self, reason: &'static str, message: &str) -> Self {
        self.tunnels = Finding::no(TUNNELS, reason, message);
        self
    }

    /// What is left of the halves of a pair that failed.
    pub(super) fn leaving(mut self, observed: &Observed) -> Self {
        self.client = match (&observed.engine, observed.containers()) {
            (Engine::Unavailable { why }, _) if observed.started_client().is_some() => {
                Finding::unknown(CLIENT, "NoContainerEngine", why.as_str())
            }
            (_, [container, ..]) => {
                let what = format!("the pair failed, and the container {} is being removed", container.name);
                Finding::no(CLIENT, "Removing", what)
            }
            (_, []) => Finding::no(CLIENT, "Removed", "the pair failed, and no container of it is left"),
        };
        let alive = observed.started_server().filter(|server| server.ended.is_none());
        self.server = match alive {
            Some(server) => Finding::no(
                SERVER,
                "Removing",
                format!("the pair failed, and the process {} is being ended", server.pid),
            ),
            None => Finding::no(SERVER, "Removed", "the pair failed, and no process of it is left"),
        };
        self
    }

    pub(super) fn with_servers(mut self, statuses: &[TunnelStatus]) -> Self {
        let unreachable = statuses.iter().filter(|status| status.server_state == Some(ServerState::Unreachable));
        let unreachable = first_and_others(unreachable.map(|status| (status, status.server_error.as_deref())));
        let unknown = |status: &&TunnelStatus| !matches!(status.server_state, Some(ServerState::Reachable));
        let unknown: Vec<&str> = statuses.iter().filter(unknown).map(|status| status.name.as_str()).collect();
        self.servers = match (unreachable, unknown.as_slice()) {
            (Some(which), _) => Finding::no(SERVERS, "ServerUnreachable", which),
            (None, _) if statuses.is_empty() => Finding::unknown(SERVERS, "NoTunnels", "no tunnel is asked for"),
            (None, []) => Finding::yes(SERVERS, "ServersReachable", "the server of each tunnel is there"),
            (None, names) => Finding::unknown(
                SERVERS,
                "NotTried",
                format!("nothing has shown yet whether these have a server: {}", names.join(", ")),
            ),
        };
        self
    }

    pub(super) fn with_tunnels(mut self, observed: &Observed, statuses: &[TunnelStatus]) -> Self {
        let gap = matches!(&observed.pair, Pair::Answered { gap: None, .. });
        let waiting = || statuses.iter().filter(|status| status.state != TunnelState::Ready);
        let which = first_and_others(waiting().map(|status| (status, status.error_message.as_deref())));
        self.tunnels = match which {
            None if gap => Finding::yes(TUNNELS, "TunnelsReady", format!("{} ready", counted(statuses))),
            None => Finding::no(TUNNELS, "PairNotConnected", "the two proxies do not reach each other"),
            Some(which) => {
                let failed = waiting().next().is_some_and(|first| first.state == TunnelState::Failed);
                let reason = if failed { "TunnelFailed" } else { "TunnelNotReady" };
                Finding::no(TUNNELS, reason, format!("{} ready; {which}", counted(statuses)))
            }
        };
        self
    }

    /// Ready is all of them; the first that is not says why.
    pub(super) fn sum(&self, statuses: &[TunnelStatus]) -> Ready {
        let Some(first) = self.all().into_iter().find(|finding| finding.status != Truth::True) else {
            return Ready::yes("TunnelsReady", format!("{} ready, and the pair is connected", counted(statuses)));
        };
        let ordinary = matches!(first.reason, "TunnelNotReady" | "PairNotConnected" | "WaitingForNetwork");
        match ordinary {
            true => Ready::not_yet(first.reason, first.message.as_str()),
            false => Ready::no(first.reason, first.message.as_str()),
        }
    }

    fn all(&self) -> [&Finding; 5] {
        [&self.network, &self.image, &self.client, &self.server, &self.tunnels]
    }

    pub(super) fn into_findings(self) -> Vec<Finding> {
        vec![self.network, self.image, self.client, self.server, self.tunnels, self.servers]
    }

    pub(super) fn into_halves(self) -> Vec<Finding> {
        vec![self.client, self.server]
    }
}

/// `a: why; and 2 more: b, c`
fn first_and_others<'a>(mut which: impl Iterator<Item = (&'a TunnelStatus, Option<&'a str>)>) -> Option<String> {
    let (first, why) = which.next()?;
    let first = format!("{}: {}", first.name, why.unwrap_or_default());
    let others: Vec<&str> = which.map(|(status, _)| status.name.as_str()).collect();
    Some(match others.as_slice() {
        [] => first,
        others => format!("{first}; and {} more: {}", others.len(), others.join(", ")),
    })
}

fn image(observed: &Observed) -> Finding {
    match &observed.image {
        Image::Ready { reference } => Finding::yes(IMAGE, "ImageThere", format!("the engine has {reference}")),
        _ if observed.started_client().is_some() => {
            Finding::yes(IMAGE, "ImageInUse", "the client proxy was started from its image")
        }
        Image::Failed { message, .. } => Finding::no(IMAGE, "ImageFailed", message.as_str()),
        Image::Unknown | Image::Looking | Image::Working => {
            Finding::no(IMAGE, "ImageNotThere", "the image is not known to be there")
        }
    }
}

fn client(observed: &Observed) -> Finding {
    match (&observed.engine, observed.client()) {
        (Engine::Unavailable { why }, _) if observed.started_client().is_some() => {
            Finding::unknown(CLIENT, "NoContainerEngine", why.as_str())
        }
        (_, Some(container)) if container.running => {
            Finding::yes(CLIENT, "Running", format!("the container {} runs", container.name))
        }
        _ => Finding::no(CLIENT, "NotStarted", "the client proxy was not started yet"),
    }
}

fn server(observed: &Observed) -> Finding {
    match (observed.started_server(), &observed.pair) {
        (None, _) => Finding::no(SERVER, "NotStarted", "the server proxy was not started yet"),
        (Some(_), Pair::Silent { why }) => Finding::no(SERVER, "NoAnswer", why.as_str()),
        (Some(server), _) => Finding::yes(SERVER, "Running", format!("the process {} runs", server.pid)),
    }
}

impl Decision {
    pub(super) fn into_plan(self, observed: &Observed) -> Plan {
        let mut stored = observed.object.status.clone().unwrap_or_default();
        // Conditions of other writers are theirs: neither compared nor sent.
        let ours = [READY, NETWORK, IMAGE, CLIENT, SERVER, TUNNELS, SERVERS];
        stored.conditions.retain(|condition| ours.contains(&condition.type_.as_str()));
        let mut status = self.status(observed, &stored);
        status.conditions = stored.conditions.clone();
        let generation = status.observed_generation;
        let event = self.ready.record(&mut status.conditions, generation, observed.now);
        let news = self.findings.iter().filter_map(|finding| news_of_servers(finding, &status.conditions));
        let events = event.into_iter().chain(news).chain(back(&status, &stored)).collect();
        for finding in self.findings {
            conditions::set(&mut status.conditions, finding, generation, &Time(observed.now));
        }
        Plan {
            subject: subject(observed),
            finalizer: self.finalizer,
            status: (status != stored).then(|| json!(status)),
            events,
            actions: self.actions,
            look_again_after: self.look_again_after,
            reasons: vec![self.because],
        }
    }

    fn status(&self, observed: &Observed, stored: &Status) -> Status {
        let statuses = &self.tunnels.statuses;
        let ready = statuses.iter().filter(|status| status.state == TunnelState::Ready).count();
        let changed = *statuses != stored.tunnel_statuses;
        let version = stored.tunnel_configuration_version.unwrap_or_default();
        let image = match &observed.image {
            Image::Ready { reference } => Some(reference.clone()),
            _ => stored.client_proxy_container_image.clone(),
        };
        let status = Status {
            observed_generation: Self::observed_generation(observed, stored),
            state: Some(self.state),
            message: self.message.clone(),
            tunnel_statuses: statuses.clone(),
            tunnels_ready: Some(format!("{ready}/{}", statuses.len())),
            tunnel_configuration_version: Some(version + i32::from(changed)),
            client_proxy_container_image: image,
            restart_count: self.restarts.count,
            restarts_in_a_row: self.restarts.in_a_row,
            next_restart_timestamp: self.restarts.not_before.clone(),
            ..Status::default()
        };
        if self.shows_pair { with_pair(status, observed, stored) } else { status }
    }

    /// A failure of an earlier spec that is still being cleaned up says nothing about the new one.
    fn observed_generation(observed: &Observed, stored: &Status) -> Option<i64> {
        if stands_failed(observed) { stored.observed_generation } else { observed.object.metadata.generation }
    }
}

/// Once when a server turns out to be missing, and once when all are there again.
fn news_of_servers(finding: &Finding, stored: &[Condition]) -> Option<Event> {
    let was_missing = conditions::find(stored, SERVERS).is_some_and(|old| old.status == Truth::False.as_str());
    let severity = match (finding.type_, finding.status, was_missing) {
        (SERVERS, Truth::False, false) => Severity::Warning,
        (SERVERS, Truth::True, true) => Severity::Normal,
        _ => return None,
    };
    Some(Event { severity, reason: finding.reason, note: finding.message.clone() })
}

/// Each server that was told to be missing and is there, while others are not: of all the condition tells.
fn back(status: &Status, stored: &Status) -> Vec<Event> {
    let there = |status: &TunnelStatus| status.server_state == Some(ServerState::Reachable);
    if status.tunnel_statuses.iter().all(there) {
        return Vec::new();
    }
    let was_missing = |name: &str| {
        let before = stored.tunnel_statuses.iter().find(|status| status.name == name);
        before.is_some_and(|status| status.server_state == Some(ServerState::Unreachable))
    };
    let back = status.tunnel_statuses.iter().filter(|status| there(status) && was_missing(&status.name));
    let event = |status: &TunnelStatus| Event {
        severity: Severity::Normal,
        reason: "ServerReachable",
        note: format!("the server of the tunnel {} is there again", status.name),
    };
    back.map(event).collect()
}

fn with_pair(mut status: Status, observed: &Observed, stored: &Status) -> Status {
    status.client_proxy_container_id = observed.started_client().map(|client| client.container_id.clone());
    match observed.client() {
        Some(container) => {
            status.client_proxy_control_port = container.control_port;
            status.client_proxy_data_port = container.data_port;
        }
        None => {
            status.client_proxy_control_port = stored.client_proxy_control_port;
            status.client_proxy_data_port = stored.client_proxy_data_port;
        }
    }
    if let Some(server) = observed.started_server() {
        status.server_proxy_process_id = Some(server.pid.into());
        status.server_proxy_startup_timestamp = Some(MicroTime(server.started_at));
        status.server_proxy_std_out_file = Some(server.std_out_file.clone());
        status.server_proxy_std_err_file = Some(server.std_err_file.clone());
        status.server_proxy_control_port = Some(server.control_port);
    }
    status
}

fn counted(statuses: &[TunnelStatus]) -> String {
    let ready = statuses.iter().filter(|status| status.state == TunnelState::Ready).count();
    match statuses.len() {
        0 => "no tunnel is asked for: the pair is".to_owned(),
        1 => format!("{ready} of 1 tunnel is"),
        all => format!("{ready} of {all} tunnels are"),
    }
}
