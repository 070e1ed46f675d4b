//! From a Service and its port to the endpoints that answer there.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint as Listed, EndpointPort, EndpointSlice};
use underpass_resources::ProxyServer;
use underpass_resources::proxy_backend::{BackendProtocol, ProxyBackend};
use underpass_resources::proxy_server::OWN_PORTS;
use underpass_tables::{Endpoint, Reject};

use super::{Cluster, Observed, key};

/// The label that says whose endpoints a slice lists.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// How the trouble of a backend begins whose Service is not there.
pub(super) const SERVICE_NOT_FOUND: &str = "service not found";

/// Namespace and name.
type Key<'a> = (&'a str, &'a str);

pub(super) struct Targets<'a> {
    services: HashMap<Key<'a>, &'a Service>,
    slices: HashMap<Key<'a>, Vec<Slice<'a>>>,
    cluster: Option<&'a Cluster>,
    /// Those that are known of the proxy's own pod: other pods have others.
    own_addresses: HashSet<IpAddr>,
    /// What listens there.
    own_ports: HashSet<u16>,
    rejects: Vec<Reject>,
}

/// What a slice says, with addresses that are some.
struct Slice<'a> {
    ports: &'a [EndpointPort],
    hosts: Vec<Host<'a>>,
}

/// Somebody who answers.
struct Host<'a> {
    address: IpAddr,
    zone: Option<&'a str>,
    /// Not ready, but still answering while it ends: better than nothing.
    is_ending: bool,
}

impl<'a> Targets<'a> {
    pub(super) fn index(observed: &Observed<'a>) -> Self {
        let services = observed.services.iter().map(|service| (key(&service.metadata), *service)).collect();
        let mut targets = Self {
            services,
            slices: HashMap::new(),
            cluster: observed.cluster,
            own_addresses: own_addresses(observed).map(|address| address.to_canonical()).collect(),
            own_ports: observed.proxies.iter().flat_map(|proxy| own_ports(proxy)).collect(),
            rejects: Vec::new(),
        };
        for slice in &observed.slices {
            targets.add(slice);
        }
        targets.rejects.sort_by(|one, other| one.entry.cmp(&other.entry));
        targets
    }

    pub(super) fn rejects(&self) -> &[Reject] {
        &self.rejects
    }

    /// Where a backend's connections can go, sorted; or why nowhere.
    pub(super) fn endpoints(&self, backend: &ProxyBackend) -> Result<Vec<Endpoint>, String> {
        let (back, on): (Vec<Endpoint>, Vec<Endpoint>) =
            self.said(backend)?.into_iter().partition(|endpoint| self.is_the_proxy(endpoint.address));
        match back.first() {
            Some(Endpoint { address, .. }) if on.is_empty() => {
                let (namespace, name) = (&backend.target_namespace, &backend.target_service);
                Err(format!("service {namespace}/{name} leads to {address}: there listens the proxy itself"))
            }
            _ => Ok(on),
        }
    }

    /// Whether the proxy itself listens there. Its pages are for nobody who reaches it, and a connection to one of its own listeners would
    /// come back, with the same name, without end. In a file whoever says where a Service leads to has written the ProxyServer too.
    fn is_the_proxy(&self, there: SocketAddr) -> bool {
        let address = there.ip().to_canonical();
        // In a pod it listens at every address.
        let is_here = address.is_loopback() || self.own_addresses.contains(&address);
        self.cluster.is_some() && is_here && self.own_ports.contains(&there.port())
    }

