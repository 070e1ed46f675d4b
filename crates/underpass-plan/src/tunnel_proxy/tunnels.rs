//! The tunnels of a pair: what each one's status says, and what the pair has to be told.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use underpass_resources::tunnel_proxy::{
    ServerReference, ServerState, Tunnel, TunnelProtocol, TunnelState, TunnelStatus,
};

use super::observed::{Observed, Pair, PreparedTunnel, Refusal, Server};
use super::servers;
use crate::plan::{Action, ClientPort, TunnelRequest};

/// A server that is being looked for, and one that was not there.
const LOOK_FOR_SERVER_SOON: Duration = Duration::from_millis(500);
const LOOK_FOR_SERVER: Duration = Duration::from_secs(5);

pub(super) struct Tunnels {
    /// Sorted by name.
    pub(super) statuses: Vec<TunnelStatus>,
    pub(super) actions: Vec<Action>,
    pub(super) look_again_after: Option<Duration>,
}

/// What is to be said of a tunnel, before it is known whether it is news.
struct Verdict {
    state: TunnelState,
    message: Option<String>,
    prepared: Option<PreparedTunnel>,
    action: Option<Action>,
    retry: Option<Duration>,
}

/// Every tunnel of the spec in the same state, for the same reason, and nothing to do.
pub(super) fn all(observed: &Observed, state: TunnelState, message: &str) -> Tunnels {
    let numbers = numbers(observed);
    let tunnels = sorted(observed);
    let verdict = || Verdict { state, message: Some(message.to_owned()), prepared: None, action: None, retry: None };
    let statuses = tunnels.iter().map(|tunnel| status(observed, tunnel, numbers[&*tunnel.name], &verdict())).collect();
    Tunnels { statuses, actions: Vec::new(), look_again_after: None }
}

/// The tunnels of a pair that runs.
pub(super) fn of_running_pair(observed: &Observed) -> Tunnels {
    let (gap, listed) = match &observed.pair {
        Pair::NotAsked => return all(observed, TunnelState::NotReady, "the pair was not asked yet"),
        Pair::Silent { why } => return all(observed, TunnelState::NotReady, why),
        Pair::Answered { gap, tunnels } => (gap.as_deref(), tunnels),
    };
    let numbers = numbers(observed);
    let (mut statuses, mut prepared, mut waits, mut kept) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for tunnel in sorted(observed) {
        let number = numbers[&*tunnel.name];
        let standing = listed.iter().find(|candidate| candidate.number == number);
        let verdict = judge(observed, tunnel, number, standing, gap);
        statuses.push(status(observed, tunnel, number, &verdict));
        let deletes = matches!(verdict.action, Some(Action::DeleteTunnel { .. }));
        if !deletes {
            kept.push(number);
            prepared.extend(verdict.action);
        }
        waits.extend(verdict.retry);
    }
    waits.extend(listed.iter().filter_map(look_for_server));
    // Old ones go first: a new one may want their port.
    let surplus = listed.iter().map(|tunnel| tunnel.number).filter(|number| !kept.contains(number));
    let actions = surplus.map(|number| Action::DeleteTunnel { number }).chain(prepared).collect();
    Tunnels { statuses, actions, look_again_after: waits.into_iter().min() }
}

/// When there should be news of a tunnel's server. Whether datagrams have a server is only learnt from those that use it.
fn look_for_server(tunnel: &PreparedTunnel) -> Option<Duration> {
    match (&tunnel.server, tunnel.protocol) {
        (Server::Unknown, TunnelProtocol::Tcp) => Some(LOOK_FOR_SERVER_SOON),
        (Server::Unreachable { .. }, _) => Some(LOOK_FOR_SERVER),
        _ => None,
    }
}

fn judge(
    observed: &Observed,
    tunnel: &Tunnel,
    number: u32,
    standing: Option<&PreparedTunnel>,
    gap: Option<&str>,
) -> Verdict {
    let request = match request(observed, tunnel, number) {
        Ok(request) => request,
        Err(why) => return without_server(standing, why),
    };
    if let Some(standing) = standing.filter(|standing| fulfils(standing, &request)) {
        return match gap {
            None => Verdict { prepared: Some(standing.clone()), ..Verdict::new(TunnelState::Ready, None) },
            Some(why) => Verdict {
                prepared: Some(standing.clone()),
                ..Verdict::new(TunnelState::NotReady, Some(format!("nothing crosses the pair at the moment: {why}")))
            },
        };
    }
    if let Some(why) = gap {
        return Verdict::new(TunnelState::NotReady, Some(format!("the pair cannot be told of it yet: {why}")));
    }
    if let Some(refusal) = observed.refusals.get(&number).filter(|refusal| refusal.request == request) {
        return refused(observed, tunnel, refusal, request);
    }
    let message = match standing.map(|standing| standing.trouble.as_deref()) {
        None => "the tunnel is being prepared".to_owned(),
        Some(None) => "the tunnel was changed: it is closed and opened again".to_owned(),
        Some(Some(why)) => format!("clients cannot reach the tunnel, which is prepared again: {why}"),
    };
    Verdict { action: Some(Action::PrepareTunnel(request)), ..Verdict::new(TunnelState::NotReady, Some(message)) }
}

fn without_server(standing: Option<&PreparedTunnel>, why: String) -> Verdict {
    let action = standing.map(|standing| Action::DeleteTunnel { number: standing.number });
    Verdict { action, ..Verdict::new(TunnelState::NotReady, Some(why)) }
}

