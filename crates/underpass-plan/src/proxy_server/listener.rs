//! One listener per address, port and transport, with the rules of its backends.

use std::net::SocketAddr;

use underpass_resources::proxy_backend::{BackendProtocol, ProxyBackend};
use underpass_tables::{Expects, Listener, RouteId, Rule, Rules, Transport, Unnamed};

use super::admission::{Accepted, Port, Ports, listener_name};

/// What leads to a hosted cluster's API server: its Service is called `kube-apiserver` in the namespace of the control plane
/// (HyperShift adds variants such as `kube-apiserver-private`) and `kubernetes` in the cluster itself. The Service decides, not the
/// name of the backend, which its author may choose freely.
const API_SERVER: [&str; 2] = ["kube-apiserver", "kubernetes"];
const KONNECTIVITY: [&str; 2] = ["konnectivity-server", "konnectivity"];

pub(super) fn sorted(accepted: &[Accepted<'_>], ports: &Ports<'_>, ids: &[RouteId]) -> Vec<Listener> {
    let mut listeners: Vec<Listener> =
        ports.iter().map(|((address, transport), port)| listener(*address, *transport, port, accepted, ids)).collect();
    listeners.sort_by(|one, other| one.name.cmp(&other.name));
    listeners
}

fn listener(
    address: SocketAddr,
    transport: Transport,
    port: &Port<'_>,
    accepted: &[Accepted<'_>],
    ids: &[RouteId],
) -> Listener {
    let name = listener_name(port.proxy, (address, transport));
    let backends: Vec<(&ProxyBackend, RouteId)> =
        port.backends.iter().map(|number| (accepted[*number].backend, ids[*number])).collect();
    let rules = match transport {
        Transport::Stream => stream_rules(&backends),
        Transport::Datagram => {
            let mut rules = Rules::default();
            rules.plain = backends.first().map(|(_, route)| *route);
            rules
        }
    };
    Listener { name, address, transport, proxy_header: port.proxy_header, expects: Expects::Hello, rules }
}

fn stream_rules(backends: &[(&ProxyBackend, RouteId)]) -> Rules {
    let mut rules = Rules::default();
    for (backend, route) in backends {
        for name in backend.hostnames() {
            // Admission has seen to it that nobody else has the name.
            let _ = rules.add_name(name, *route);
        }
    }
    rules.unnamed = unnamed(backends);
    rules.plain = match backends {
        [(only, route)] if only.protocol == BackendProtocol::Tcp => Some(*route),
        _ => None,
    };
    rules
}

/// Who gets TLS without a name. Backends with protocol TLS or HTTPS are for names only, unless they say `default: true` themselves.
fn unnamed(backends: &[(&ProxyBackend, RouteId)]) -> Option<Unnamed> {
    let find = |rule, wanted: &dyn Fn(&ProxyBackend) -> bool| {
        let (_, route) = backends.iter().find(|(backend, _)| wanted(backend))?;
        Some(Unnamed { route: *route, rule })
    };
    let leads_to = |backend: &ProxyBackend, services: &[&str]| {
        backend.protocol == BackendProtocol::Tcp && is_one_of(&backend.target_service, services)
    };
    find(Rule::Default, &|backend| backend.default)
        .or_else(|| find(Rule::ApiServer, &|backend| leads_to(backend, &API_SERVER)))
        .or_else(|| find(Rule::Konnectivity, &|backend| leads_to(backend, &KONNECTIVITY)))
}

/// One of these Services, or a variant of it: `kube-apiserver-private`.
fn is_one_of(service: &str, services: &[&str]) -> bool {
    let variant =
        |known: &&str| service.strip_prefix(*known).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    services.iter().any(variant)
}