    /// Where its Service leads to.
    fn said(&self, backend: &ProxyBackend) -> Result<Vec<Endpoint>, String> {
        let (namespace, name) = (&*backend.target_namespace, &*backend.target_service);
        if let Some(reason) = self.cluster.and_then(|cluster| cluster.unknown.get(namespace)) {
            return Err(format!("the services of namespace {namespace} cannot be seen: {reason}"));
        }
        let service =
            self.services.get(&(namespace, name)).ok_or_else(|| format!("{SERVICE_NOT_FOUND}: {namespace}/{name}"))?;
        if let Some(outside) = external_name(service) {
            return self.outside(outside, backend, namespace, name);
        }
        let port = service_port(service, backend)?;
        let slices = self.slices.get(&(namespace, name)).map(Vec::as_slice).unwrap_or_default();
        if slices.is_empty() {
            let own = own_address(service).filter(|_| self.cluster.is_some());
            let own = own.map(|address| vec![SocketAddr::new(address, backend.target_port).into()]);
            return own.ok_or_else(|| self.without_slices(service, namespace, name));
        }
        let mut endpoints = sorted(slices.iter().flat_map(|slice| slice.endpoints(port, backend)));
        if endpoints.iter().all(|endpoint| endpoint.draining) {
            endpoints.iter_mut().for_each(|endpoint| endpoint.draining = false);
        }
        let is_none = || format!("no ready endpoint of service {namespace}/{name} has its port {}", port_name(port));
        if endpoints.is_empty() { Err(is_none()) } else { Ok(endpoints) }
    }

    /// Of a Service that stands for a name outside of the cluster, whose port is the one that is asked for.
    fn outside(
        &self,
        outside: &str,
        backend: &ProxyBackend,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<Endpoint>, String> {
        let led = format!("service {namespace}/{name} leads to {outside}");
        match self.cluster.map(|cluster| cluster.names.get(outside)) {
            None => Err(format!("service {namespace}/{name} is an ExternalName: not resolvable from a file")),
            Some(None) => Err(format!("{led}, which is being resolved")),
            Some(Some(Err(reason))) => Err(format!("{led}, which cannot be resolved: {reason}")),
            Some(Some(Ok(addresses))) => {
                if let Some(address) = addresses.iter().find(|address| is_nobodys(**address)) {
                    return Err(format!("{led}, which is {address}: no service has such an address"));
                }
                Ok(sorted(addresses.iter().map(|address| SocketAddr::new(*address, backend.target_port).into())))
            }
        }
    }

    fn without_slices(&self, service: &Service, namespace: &str, name: &str) -> String {
        let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        if selector.is_none_or(BTreeMap::is_empty) {
            let why = if self.cluster.is_some() { ", and is headless" } else { ": not resolvable from a file" };
            return format!("service {namespace}/{name} has no selector and no EndpointSlice{why}");
        }
        format!("no EndpointSlice is labelled {SERVICE_NAME}={name} in namespace {namespace}")
    }

    fn add(&mut self, slice: &'a EndpointSlice) {
        let (namespace, name) = key(&slice.metadata);
        let Some(service) = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME)) else {
            let reason = format!("the label {SERVICE_NAME} is missing, so it belongs to no Service");
            self.rejects.push(Reject { entry: format!("EndpointSlice {namespace}/{name}"), reason });
            return;
        };
        let mut read = Slice { ports: slice.ports.as_deref().unwrap_or_default(), hosts: Vec::new() };
        for (number, listed) in slice.endpoints.iter().flatten().enumerate() {
            let (is_ready, is_ending, zone) = (is_ready(listed), is_ending(listed), listed.zone.as_deref());
            match addresses(listed) {
                Ok(addresses) if is_ready || is_ending => {
                    let host = |address| Host { address, zone, is_ending: !is_ready };
                    read.hosts.extend(addresses.into_iter().map(host));
                }
                Ok(_) => {}
                Err(reason) => {
                    let entry = format!("EndpointSlice {namespace}/{name}, endpoints[{number}]");
                    self.rejects.push(Reject { entry, reason });
                }
            }
        }
        self.slices.entry((namespace, service)).or_default().push(read);
    }
}

impl Slice<'_> {
    /// Its hosts, with the number that the Service's port has in this slice.
    fn endpoints(&self, port: &ServicePort, backend: &ProxyBackend) -> Vec<Endpoint> {
        let same = |candidate: &&EndpointPort| {
            candidate.name.as_deref().unwrap_or_default() == port_name_or_empty(port)
                && candidate.protocol.as_deref().unwrap_or("TCP") == protocol(backend)
        };
        let number = self.ports.iter().find(same).and_then(|port| port.port).and_then(|port| u16::try_from(port).ok());
        let Some(number) = number.filter(|number| *number > 0) else { return Vec::new() };
        let endpoint = |host: &Host<'_>| Endpoint {
            address: SocketAddr::new(host.address, number),
            zone: host.zone.map(str::to_owned),
            draining: host.is_ending,
        };
        self.hosts.iter().map(endpoint).collect()
    }
}

