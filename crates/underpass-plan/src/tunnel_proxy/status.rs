//! What the status says: the conditions of the parts, their sum, and the pair's ids and ports.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use serde_json::json;
use underpass_resources::conditions::{self, Finding, READY, Truth};
use underpass_resources::tunnel_proxy::{
    ContainerNetworkTunnelProxyStatus as Status, TunnelProxyState as State, TunnelState, TunnelStatus,
};

use super::observed::{Engine, Image, Observed, Pair};
use super::{Decision, network, subject};
use crate::plan::Plan;
use crate::ready::Ready;

const NETWORK: &str = "NetworkReady";
const IMAGE: &str = "ImageReady";
const CLIENT: &str = "ClientProxyReady";
const SERVER: &str = "ServerProxyReady";
const TUNNELS: &str = "TunnelsReady";

/// One finding per part, in the order in which they stand on each other.
pub(super) struct Steps {
    network: Finding,
    image: Finding,
    client: Finding,
    server: Finding,
    tunnels: Finding,
}

impl Steps {
    /// What is seen of each part.
    pub(super) fn seen(observed: &Observed) -> Self {
        Self {
            network: match network(observed) {
                Ok((_, name)) => Finding::yes(NETWORK, "NetworkRunning", format!("the network {name} is Running")),
                Err(why) => Finding::no(NETWORK, "WaitingForNetwork", why),
            },
            image: image(observed),
            client: client(observed),
            server: server(observed),
            tunnels: Finding::no(TUNNELS, "NotRunning", "the pair does not run"),
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

    pub(super) fn with_tunnels(mut self, observed: &Observed, statuses: &[TunnelStatus]) -> Self {
        let gap = matches!(&observed.pair, Pair::Answered { gap: None, .. });
        self.tunnels = match statuses.iter().find(|status| status.state != TunnelState::Ready) {
            None if gap => Finding::yes(TUNNELS, "TunnelsReady", format!("{} ready", counted(statuses))),
            None => Finding::no(TUNNELS, "PairNotConnected", "the two proxies do not reach each other"),
            Some(worst) => {
                let why = worst.error_message.as_deref().unwrap_or_default();
                let reason = if worst.state == TunnelState::Failed { "TunnelFailed" } else { "TunnelNotReady" };
                Finding::no(TUNNELS, reason, format!("{} ready; {}: {why}", counted(statuses), worst.name))
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

    fn into_findings(self) -> [Finding; 5] {
        [self.network, self.image, self.client, self.server, self.tunnels]
    }
}

fn image(observed: &Observed) -> Finding {
    match &observed.image {
        Image::Ready { reference } => Finding::yes(IMAGE, "ImageThere", format!("the engine has {reference}")),
        Image::Failed { message, .. } => Finding::no(IMAGE, "ImageFailed", message.as_str()),
        // A client proxy that runs has one.
        Image::Unknown | Image::Working if observed.started_client().is_some() => {
            Finding::yes(IMAGE, "ImageInUse", "the client proxy was started from its image")
        }
        Image::Unknown | Image::Working => Finding::no(IMAGE, "ImageNotThere", "the image is not known to be there"),
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
        let ours = [READY, NETWORK, IMAGE, CLIENT, SERVER, TUNNELS];
        stored.conditions.retain(|condition| ours.contains(&condition.type_.as_str()));
        let mut status = self.status(observed, &stored);
        status.conditions = stored.conditions.clone();
        let generation = status.observed_generation;
        let event = self.ready.record(&mut status.conditions, generation, observed.now);
        for finding in self.steps.map(Steps::into_findings).into_iter().flatten() {
            conditions::set(&mut status.conditions, finding, generation, &Time(observed.now));
        }
        Plan {
            subject: subject(observed),
            finalizer: self.finalizer,
            status: (status != stored).then(|| json!(status)),
            events: event.into_iter().collect(),
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
            observed_generation: self.observed_generation(observed, stored),
            state: Some(self.state),
            message: self.message.clone(),
            tunnel_statuses: statuses.clone(),
            tunnels_ready: Some(format!("{ready}/{}", statuses.len())),
            tunnel_configuration_version: Some(version + i32::from(changed)),
            client_proxy_container_image: image,
            restart_count: self.restarts.count,
            next_restart_timestamp: self.restarts.not_before.clone(),
            ..Status::default()
        };
        if self.shows_pair { with_pair(status, observed, stored) } else { status }
    }

    /// A failure of an earlier spec that is still being cleaned up says nothing about the new one.
    fn observed_generation(&self, observed: &Observed, stored: &Status) -> Option<i64> {
        let old = stored.state == Some(State::Failed) && self.state == State::Failed && self.steps.is_none();
        if old { stored.observed_generation } else { observed.object.metadata.generation }
    }
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
