//! Networks.
//!
//! Docker before 25 makes a second network of a name that is taken, and says so in a warning. Podman refuses. So the engine is looked
//! at before and after, and whoever is not alone with a name gives way.

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use bollard::models::{Ipam, IpamConfig, NetworkCreateRequest, NetworkInspect};
use bollard::query_parameters::{InspectNetworkOptions, ListNetworksOptions};
use sha2::{Digest, Sha256};
use tokio::time::sleep;
use underpass_plan::NetworkRequest;
use underpass_plan::container_network::Network;

use super::{ACT, ASK, Connection, gone_is_fine, if_found, label_filter};
use crate::engine::{EngineError, EngineKind};
use crate::labels::{KIND, OBJECT, UID};

/// How many ranges are tried when others have taken those that the name stands for.
const IPV6_RANGES: u8 = 8;

/// How often makers of one name may be in each other's way.
const ATTEMPTS: u32 = 8;

impl Connection {
    pub(crate) async fn find_network(&self, name: &str) -> Result<Option<Network>, EngineError> {
        Ok(self.networks_named(name).await?.into_iter().next().map(describe))
    }

    /// Docker gives the same name to whoever asks at the same time. Whoever then sees another network of its name takes its own away and
    /// starts again: which one is older does not say which one was seen first, and so was promised to somebody.
    pub(crate) async fn create_network(&self, request: &NetworkRequest) -> Result<(), EngineError> {
        for attempt in 1..=ATTEMPTS {
            if let Some(there) = self.find_network(&request.name).await? {
                return accept(request, &there);
            }
            let id = match self.make_network(request).await {
                Ok(id) => id,
                // Somebody was faster, perhaps another life of ourselves.
                Err(error @ EngineError::NameTaken(_)) => {
                    let there = self.find_network(&request.name).await?;
                    return there.map_or(Err(error), |there| accept(request, &there));
                }
                Err(error) => return Err(error),
            };
            let networks = self.networks_named(&request.name).await?;
            if networks.iter().all(|network| network.id.as_deref() == Some(&id)) {
                return if networks.is_empty() { Err(not_shown(request)) } else { Ok(()) };
            }
            self.remove_network(&id).await?;
            sleep(pause(&id, attempt)).await;
        }
        Err(EngineError::NameTaken(format!("several make the network {} at the same time", request.name)))
    }

    /// Podman looks for containers only when it is given the name, and takes the network away from under them when it is given the
    /// id. Its names are unique, and its ids follow from them; Docker's names are not.
    pub(crate) async fn remove_network(&self, id: &str) -> Result<(), EngineError> {
        if self.description.kind == EngineKind::Docker {
            return gone_is_fine(self.within(ACT, self.docker.remove_network(id)).await);
        }
        let inspected = self.within(ASK, self.docker.inspect_network(id, None::<InspectNetworkOptions>)).await;
        let Some(name) = if_found(inspected)?.and_then(|network| network.name) else { return Ok(()) };
        gone_is_fine(self.within(ACT, self.docker.remove_network(&name)).await)
    }

    pub(crate) async fn list_networks(&self, labels: &[(&str, &str)]) -> Result<Vec<Network>, EngineError> {
        self.networks(label_filter(labels)).await.map(|list| list.into_iter().map(describe).collect())
    }

    /// What exists, as pairs of id and name.
    pub(super) async fn network_names(&self) -> Result<Vec<(String, String)>, EngineError> {
        let listed = self.within(ASK, self.docker.list_networks(None)).await?;
        Ok(listed.into_iter().filter_map(|network| Some((network.id?, network.name?))).collect())
    }

    /// The oldest first. The engines' filter finds parts of names, too.
    async fn networks_named(&self, name: &str) -> Result<Vec<NetworkInspect>, EngineError> {
        let mut networks = self.networks(Some([("name".to_owned(), vec![name.to_owned()])].into())).await?;
        networks.retain(|network| network.name.as_deref() == Some(name));
        networks.sort_by(|a, b| (&a.created, &a.id).cmp(&(&b.created, &b.id)));
        Ok(networks)
    }

    /// With their containers, which a list does not have.
    async fn networks(
        &self,
        filters: Option<HashMap<String, Vec<String>>>,
    ) -> Result<Vec<NetworkInspect>, EngineError> {
        let listed = self.docker.list_networks(Some(ListNetworksOptions { filters }));
        let mut networks = Vec::new();
        for id in self.within(ASK, listed).await?.into_iter().filter_map(|network| network.id) {
            let inspected = self.docker.inspect_network(&id, None::<InspectNetworkOptions>);
            networks.extend(if_found(self.within(ASK, inspected).await)?);
        }
        Ok(networks)
    }

