//! Which ProxyServer has which address of which network. Two that ask for the same would both be told that they work, while machines reach
//! now one and now the other; so one has it, and the others are told which.
//!
//! Nothing of it is stored: whoever has an address has a Deployment or pods that ask for it, and has it until the last of these is gone, wherever
//! the object itself has moved. Of those who only ask the oldest comes first. All objects are read once, before the first is judged. A list for
//! every pass was rejected: it would read all objects once for each. So was the status: it says what was, and nothing while an object changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use std::net::IpAddr;

use futures::channel::mpsc::UnboundedSender;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, ListParams, ObjectMeta};
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tracing::warn;
use underpass_plan::OWNER_LABEL;
use underpass_plan::proxy_deployment::{DEPLOYMENT, asked_addresses};
use underpass_resources::attachment::ResolvedAttachment;
use underpass_resources::{ProxyServer, kind};

use crate::reconcile::Key;
use crate::{kinds, objects};

/// Of a list, in one answer.
const PAGE: u32 = 500;

pub(crate) type Place = (ResolvedAttachment, IpAddr);

/// Who comes first: whoever has it, then the oldest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    only_asks: bool,
    since: Option<Timestamp>,
    uid: String,
}

#[derive(Debug, Default)]
struct Claims {
    /// The place that an object asks for, and those that it still has.
    by_key: HashMap<Key, BTreeMap<Place, Rank>>,
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
        let made = ListParams::default().labels(OWNER_LABEL);
        let mut held: HashMap<String, BTreeSet<Place>> = HashMap::new();
        let mut hold = |meta: &ObjectMeta, object: &Value| {
            let owner = meta.labels.as_ref().and_then(|labels| labels.get(OWNER_LABEL)).cloned();
            held.entry(owner.unwrap_or_default()).or_default().extend(asked_addresses(object));
        };
        let deployments = objects::api(client, DEPLOYMENT, None);
        each(&deployments, made.clone(), |object| hold(&object.metadata, &json!(object))).await?;
        let pods: Api<Pod> = Api::all(client.clone());
        each(&pods, made, |pod| hold(&pod.metadata, &json!(pod))).await?;
        // Each by itself: one that cannot be read is not to hide all others.
        let proxies = kinds::api(client, kind("ProxyServer").expect("it is one of ours"), None);
        each(&proxies, ListParams::default(), |found| {
            let Some(object) = read(found) else { return };
            let held = object.metadata.uid.as_ref().and_then(|uid| held.get(uid)).cloned().unwrap_or_default();
            self.note(&key(&object), &object, &held);
        })
        .await
    }

    /// Notes what the object asks for, and what its Deployment and its pods do. If it asks for what is another's: whose.
    pub(crate) fn claim(&self, key: &Key, object: &ProxyServer, held: &BTreeSet<Place>) -> Option<Key> {
        self.note(key, object, held);
        let place = place(object)?;
        let mut claims = self.claims.lock();
        let first = claims.by_place.get(&place)?.values().next()?.clone();
        if first != *key {
            return Some(first);
        }
        // It acts on that from now on.
        claims.grant(key, &place);
        None
    }

    fn note(&self, key: &Key, object: &ProxyServer, held: &BTreeSet<Place>) {
        let rank = |place: Place| {
            let rank = rank(object, !held.contains(&place));
            (place, rank)
        };
        let claim = held.iter().cloned().chain(place(object)).map(rank).collect();
        let others = self.claims.lock().put(key, claim);
        self.tell(others);
    }

    /// It is gone.
    pub(crate) fn forget(&self, key: &Key) {
        let others = self.claims.lock().put(key, BTreeMap::new());
        self.tell(others);
    }

    fn tell(&self, others: BTreeSet<Key>) {
        for key in others {
            // Nobody listens once the loop has ended.
            let _ = self.wake.unbounded_send(key);
        }
    }
}

/// Of one that cannot be read nothing is known that counts; its own pass says so.
fn read(found: &DynamicObject) -> Option<ProxyServer> {
    let read = found.clone().try_parse();
    if let Err(error) = &read {
        let key = key(found);
        warn!(%key, "a ProxyServer is left out when addresses are compared, because it cannot be read: {error}");
    }
    read.ok()
}

