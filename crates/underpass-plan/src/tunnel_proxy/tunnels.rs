//! The tunnels of a pair: what each one's status says, and what the pair has to be told.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use underpass_resources::tunnel_proxy::{
    ServerReference, ServerState, Tunnel, TunnelProtocol, TunnelState, TunnelStatus,
};

use super::observed::{Observed, Pair, PreparedTunnel, Refusal, Server};
use super::{endpoints, servers};
use crate::plan::{Action, ClientEndpoints, ClientPort, TunnelRequest};

/// A server that is being looked for, and one that was not there.
const LOOK_FOR_SERVER_SOON: Duration = Duration::from_millis(500);
const LOOK_FOR_SERVER: Duration = Duration::from_secs(5);

pub(super) struct Tunnels {
    /// Sorted by name.
    pub(super) statuses: Vec<TunnelStatus>,
    pub(super) actions: Vec<Action>,
    /// Where they are to be shown.
    pub(super) endpoints: Vec<ClientEndpoints>,
    pub(super) look_again_after: Option<Duration>,
}

/// What is to be said of a tunnel, before it is known whether it is news, and what to be done.
struct Verdict {
    state: TunnelState,
    message: Option<String>,
    prepared: Option<PreparedTunnel>,
    /// What stands of it goes.
    closes: bool,
    prepare: Option<TunnelRequest>,
    endpoints: Vec<ClientEndpoints>,
    /// Those of them that are to be written now.
    unshown: Vec<ClientEndpoints>,
    retry: Option<Duration>,
}

/// Every tunnel of the spec in the same state, for the same reason, and nothing to do.
pub(super) fn all(observed: &Observed, state: TunnelState, message: &str) -> Tunnels {
    let numbers = numbers(observed);
    let tunnels = sorted(observed);
    let verdict = || Verdict::new(state, Some(message.to_owned()));
    let statuses = tunnels.iter().map(|tunnel| status(observed, tunnel, numbers[&*tunnel.name], &verdict())).collect();
    Tunnels { statuses, actions: Vec::new(), endpoints: Vec::new(), look_again_after: None }
}