    async fn make_network(&self, request: &NetworkRequest) -> Result<String, EngineError> {
        let mut attempt = 0;
        loop {
            let body = NetworkCreateRequest {
                name: request.name.clone(),
                driver: Some("bridge".to_owned()),
                enable_ipv6: Some(request.ipv6),
                ipam: request.ipv6.then(|| ipv6_range(&request.name, attempt)),
                labels: Some(self.network_labels(request)),
                ..NetworkCreateRequest::default()
            };
            match self.within(ACT, self.docker.create_network(body)).await {
                Err(EngineError::Refused(words)) if request.ipv6 && attempt < IPV6_RANGES && overlaps(&words) => {
                    attempt += 1;
                }
                made => return made.map(|made| made.id),
            }
        }
    }

    fn network_labels(&self, request: &NetworkRequest) -> HashMap<String, String> {
        let mut labels = self.maker.labels();
        labels.insert(KIND.to_owned(), "ContainerNetwork".to_owned());
        labels.insert(OBJECT.to_owned(), request.object.clone());
        labels.extend(request.owner.clone().map(|owner| (UID.to_owned(), owner)));
        labels.into_iter().collect()
    }
}

fn not_shown(request: &NetworkRequest) -> EngineError {
    EngineError::Refused(format!("it said that it made the network {}, and does not show it", request.name))
}

/// Another one for each of those who are in each other's way, and longer than the making takes: an id is a random number.
fn pause(id: &str, attempt: u32) -> Duration {
    let random = id.get(..2).and_then(|digits| u32::from_str_radix(digits, 16).ok()).unwrap_or_default();
    Duration::from_millis(4) * random * attempt
}

/// Whether a network that is there is what was asked for.
fn accept(request: &NetworkRequest, there: &Network) -> Result<(), EngineError> {
    if request.owner.is_none() || request.owner == there.owner {
        return Ok(());
    }
    Err(EngineError::NameTaken(format!("the engine has a network {} that belongs to somebody else", there.name)))
}

/// Docker before 27 has no ranges of its own for IPv6. Ours are unique local ones that follow from the name, so that a network which
/// is made again has the same.
fn ipv6_range(name: &str, attempt: u8) -> Ipam {
    let hash = Sha256::new().chain_update(name).chain_update([attempt]).finalize();
    let mut octets = [0; 16];
    octets[0] = 0xfd;
    octets[1..8].copy_from_slice(&hash[..7]);
    let subnet = format!("{}/64", Ipv6Addr::from(octets));
    Ipam { config: Some(vec![IpamConfig { subnet: Some(subnet), ..IpamConfig::default() }]), ..Ipam::default() }
}

fn overlaps(words: &str) -> bool {
    ["overlap", "is being used by", "already used on the host"].iter().any(|part| words.to_lowercase().contains(part))
}

fn describe(network: NetworkInspect) -> Network {
    let ranges = network.ipam.and_then(|ipam| ipam.config).unwrap_or_default();
    let owner = network.labels.and_then(|labels| labels.get(UID).cloned());
    let without_prefix = |gateway: String| gateway.split('/').next().unwrap_or_default().to_owned();
    Network {
        id: network.id.unwrap_or_default(),
        name: network.name.unwrap_or_default(),
        driver: network.driver.unwrap_or_default(),
        ipv6: network.enable_ipv6.unwrap_or_default(),
        subnets: ranges.iter().filter_map(|range| range.subnet.clone()).map(|subnet| subnet.as_str().into()).collect(),
        gateways: ranges
            .into_iter()
            .filter_map(|range| range.gateway)
            .map(without_prefix)
            .filter(|gateway| !gateway.is_empty())
            .map(|gateway| gateway.as_str().into())
            .collect(),
        containers: network
            .containers
            .unwrap_or_default()
            .into_iter()
            .map(|(id, container)| (id, container.name.unwrap_or_default()))
            .collect(),
        owner,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_is_taken_is_told_from_other_refusals() {
        assert!(overlaps("Pool overlaps with other one on this address space"));
        assert!(overlaps("subnet fd00::/64 is already used on the host or by another config"));
        assert!(!overlaps("invalid network name"));
    }

    #[test]
    fn a_range_follows_from_the_name_and_is_unique_local() {
        let range = |name, attempt| ipv6_range(name, attempt).config.unwrap().remove(0).subnet.unwrap();
        assert_eq!(range("a", 0), range("a", 0));
        assert_ne!(range("a", 0), range("b", 0));
        assert_ne!(range("a", 0), range("a", 1));
        assert!(range("a", 0).starts_with("fd") && range("a", 0).ends_with("::/64"), "{}", range("a", 0));
    }
}