/// In one answer after the other.
async fn each<K>(api: &Api<K>, params: ListParams, mut see: impl FnMut(&K)) -> kube::Result<()>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut page = params.limit(PAGE);
    loop {
        let list = api.list(&page).await?;
        list.items.iter().for_each(&mut see);
        match list.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => page = page.continue_token(&next),
            None => return Ok(()),
        }
    }
}

impl Claims {
    /// Who asks for something of which it matters that this is other than before.
    fn put(&mut self, key: &Key, mut claim: BTreeMap<Place, Rank>) -> BTreeSet<Key> {
        let before = self.by_key.remove(key).unwrap_or_default();
        // Who had it has it on, whatever is seen while it changes.
        for (place, rank) in &mut claim {
            if let Some(earlier) = before.get(place) {
                *rank = rank.clone().min(earlier.clone());
            }
        }
        let mut others = BTreeSet::new();
        let places: BTreeSet<Place> = before.keys().chain(claim.keys()).cloned().collect();
        for place in places.into_iter().filter(|place| before.get(place) != claim.get(place)) {
            let all = self.by_place.entry(place.clone()).or_default();
            all.retain(|_, holder| holder != key);
            others.extend(all.values().cloned());
            all.extend(claim.get(&place).map(|rank| (rank.clone(), key.clone())));
            if all.is_empty() {
                self.by_place.remove(&place);
            }
        }
        if !claim.is_empty() {
            self.by_key.insert(key.clone(), claim);
        }
        others
    }

    /// Has it, though nothing of it may stand yet.
    fn grant(&mut self, key: &Key, place: &Place) {
        let Some(rank) = self.by_key.get_mut(key).and_then(|claim| claim.get_mut(place)) else { return };
        let Some(all) = self.by_place.get_mut(place) else { return };
        all.remove(rank);
        rank.only_asks = false;
        all.insert(rank.clone(), key.clone());
    }
}

fn place(object: &ProxyServer) -> Option<Place> {
    let network = &object.spec.network_config;
    Some((network.attachment.resolve(&object.namespace().unwrap_or_default())?, network.server_ip.address()?))
}

fn rank(object: &ProxyServer, only_asks: bool) -> Rank {
    Rank {
        only_asks,
        since: object.metadata.creation_timestamp.as_ref().map(|time| time.0),
        uid: object.metadata.uid.clone().unwrap_or_default(),
    }
}