/// The tunnels of a pair that runs.
pub(super) fn of_running_pair(observed: &Observed) -> Tunnels {
    let (gap, listed) = match &observed.pair {
        Pair::NotAsked => return all(observed, TunnelState::NotReady, "the pair was not asked yet"),
        Pair::Silent { why } => return all(observed, TunnelState::NotReady, why),
        Pair::Answered { gap, tunnels } => (gap.as_deref(), tunnels),
    };
    let (numbers, ports) = (numbers(observed), ports(observed));
    let (mut statuses, mut verdicts, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    for tunnel in sorted(observed) {
        let number = numbers[&*tunnel.name];
        let standing = listed.iter().find(|candidate| candidate.number == number);
        let verdict = match request(observed, tunnel, number, ports[&*tunnel.name]) {
            Ok(request) => judge(observed, tunnel, request, standing, gap),
            Err(why) => Verdict { closes: true, ..Verdict::new(TunnelState::NotReady, Some(why)) },
        };
        statuses.push(status(observed, tunnel, number, &verdict));
        if !verdict.closes {
            kept.push(number);
        }
        verdicts.push(verdict);
    }
    let waits = verdicts.iter().filter_map(|verdict| verdict.retry).chain(listed.iter().filter_map(look_for_server));
    let look_again_after = waits.min();
    let surplus = listed.iter().map(|tunnel| tunnel.number).filter(|number| !kept.contains(number));
    let actions = actions(surplus, &verdicts);
    let endpoints = verdicts.into_iter().flat_map(|verdict| verdict.endpoints).collect();
    Tunnels { statuses, actions, endpoints, look_again_after }
}

/// Old ones go first: a new one may want their port. Names, which may take their time to be resolved, come last.
fn actions(surplus: impl Iterator<Item = u32>, verdicts: &[Verdict]) -> Vec<Action> {
    let unshown = verdicts.iter().flat_map(|verdict| &verdict.unshown).cloned().map(Action::WriteEndpoints);
    let mut prepare: Vec<TunnelRequest> = verdicts.iter().filter_map(|verdict| verdict.prepare.clone()).collect();
    prepare.sort_by_key(|request| request.server_host.parse::<IpAddr>().is_err());
    let deleted = surplus.map(|number| Action::DeleteTunnel { number });
    deleted.chain(unshown).chain(prepare.into_iter().map(Action::PrepareTunnel)).collect()
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
    request: TunnelRequest,
    standing: Option<&PreparedTunnel>,
    gap: Option<&str>,
) -> Verdict {
    let unlike = standing.is_some_and(|standing| !is_as_asked(standing, &request));
    if let Some(standing) = standing.filter(|standing| !unlike && standing.trouble.is_none()) {
        return match gap {
            None => carrying(observed, tunnel, standing),
            Some(why) => Verdict {
                prepared: Some(standing.clone()),
                ..Verdict::new(TunnelState::NotReady, Some(format!("nothing crosses the pair at the moment: {why}")))
            },
        };
    }
    if let Some(why) = gap {
        return Verdict::new(TunnelState::NotReady, Some(format!("the pair cannot be told of it yet: {why}")));
    }
    if observed.preparing.contains(&request) {
        return Verdict::new(TunnelState::NotReady, Some("the tunnel is being prepared".to_owned()));
    }
    if let Some(refusal) = observed.refusals.get(&request.number).filter(|refusal| refusal.request == request) {
        return Verdict { closes: unlike, ..refused(observed, tunnel, refusal, request) };
    }
    let message = match standing.map(|standing| standing.trouble.as_deref()) {
        None => "the tunnel is being prepared".to_owned(),
        Some(None) => "the tunnel was changed: it is closed and opened again".to_owned(),
        Some(Some(why)) => format!("clients cannot reach the tunnel, which is prepared again: {why}"),
    };
    Verdict { closes: unlike, prepare: Some(request), ..Verdict::new(TunnelState::NotReady, Some(message)) }
}

/// The pair carries it. It is Ready when its client Service shows it, too.
fn carrying(observed: &Observed, tunnel: &Tunnel, standing: &PreparedTunnel) -> Verdict {
    let endpoints = endpoints::wanted(observed, tunnel, standing);
    let missing = || endpoints.iter().filter(|one| !endpoints::stands(observed, one));
    let refusal = |one: &ClientEndpoints| observed.unwritten.iter().find(|refusal| refusal.request == *one);
    let wait = |one: &ClientEndpoints| refusal(one).and_then(|refusal| refusal.wait(observed.now));
    let (state, message) = match (missing().next(), missing().find_map(refusal)) {
        (None, _) => (TunnelState::Ready, None),
        (Some(one), None) => {
            (TunnelState::NotReady, Some(format!("the EndpointSlice {}/{} is being written", one.namespace, one.name)))
        }
        (Some(_), Some(refusal)) => {
            (TunnelState::Failed, Some(format!("the pair carries it, but {}", refusal.message)))
        }
    };
    Verdict {
        prepared: Some(standing.clone()),
        unshown: missing().filter(|one| wait(one).is_none()).cloned().collect(),
        retry: missing().filter_map(wait).min(),
        endpoints,
        ..Verdict::new(state, message)
    }
}

/// Tried again after its back-off: what stood in the way may have gone.
fn refused(observed: &Observed, tunnel: &Tunnel, refusal: &Refusal<TunnelRequest>, request: TunnelRequest) -> Verdict {
    let left = refusal.wait(observed.now);
    Verdict {
        prepare: left.is_none().then_some(request),
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

/// What the pair has to be asked for.
fn request(
    observed: &Observed,
    tunnel: &Tunnel,
    number: u32,
    client_port: ClientPort,
) -> Result<TunnelRequest, String> {
    let (server_host, server_port) = servers::resolve(observed, tunnel)?;
    Ok(TunnelRequest {
        number,
        name: tunnel.name.to_string(),
        protocol: tunnel.protocol,
        client_port,
        server_host,
        server_port,
        max_connections: tunnel.max_connections,
    })
}

/// Who asks for which port. A port that containers have used is asked for again: it stays the same across restarts. No two ask for the same,
/// because they are prepared at once, and it would be left to chance who has it.
fn ports(observed: &Observed) -> BTreeMap<&str, ClientPort> {
    let known = |tunnel: &Tunnel| stored(observed, &tunnel.name).and_then(known_port);
    let mut tunnels = sorted(observed);
    tunnels.sort_by_key(|tunnel| (tunnel.client_proxy_port.is_none(), known(tunnel).is_none()));
    let mut asked_for = HashSet::new();
    let mut port = |tunnel: &Tunnel| {
        let fixed = tunnel.client_proxy_port;
        let server = || servers::resolve(observed, tunnel).ok().map(|(_, port)| port);
        let wanted = fixed.or_else(|| known(tunnel)).or_else(server);
        let first = wanted.is_some_and(|port| asked_for.insert((tunnel.protocol, port)));
        match (fixed, wanted.filter(|_| first)) {
            (Some(port), _) => ClientPort::Fixed(port),
            (None, Some(port)) => ClientPort::Preferred(port),
            (None, None) => ClientPort::Any,
        }
    };
    tunnels.into_iter().map(|tunnel| (&*tunnel.name, port(tunnel))).collect()
}

fn is_as_asked(standing: &PreparedTunnel, request: &TunnelRequest) -> bool {
    let port = match request.client_port {
        ClientPort::Fixed(port) => standing.client_port == port,
        ClientPort::Preferred(_) | ClientPort::Any => true,
    };
    port && (standing.protocol, &standing.server_host, standing.server_port, standing.max_connections)
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
        Self {
            state,
            message,
            prepared: None,
            closes: false,
            prepare: None,
            endpoints: Vec::new(),
            unshown: Vec::new(),
            retry: None,
        }
    }
}
