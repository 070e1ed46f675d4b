//! The EndpointSlices that show where containers reach the tunnels: one per Ready tunnel with a clientServiceName and address family.

use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};
use underpass_resources::address::IpAddress;
use underpass_resources::tunnel_proxy::{Tunnel, TunnelState, TunnelStatus};

use super::observed::Observed;
use super::servers::word;
use crate::plan::{Action, ClientEndpoints};

/// The label by which an object's slices are found again.
pub const OWNER_LABEL: &str = "underpass.dev/owner-uid";

/// What has to be written and removed, so that exactly the Ready tunnels are shown.
pub(super) fn changes(observed: &Observed, statuses: &[TunnelStatus]) -> Vec<Action> {
    let wanted = wanted(observed, statuses);
    let outdated = observed
        .own_slices
        .iter()
        .filter_map(place)
        .filter(|(namespace, name)| !wanted.iter().any(|one| (&one.namespace, &one.name) == (namespace, name)));
    let removed = outdated.map(|(namespace, name)| Action::RemoveEndpoints { namespace, name });
    let written = wanted.iter().filter(|one| !stands(observed, one)).cloned().map(Action::WriteEndpoints);
    removed.chain(written).collect()
}

/// Everything that was ever written, gone.
pub(super) fn removal(observed: &Observed) -> Vec<Action> {
    let places = observed.own_slices.iter().filter_map(place);
    places.map(|(namespace, name)| Action::RemoveEndpoints { namespace, name }).collect()
}

/// The slice as the API knows it.
pub fn manifest(endpoints: &ClientEndpoints) -> Value {
    let ClientEndpoints { namespace, name, service, addresses, port, protocol, ipv6, owner_name, owner_uid } =
        endpoints;
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": {
                "kubernetes.io/service-name": service,
                "endpointslice.kubernetes.io/managed-by": "underpass.dev",
                OWNER_LABEL: owner_uid,
            },
            "ownerReferences": [{
                "apiVersion": "underpass.dev/v1alpha1",
                "kind": "ContainerNetworkTunnelProxy",
                "name": owner_name,
                "uid": owner_uid,
                "controller": true,
            }],
        },
        "addressType": if *ipv6 { "IPv6" } else { "IPv4" },
        "endpoints": [{ "addresses": addresses, "conditions": { "ready": true } }],
        "ports": [{ "name": "", "port": port, "protocol": word(*protocol) }],
    })
}

fn wanted(observed: &Observed, statuses: &[TunnelStatus]) -> Vec<ClientEndpoints> {
    let ready = statuses.iter().filter(|status| status.state == TunnelState::Ready);
    ready.flat_map(|status| of_tunnel(observed, status)).collect()
}

fn of_tunnel(observed: &Observed, status: &TunnelStatus) -> Vec<ClientEndpoints> {
    let tunnel = observed.object.spec.tunnels.iter().find(|tunnel| *tunnel.name == status.name);
    let Some((tunnel, service)) = tunnel.and_then(|tunnel| Some((tunnel, tunnel.client_service_name.as_ref()?))) else {
        return Vec::new();
    };
    [false, true].into_iter().filter_map(|ipv6| of_family(observed, status, tunnel, service, ipv6)).collect()
}

fn of_family(
    observed: &Observed,
    status: &TunnelStatus,
    tunnel: &Tunnel,
    service: &str,
    ipv6: bool,
) -> Option<ClientEndpoints> {
    let parsed = status.client_proxy_addresses.iter().filter_map(IpAddress::address);
    let addresses: Vec<String> =
        parsed.filter(|address| address.is_ipv6() == ipv6).map(|address| address.to_string()).collect();
    let owner_name = observed.object.metadata.name.clone().unwrap_or_default();
    let uid = observed.uid();
    let mark: String = uid.chars().filter(char::is_ascii_alphanumeric).take(5).collect();
    let family = if ipv6 { "ipv6" } else { "ipv4" };
    (!addresses.is_empty()).then(|| ClientEndpoints {
        namespace: tunnel.client_service_namespace.as_deref().unwrap_or("default").to_owned(),
        name: format!("{owner_name}-{}-{mark}-{family}", status.name),
        service: service.to_owned(),
        addresses,
        port: status.client_proxy_port.unwrap_or_default(),
        protocol: tunnel.protocol,
        ipv6,
        owner_name,
        owner_uid: uid.clone(),
    })
}

/// Whether the slice is there and says what it should.
fn stands(observed: &Observed, wanted: &ClientEndpoints) -> bool {
    let key = (wanted.namespace.clone(), wanted.name.clone());
    let found = observed.own_slices.iter().find(|slice| place(slice).as_ref() == Some(&key));
    found.is_some_and(|slice| says(slice, wanted))
}

fn says(slice: &EndpointSlice, wanted: &ClientEndpoints) -> bool {
    let service = slice.metadata.labels.as_ref().and_then(|labels| labels.get("kubernetes.io/service-name"));
    let addresses: Vec<&String> = slice.endpoints.iter().flatten().flat_map(|endpoint| &endpoint.addresses).collect();
    let ports: Vec<_> = slice.ports.iter().flatten().map(|port| (port.port, port.protocol.as_deref())).collect();
    service == Some(&wanted.service)
        && addresses == wanted.addresses.iter().collect::<Vec<_>>()
        && ports == [(Some(i32::from(wanted.port)), Some(word(wanted.protocol)))]
}

fn place(slice: &EndpointSlice) -> Option<(String, String)> {
    Some((slice.metadata.namespace.clone()?, slice.metadata.name.clone()?))
}