fn key(object: &impl ResourceExt) -> Key {
    Key { namespace: object.namespace(), name: object.name_any() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may")]

    use futures::channel::mpsc::{UnboundedReceiver, unbounded};

    use super::*;

    /// One that was made in that second.
    fn proxy(name: &str, address: &str, second: u8) -> ProxyServer {
        serde_json::from_value(json!({
            "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer",
            "metadata": {
                "name": name, "namespace": "hosted", "uid": name, "generation": 1,
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            },
            "spec": { "networkConfig": { "serverIP": address, "networkAttachmentName": "vlan" }, "backends": [] },
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

    /// What Deployments and pods ask for.
    fn held(addresses: &[&str]) -> BTreeSet<Place> {
        let network = ResolvedAttachment { namespace: "hosted".to_owned(), name: "vlan".to_owned() };
        addresses.iter().map(|address| (network.clone(), address.parse().unwrap())).collect()
    }

    fn told(woken: &mut UnboundedReceiver<Key>) -> Vec<Key> {
        std::iter::from_fn(|| woken.try_recv().ok()).collect()
    }

    #[test]
    fn the_oldest_comes_first_and_the_next_one_is_told_when_it_has_gone() {
        let (addresses, mut woken) = addresses();
        let (old, new, nothing) = (proxy("old", "10.0.0.4/24", 1), proxy("new", "10.0.0.4", 2), held(&[]));
        addresses.note(&named("new"), &new, &nothing);
        assert_eq!(addresses.claim(&named("old"), &old, &nothing), None);
        assert_eq!(told(&mut woken), [named("new")]);
        assert_eq!(addresses.claim(&named("new"), &new, &nothing), Some(named("old")));
        assert_eq!(told(&mut woken), [], "nothing has changed");
        addresses.forget(&named("old"));
        assert_eq!((told(&mut woken), addresses.claim(&named("new"), &new, &nothing)), (vec![named("new")], None));
    }

    #[test]
    fn whoever_was_let_have_it_keeps_it_from_older_ones_before_anything_of_it_stands() {
        let (addresses, _woken) = addresses();
        assert_eq!(addresses.claim(&named("new"), &proxy("new", "10.0.0.4", 2), &held(&[])), None);
        let moved = proxy("old", "10.0.0.4", 1);
        assert_eq!(addresses.claim(&named("old"), &moved, &held(&["10.0.0.3"])), Some(named("new")));
        assert_eq!(addresses.claim(&named("new"), &proxy("new", "10.0.0.4", 2), &held(&[])), None);
    }

    /// As after a restart, of a proxy that has just been changed.
    #[test]
    fn whoever_has_a_deployment_that_asks_for_it_comes_before_older_ones() {
        let (addresses, _woken) = addresses();
        let (old, new) = (proxy("old", "10.0.0.4", 1), proxy("new", "10.0.0.4", 2));
        addresses.note(&named("old"), &old, &held(&[]));
        addresses.note(&named("new"), &new, &held(&["10.0.0.4"]));
        assert_eq!(addresses.claim(&named("old"), &old, &held(&[])), Some(named("new")));
        assert_eq!(addresses.claim(&named("new"), &new, &held(&["10.0.0.4"])), None);
    }

    #[test]
    fn whoever_wants_what_is_anothers_keeps_what_it_has() {
        let (addresses, _woken) = addresses();
        let (four, five) = (held(&["10.0.0.4"]), held(&["10.0.0.5"]));
        assert_eq!(addresses.claim(&named("a"), &proxy("a", "10.0.0.4", 1), &four), None);
        assert_eq!(addresses.claim(&named("b"), &proxy("b", "10.0.0.5", 2), &five), None);
        assert_eq!(addresses.claim(&named("a"), &proxy("a", "10.0.0.5", 1), &four), Some(named("b")));
        let third = proxy("c", "10.0.0.4", 3);
        assert_eq!(addresses.claim(&named("c"), &third, &held(&[])), Some(named("a")), "its pod runs on");
    }

    #[test]
    fn an_address_is_free_when_the_last_pod_that_has_it_is_gone() {
        let (addresses, mut woken) = addresses();
        let (moving, waiting) = (proxy("a", "10.0.0.6", 1), proxy("c", "10.0.0.4", 3));
        addresses.claim(&named("a"), &proxy("a", "10.0.0.4", 1), &held(&["10.0.0.4"]));
        assert_eq!(addresses.claim(&named("a"), &moving, &held(&["10.0.0.4"])), None);
        assert_eq!(addresses.claim(&named("c"), &waiting, &held(&[])), Some(named("a")));
        assert_eq!(addresses.claim(&named("a"), &moving, &held(&["10.0.0.4", "10.0.0.6"])), None);
        assert_eq!(addresses.claim(&named("c"), &waiting, &held(&[])), Some(named("a")));
        told(&mut woken);
        assert_eq!(addresses.claim(&named("a"), &moving, &held(&["10.0.0.6"])), None);
        assert_eq!((told(&mut woken), addresses.claim(&named("c"), &waiting, &held(&[]))), (vec![named("c")], None));
    }

    #[test]
    fn other_addresses_and_proxies_without_a_network_do_not_matter() {
        let (addresses, _woken) = addresses();
        addresses.claim(&named("a"), &proxy("a", "10.0.0.4", 1), &held(&["10.0.0.4"]));
        assert_eq!(addresses.claim(&named("b"), &proxy("b", "10.0.0.5", 2), &held(&[])), None);
        let mut alone = proxy("c", "10.0.0.4", 3);
        alone.spec.network_config.attachment.network_attachment_name = None;
        assert_eq!(addresses.claim(&named("c"), &alone, &held(&[])), None);
    }

    /// It may have been stored under another schema; what the others have is known all the same.
    #[test]
    fn one_that_cannot_be_read_is_left_out_alone() {
        let found = |spec: Value| {
            let mut object = json!(proxy("a", "10.0.0.4", 1));
            object["spec"] = spec;
            serde_json::from_value::<DynamicObject>(object).unwrap()
        };
        let good = json!(proxy("a", "10.0.0.4", 1).spec);
        assert_eq!(read(&found(good.clone())).map(|object| place(&object)), Some(place(&proxy("a", "10.0.0.4", 1))));
        let mut odd = good;
        odd["replicas"] = json!("three");
        assert!(read(&found(odd)).is_none());
    }
}
