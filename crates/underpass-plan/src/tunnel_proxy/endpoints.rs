//! The EndpointSlices that show where containers reach the tunnels: one per tunnel with a clientServiceName that can be used and
//! address family.

use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};
use underpass_resources::tunnel_proxy::Tunnel;

use super::observed::{Observed, PreparedTunnel};
use super::servers::word;
use crate::plan::{Action, ClientEndpoints};

/// The label by which an object's slices are found again.
pub const OWNER_LABEL: &str = "underpass.dev/owner-uid";

/// Where a tunnel that can be used is to be shown.
pub(super) fn wanted(observed: &Observed, tunnel: &Tunnel, standing: &PreparedTunnel) -> Vec<ClientEndpoints> {
    let Some(service) = &tunnel.client_service_name else { return Vec::new() };
    [false, true].into_iter().filter_map(|ipv6| of_family(observed, tunnel, standing, service, ipv6)).collect()
}

/// Whether the slice is there and says what it should.
pub(super) fn stands(observed: &Observed, wanted: &ClientEndpoints) -> bool {
    let key = (wanted.namespace.clone(), wanted.name.clone());
    let found = observed.own_slices.iter().find(|slice| place(slice).as_ref() == Some(&key));
    found.is_some_and(|slice| says(slice, wanted))
}

/// What was written and is not wanted any more, gone.
pub(super) fn surplus(observed: &Observed, wanted: &[ClientEndpoints]) -> Vec<Action> {
    let places = observed.own_slices.iter().filter_map(place);
    let surplus =
        places.filter(|(namespace, name)| !wanted.iter().any(|one| (&one.namespace, &one.name) == (namespace, name)));
    surplus.map(|(namespace, name)| Action::RemoveEndpoints { namespace, name }).collect()
}

/// Everything that was ever written, gone.
pub(super) fn removal(observed: &Observed) -> Vec<Action> {
    surplus(observed, &[])
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

fn of_family(
    observed: &Observed,
    tunnel: &Tunnel,
    standing: &PreparedTunnel,
    service: &str,
    ipv6: bool,
) -> Option<ClientEndpoints> {
    let fits = standing.addresses.iter().filter(|address| !address.is_loopback() && address.is_ipv6() == ipv6);
    let addresses: Vec<String> = fits.map(ToString::to_string).collect();
    let owner_name = observed.object.metadata.name.clone().unwrap_or_default();
    let uid = observed.uid();
    let mark: String = uid.chars().filter(char::is_ascii_alphanumeric).take(5).collect();
    let family = if ipv6 { "ipv6" } else { "ipv4" };
    (!addresses.is_empty()).then(|| ClientEndpoints {
        namespace: tunnel.client_service_namespace.as_deref().unwrap_or("default").to_owned(),
        name: format!("{owner_name}-{}-{mark}-{family}", tunnel.name),
        service: service.to_owned(),
        addresses,
        port: standing.client_port,
        protocol: tunnel.protocol,
        ipv6,
        owner_name,
        owner_uid: uid.clone(),
    })
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
