//! A ProxyServer on a cluster: the pods that carry it, and all that these need.
//!
//! What the data plane makes of the configuration is not known here: every pod says it of itself in `status.pods`, and the conditions are
//! made of that, of the Deployment and of the pods. Reading the Services here was rejected: the operator would need to read those of every
//! namespace, and would still only know what should be, not what is.
//!
//! Everything stands at a place that the object's name gives ([`places`]), so that it is found without a search. What owner references
//! cannot reach, because it stands in another namespace, is recorded before it is made, and removed before the finalizer goes.

mod changes;
mod network;
mod objects;
mod place;
mod pod;
mod pods;
mod removal;
mod status;

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use underpass_resources::ProxyServer;

use crate::made::is_made_for;
use crate::place::Place;
use crate::plan::{Action, Failure, Finalizer, Plan, Subject};
use network::Network;

pub use network::asked_addresses;
pub use place::{
    DEPLOYMENT, KINDS, LEASE, NAMESPACE, NETWORK_ATTACHMENT, places, report_writer, role, target_namespaces,
};

/// Held while something stands where owner references do not reach.
pub const FINALIZER: &str = "underpass.dev/proxy-server";

/// All that the decision may look at.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    pub object: ProxyServer,
    /// What stands at its places, whoever made it.
    #[serde(default)]
    pub found: Vec<Value>,
    /// Of the namespaces that its backends lead to, those that exist and do not end.
    #[serde(default)]
    pub namespaces: BTreeSet<String>,
    #[serde(default)]
    pub pods: Vec<Pod>,
    #[serde(default)]
    pub attachment: Attachment,
    /// The ProxyServer that has its address on its network, if that is another.
    #[serde(default)]
    pub address_owner: Option<String>,
    pub site: Site,
    #[serde(default)]
    pub failure: Option<Failure>,
    pub now: Timestamp,
}

/// The NetworkAttachmentDefinition that the object names, as it was found.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Attachment {
    /// It names none.
    #[default]
    NotWanted,
    /// The cluster does not know such definitions.
    NoMultus,
    Missing,
    Found {
        /// `spec.config`; without one a file on the nodes says it.
        #[serde(default)]
        config: Option<String>,
    },
}

/// What is the same for all proxies of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Site {
    /// The image that the operator itself runs from.
    pub image: String,
    /// Whether users are the platform's choice, and ports below 1024 need its leave.
    #[serde(default)]
    pub openshift: bool,
}

pub fn plan(observed: &Observed) -> Plan {
    if observed.object.metadata.deletion_timestamp.is_some() {
        return removal::plan(observed);
    }
    let network = Network::of(observed);
    let wait = observed.failure.as_ref().and_then(|failure| failure.wait(observed.now));
    let actions = if wait.is_some() { Vec::new() } else { changes::actions(observed, &network) };
    let told = status::tell(observed, &network);
    Plan {
        subject: subject(observed),
        finalizer: if has_finalizer(observed) { Finalizer::Leave } else { Finalizer::Add(FINALIZER) },
        status: told.status,
        events: told.events,
        reasons: reasons(observed, &actions, &network),
        actions,
        look_again_after: wait.or(told.look_again_after),
    }
}

fn reasons(observed: &Observed, actions: &[Action], network: &Network) -> Vec<String> {
    let mut reasons = Vec::new();
    if let Some(failure) = observed.failure.as_ref().filter(|failure| failure.wait(observed.now).is_some()) {
        reasons.push(format!("waiting before the next attempt, because the last one failed: {}", failure.message));
    } else if let Some(place) = changes::taken(observed, network) {
        reasons.push(format!("nothing is made around what belongs to somebody else: {place}"));
    } else if actions.is_empty() {
        reasons.push("everything that it needs stands as it should".to_owned());
    } else {
        reasons.push("what it needs differs from what stands there".to_owned());
    }
    if let Network::Unusable(finding) = network {
        reasons.push(format!("no pod is started without its network: {}", finding.message));
    }
    reasons
}

fn subject(observed: &Observed) -> Subject {
    Subject::new("hostedcluster.densityops.com/v1alpha1", "ProxyServer", &observed.object.metadata)
}

fn has_finalizer(observed: &Observed) -> bool {
    observed.object.metadata.finalizers.iter().flatten().any(|name| name == FINALIZER)
}

/// The object at that place, if it is ours.
fn own<'a>(observed: &'a Observed, place: &Place) -> Option<&'a Value> {
    observed.found.iter().find(|found| place.is_of(found)).filter(|found| is_ours(observed, found))
}

fn is_ours(observed: &Observed, found: &Value) -> bool {
    is_made_for(observed.object.metadata.uid.as_deref(), found)
}

fn deployment(observed: &Observed) -> Option<Deployment> {
    let found = own(observed, &place::deployment(&observed.object))?;
    serde_json::from_value(found.clone()).ok()
}