/// Tried again after its back-off: what stood in the way may have gone.
fn refused(observed: &Observed, tunnel: &Tunnel, refusal: &Refusal, request: TunnelRequest) -> Verdict {
    let left = Duration::try_from(refusal.retry_at.duration_since(observed.now)).ok().filter(|left| !left.is_zero());
    Verdict {
        action: left.is_none().then_some(Action::PrepareTunnel(request)),
        retry: left,
        ..Verdict::new(TunnelState::Failed, Some(in_terms_of_spec(tunnel, &refusal.message)))
    }
}

/// The pair complains of the host that it was told; whoever wrote a Service has written no such field.
fn in_terms_of_spec(tunnel: &Tunnel, complaint: &str) -> String {
    match (tunnel.server(), complaint.strip_prefix("serverAddress: ")) {
        (Some(ServerReference::Service { namespace, name, .. }), Some(complaint)) => {
            format!("the Service {namespace}/{name} leads nowhere: externalName: {complaint}")
        }
        _ => complaint.to_owned(),
    }
}

/// What the pair has to be asked for. A port that containers have used is asked for again: it stays the same across restarts.
fn request(observed: &Observed, tunnel: &Tunnel, number: u32) -> Result<TunnelRequest, String> {
    let (server_host, server_port) = servers::resolve(observed, tunnel)?;
    let known = stored(observed, &tunnel.name).and_then(known_port);
    Ok(TunnelRequest {
        number,
        name: tunnel.name.to_string(),
        protocol: tunnel.protocol,
        client_port: match tunnel.client_proxy_port {
            Some(port) => ClientPort::Fixed(port),
            None => ClientPort::Preferred(known.unwrap_or(server_port)),
        },
        server_host,
        server_port,
        max_connections: tunnel.max_connections,
    })
}

fn fulfils(standing: &PreparedTunnel, request: &TunnelRequest) -> bool {
    let port = match request.client_port {
        ClientPort::Fixed(port) => standing.client_port == port,
        ClientPort::Preferred(_) => true,
    };
    port && standing.trouble.is_none()
        && (standing.protocol, &standing.server_host, standing.server_port, standing.max_connections)
            == (request.protocol, &request.server_host, request.server_port, request.max_connections)
}

/// The numbers by which the pair knows the tunnels: those that they have, and for new ones such as no tunnel of this object has.
fn numbers(observed: &Observed) -> BTreeMap<&str, u32> {
    let known = |name: &str| stored(observed, name)?.tunnel_id.and_then(|id| u32::try_from(id).ok());
    let stored = observed.object.status.iter().flat_map(|status| &status.tunnel_statuses);
    let highest = stored.filter_map(|status| u32::try_from(status.tunnel_id?).ok()).max().unwrap_or_default();
    let mut fresh = highest + 1..;
    let number = |tunnel: &&Tunnel| known(&tunnel.name).or_else(|| fresh.next()).unwrap_or_default();
    let tunnels = sorted(observed);
    let numbers: Vec<u32> = tunnels.iter().map(number).collect();
    tunnels.into_iter().map(|tunnel| &*tunnel.name).zip(numbers).collect()
}

fn status(observed: &Observed, tunnel: &Tunnel, number: u32, verdict: &Verdict) -> TunnelStatus {
    let old = stored(observed, &tunnel.name);
    let prepared = verdict.prepared.as_ref();
    let (server_state, server_error) = match prepared.map(|prepared| &prepared.server) {
        None => (None, None),
        Some(Server::Unknown) => (Some(ServerState::Unknown), None),
        Some(Server::Reachable) => (Some(ServerState::Reachable), None),
        Some(Server::Unreachable { why }) => (Some(ServerState::Unreachable), Some(why.clone())),
    };
    // Whoever reads an address may use it.
    let usable = prepared.filter(|_| verdict.state == TunnelState::Ready);
    let addresses = usable.map(|prepared| prepared.addresses.as_slice()).unwrap_or_default();
    let addresses = addresses.iter().filter(|address| !address.is_loopback());
    let port = prepared.map(|prepared| prepared.client_port).or(old.and_then(known_port));
    let mut status = TunnelStatus {
        name: tunnel.name.to_string(),
        tunnel_id: Some(number.into()),
        state: verdict.state,
        error_message: verdict.message.clone(),
        client_proxy_addresses: addresses.map(|address| address.to_string().into()).collect(),
        client_proxy_port: port.filter(|_| usable.is_some()),
        last_client_proxy_port: port.filter(|_| usable.is_none()),
        server_state,
        server_error,
        timestamp: old.and_then(|old| old.timestamp.clone()),
    };
    if old != Some(&status) {
        status.timestamp = Some(MicroTime(observed.now));
    }
    status
}

fn known_port(status: &TunnelStatus) -> Option<u16> {
    status.client_proxy_port.or(status.last_client_proxy_port)
}

fn stored<'a>(observed: &'a Observed, name: &str) -> Option<&'a TunnelStatus> {
    observed.object.status.as_ref()?.tunnel_statuses.iter().find(|status| status.name == name)
}

fn sorted(observed: &Observed) -> Vec<&Tunnel> {
    let mut tunnels: Vec<&Tunnel> = observed.object.spec.tunnels.iter().collect();
    tunnels.sort_by(|one, other| one.name.cmp(&other.name));
    tunnels
}

impl Verdict {
    fn new(state: TunnelState, message: Option<String>) -> Self {
        Self { state, message, prepared: None, action: None, retry: None }
    }
}
