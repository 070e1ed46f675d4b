//! Which ProxyServer has which address of which network. Two that ask for the same would both be told that they work, while machines reach
//! now one and now the other; so one has it, and the others are told which.
//!
//! Nothing of it is stored: who has an address says so in its status, and of those who only ask for it the oldest comes first. All objects are
//! read once, before the first is judged. A list for every pass was rejected: it would read all objects once for each.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use futures::channel::mpsc::UnboundedSender;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use underpass_resources::ProxyServer;
use underpass_resources::attachment::ResolvedAttachment;
use underpass_resources::conditions;

use crate::reconcile::Key;

/// Of a list, in one answer.
const PAGE: u32 = 500;

type Place = (ResolvedAttachment, IpAddr);

/// Who comes first: whoever has it, then the oldest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    only_asks: bool,
    since: Option<Timestamp>,
    uid: String,
}

#[derive(Debug, Default)]
struct Claims {
    by_key: HashMap<Key, (Place, Rank)>,
    by_place: BTreeMap<Place, BTreeMap<Rank, Key>>,
}

pub(crate) struct Addresses {
    claims: Mutex<Claims>,
    filled: OnceCell<()>,
    /// Those who have to be looked at because another came or went.
    wake: UnboundedSender<Key>,
}

impl Addresses {
    pub(crate) fn new(wake: UnboundedSender<Key>) -> Self {
        Self { claims: Mutex::default(), filled: OnceCell::new(), wake }
    }

    /// Reads all objects, the first time.
    pub(crate) async fn fill(&self, client: &Client) -> kube::Result<()> {
        self.filled.get_or_try_init(|| self.read_all(client)).await.map(drop)
    }

    async fn read_all(&self, client: &Client) -> kube::Result<()> {
        let objects: Api<ProxyServer> = Api::all(client.clone());
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = objects.list(&page).await?;
            for object in &list.items {
                self.claim(&key(object), object);
            }
            match list.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => page = page.continue_token(&next),
                None => return Ok(()),
            }
        }
    }

    /// Notes what the object asks for. If it is another's: whose.
    pub(crate) fn claim(&self, key: &Key, object: &ProxyServer) -> Option<Key> {
        let place = place(object);
        let others = self.claims.lock().put(key, place.clone().map(|place| (place, rank(object))));
        self.tell(others);
        let claims = self.claims.lock();
        let first = claims.by_place.get(&place?)?.values().next()?;
        (first != key).then(|| first.clone())
    }

    /// It is gone.
    pub(crate) fn forget(&self, key: &Key) {
        let others = self.claims.lock().put(key, None);
        self.tell(others);
    }

    fn tell(&self, others: Vec<Key>) {
        for key in others {
            // Nobody listens once the loop has ended.
            let _ = self.wake.unbounded_send(key);
        }
    }
}

impl Claims {
    /// Who asks for the same as before or now, if there is a difference between the two.
    fn put(&mut self, key: &Key, claim: Option<(Place, Rank)>) -> Vec<Key> {
        let before = self.by_key.remove(key);
        // Who had it has it on, whatever its status says while it changes.
        let claim = claim.map(|(place, rank)| match &before {
            Some((old, earlier)) if *old == place => (place, rank.min(earlier.clone())),
            _ => (place, rank),
        });
        let mut others = Vec::new();
        if let Some((place, rank)) = &before
            && let Some(all) = self.by_place.get_mut(place)
        {
            all.remove(rank);
            if before != claim {
                others.extend(all.values().cloned());
            }
            if all.is_empty() {
                self.by_place.remove(place);
            }
        }
        if let Some((place, rank)) = claim.clone() {
            let all = self.by_place.entry(place).or_default();
            if before != claim {
                others.extend(all.values().cloned());
            }
            all.insert(rank, key.clone());
        }
        if let Some(claim) = claim {
            self.by_key.insert(key.clone(), claim);
        }
        others
    }
}

fn place(object: &ProxyServer) -> Option<Place> {
    let network = &object.spec.network_config;
    Some((network.attachment.resolve(&object.namespace().unwrap_or_default())?, network.server_ip.address()?))
}

