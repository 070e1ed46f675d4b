//! From what a tunnel's spec calls its server to a host and a port, as seen from the host.

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use underpass_resources::number_or_text::NumberOrText;
use underpass_resources::tunnel_proxy::{ServerReference, Tunnel, TunnelProtocol};

use super::observed::Observed;
use crate::proxy_server::key;

const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The server of a tunnel, or why it is not known where it is.
pub(super) fn resolve(observed: &Observed, tunnel: &Tunnel) -> Result<(String, u16), String> {
    match tunnel.server() {
        Some(ServerReference::Address { host, port }) => Ok((host.to_owned(), port)),
        Some(ServerReference::Service { namespace, name, port }) => {
            let service = observed.services.iter().find(|service| key(&service.metadata) == (namespace, name));
            let service = service.ok_or_else(|| format!("there is no Service {namespace}/{name}"))?;
            let port = service_port(service, port, tunnel.protocol)?;
            of_service(observed, service, port)
        }
        None => Err("the tunnel names no server, or two".to_owned()),
    }
}

fn service_port<'s>(
    service: &'s Service,
    wanted: Option<&NumberOrText>,
    protocol: TunnelProtocol,
) -> Result<&'s ServicePort, String> {
    let (namespace, name) = key(&service.metadata);
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let fits = |port: &&ServicePort| match wanted {
        None => true,
        Some(NumberOrText::Number(number)) => number.as_i64() == Some(port.port.into()),
        Some(NumberOrText::Text(name)) => port.name.as_ref() == Some(name),
    };
    let same_protocol = |port: &&ServicePort| port.protocol.as_deref().unwrap_or("TCP") == word(protocol);
    let candidates: Vec<_> = ports.iter().filter(same_protocol).filter(fits).collect();
    match (candidates.as_slice(), wanted) {
        ([port], _) => Ok(port),
        ([], None) => Err(format!("the Service {namespace}/{name} has no {} port", word(protocol))),
        ([], Some(wanted)) => Err(format!("the Service {namespace}/{name} has no {} port {}", word(protocol), wanted)),
        _ => Err(format!("the Service {namespace}/{name} has several ports; say which with serverServicePort")),
    }
}

/// An ExternalName is taken as it is written: it is the way to name a server on the host's 127.0.0.1, which no EndpointSlice may list.
fn of_service(observed: &Observed, service: &Service, port: &ServicePort) -> Result<(String, u16), String> {
    let (namespace, name) = key(&service.metadata);
    let spec = service.spec.as_ref();
    if spec.and_then(|spec| spec.type_.as_deref()) == Some("ExternalName") {
        let host = spec.and_then(|spec| spec.external_name.clone()).unwrap_or_default();
        return u16::try_from(port.port).map(|port| (host, port)).map_err(|_| "its port is out of range".to_owned());
    }
    let mut servers: Vec<(String, u16)> = observed
        .slices
        .iter()
        .filter(|slice| belongs(slice, namespace, name))
        .flat_map(|slice| ready_servers(slice, port))
        .collect();
    servers.sort();
    servers.into_iter().next().ok_or_else(|| {
        format!("the Service {namespace}/{name} has no ready endpoint; add an EndpointSlice, or use type ExternalName")
    })
}

fn belongs(slice: &EndpointSlice, namespace: &str, name: &str) -> bool {
    let label = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME));
    key(&slice.metadata).0 == namespace && label.is_some_and(|label| label == name)
}

fn ready_servers(slice: &EndpointSlice, port: &ServicePort) -> Vec<(String, u16)> {
    let wanted = port.name.as_deref().unwrap_or_default();
    let ports = slice.ports.iter().flatten();
    let number = ports
        .filter(|candidate| candidate.name.as_deref().unwrap_or_default() == wanted)
        .find_map(|port| u16::try_from(port.port?).ok());
    let Some(number) = number else { return Vec::new() };
    let ready = slice
        .endpoints
        .iter()
        .flatten()
        .filter(|endpoint| endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true));
    ready.flat_map(|endpoint| endpoint.addresses.iter().map(move |address| (address.clone(), number))).collect()
}

pub(super) fn word(protocol: TunnelProtocol) -> &'static str {
    match protocol {
        TunnelProtocol::Tcp => "TCP",
        TunnelProtocol::Udp => "UDP",
    }
}