/// Of addresses in EndpointSlices the API server sees to that; whoever may write a name could otherwise open what a node keeps for itself to
/// everybody who reaches the proxy.
fn is_nobodys(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    is_link_local || address.is_unspecified() || address.is_multicast()
}

fn own_addresses(observed: &Observed<'_>) -> impl Iterator<Item = IpAddr> {
    let of_clients = observed.proxies.iter().filter_map(|proxy| {
        let network = &proxy.spec.network_config;
        // Without a network of its own no pod has it.
        network.attachment.resolve(key(&proxy.metadata).0).and(network.server_ip.address())
    });
    of_clients.chain(observed.cluster.and_then(|cluster| cluster.pod_ip))
}

/// What listens in the pod of a proxy.
fn own_ports(proxy: &ProxyServer) -> impl Iterator<Item = u16> {
    let listeners = proxy.spec.backends.iter().map(|backend| backend.port);
    OWN_PORTS.into_iter().chain([proxy.spec.xds_port]).chain(listeners)
}

/// Each address once: while an endpoint moves from one slice to another both list it, and whoever calls it ready is right.
fn sorted(endpoints: impl Iterator<Item = Endpoint>) -> Vec<Endpoint> {
    let mut endpoints: Vec<Endpoint> = endpoints.collect();
    endpoints.sort_by(|one, other| {
        (one.address, one.draining, &one.zone).cmp(&(other.address, other.draining, &other.zone))
    });
    endpoints.dedup_by_key(|endpoint| endpoint.address);
    endpoints
}

fn service_port<'s>(service: &'s Service, backend: &ProxyBackend) -> Result<&'s ServicePort, String> {
    let (namespace, name) = key(&service.metadata);
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let wanted = |port: &&ServicePort| {
        port.port == i32::from(backend.target_port) && port.protocol.as_deref().unwrap_or("TCP") == protocol(backend)
    };
    ports
        .iter()
        .find(wanted)
        .ok_or_else(|| format!("service {namespace}/{name} has no {} port {}", protocol(backend), backend.target_port))
}

/// The name outside of the cluster that a Service stands for.
pub fn external_name(service: &Service) -> Option<&str> {
    let spec = service.spec.as_ref()?;
    (spec.type_.as_deref() == Some("ExternalName")).then(|| spec.external_name.as_deref().unwrap_or_default())
}

/// The cluster's own address for a Service that has no selector: whoever made it says elsewhere where it leads to.
fn own_address(service: &Service) -> Option<IpAddr> {
    let spec = service.spec.as_ref()?;
    let has_selector = spec.selector.as_ref().is_some_and(|selector| !selector.is_empty());
    if has_selector { None } else { spec.cluster_ip.as_deref()?.parse().ok() }
}

fn protocol(backend: &ProxyBackend) -> &'static str {
    if backend.protocol == BackendProtocol::Udp { "UDP" } else { "TCP" }
}

/// Slices and Services call their only port nothing at all.
fn port_name_or_empty(port: &ServicePort) -> &str {
    port.name.as_deref().unwrap_or_default()
}

fn port_name(port: &ServicePort) -> String {
    port.name.clone().unwrap_or_else(|| port.port.to_string())
}

fn addresses(endpoint: &Listed) -> Result<Vec<IpAddr>, String> {
    let parse = |text: &String| {
        text.parse().map_err(|_| format!("{text} is not an IP address, and names are not resolved here"))
    };
    endpoint.addresses.iter().map(parse).collect()
}

/// Not said means yes.
fn is_ready(endpoint: &Listed) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
}

fn is_ending(endpoint: &Listed) -> bool {
    let conditions = endpoint.conditions.as_ref();
    let said = |condition: Option<bool>| condition.unwrap_or(false);
    conditions.is_some_and(|conditions| said(conditions.serving) && said(conditions.terminating))
}