fn rank(object: &ProxyServer) -> Rank {
    let has_it = object.status.as_ref().is_some_and(|status| {
        status.observed_generation == object.metadata.generation
            && conditions::is_true(&status.conditions, "NetworkReady")
    });
    Rank {
        only_asks: !has_it,
        since: object.metadata.creation_timestamp.as_ref().map(|time| time.0),
        uid: object.metadata.uid.clone().unwrap_or_default(),
    }
}

fn key(object: &ProxyServer) -> Key {
    Key { namespace: object.namespace(), name: object.name_any() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may")]

    use futures::channel::mpsc::{UnboundedReceiver, unbounded};
    use serde_json::json;

    use super::*;

    /// One that was made in that second, and whether its status says that it has the address.
    fn proxy(name: &str, address: &str, second: u8, has_it: bool) -> ProxyServer {
        let conditions = if has_it {
            json!([{ "type": "NetworkReady", "status": "True", "reason": "Attached", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }])
        } else {
            json!([])
        };
        serde_json::from_value(json!({
            "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer",
            "metadata": {
                "name": name, "namespace": "hosted", "uid": name, "generation": 1,
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            },
            "spec": { "networkConfig": { "serverIP": address, "networkAttachmentName": "vlan" }, "backends": [] },
            "status": { "observedGeneration": 1, "conditions": conditions },
        }))
        .unwrap()
    }

    fn addresses() -> (Addresses, UnboundedReceiver<Key>) {
        let (wake, woken) = unbounded();
        (Addresses::new(wake), woken)
    }

    fn named(name: &str) -> Key {
        Key::namespaced("hosted", name)
    }

    fn told(woken: &mut UnboundedReceiver<Key>) -> Vec<Key> {
        std::iter::from_fn(|| woken.try_recv().ok()).collect()
    }

    #[test]
    fn the_oldest_comes_first_and_the_next_one_is_told_when_it_has_gone() {
        let (addresses, mut woken) = addresses();
        let (old, new) = (proxy("old", "10.0.0.4/24", 1, false), proxy("new", "10.0.0.4", 2, false));
        assert_eq!(addresses.claim(&named("new"), &new), None);
        assert_eq!(addresses.claim(&named("old"), &old), None);
        assert_eq!(told(&mut woken), [named("new")]);
        assert_eq!(addresses.claim(&named("new"), &new), Some(named("old")));
        assert_eq!(told(&mut woken), [], "nothing has changed");
        addresses.forget(&named("old"));
        assert_eq!((told(&mut woken), addresses.claim(&named("new"), &new)), (vec![named("new")], None));
    }

    #[test]
    fn whoever_has_it_keeps_it_from_older_ones_even_while_it_changes() {
        let (addresses, mut woken) = addresses();
        addresses.claim(&named("new"), &proxy("new", "10.0.0.4", 2, true));
        let moved = proxy("old", "10.0.0.4", 1, false);
        assert_eq!(addresses.claim(&named("old"), &moved), Some(named("new")));
        assert_eq!(addresses.claim(&named("new"), &proxy("new", "10.0.0.4", 2, false)), None);
        told(&mut woken);
        assert_eq!(addresses.claim(&named("new"), &proxy("new", "10.0.0.5", 2, false)), None);
        assert_eq!((told(&mut woken), addresses.claim(&named("old"), &moved)), (vec![named("old")], None));
    }

    #[test]
    fn other_addresses_and_proxies_without_a_network_do_not_matter() {
        let (addresses, _woken) = addresses();
        addresses.claim(&named("a"), &proxy("a", "10.0.0.4", 1, true));
        assert_eq!(addresses.claim(&named("b"), &proxy("b", "10.0.0.5", 2, false)), None);
        let mut alone = proxy("c", "10.0.0.4", 3, false);
        alone.spec.network_config.attachment.network_attachment_name = None;
        assert_eq!(addresses.claim(&named("c"), &alone), None);
    }
}
