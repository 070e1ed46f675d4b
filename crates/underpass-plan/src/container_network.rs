//! ContainerNetwork: one network of a container engine, made, adopted or removed as its mode says.
//!
//! | mode       | makes it | uses one that exists | removes it at the end |
//! |------------|----------|----------------------|-----------------------|
//! | session    | yes      | only its own         | yes                   |
//! | persistent | yes      | yes                  | no                    |
//! | existing   | no       | yes                  | no                    |
//! | cleanup    | no       | yes                  | yes                   |
//!
//! The state comes from what the engine shows, never from what was asked of it: a network is Running in the pass that sees it, not in
//! the pass that creates it. Until an engine can be driven nothing is made, so no finalizer is taken and the object can go at any time.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use underpass_resources::address::{Cidr, IpAddress};
use underpass_resources::conditions::READY;
use underpass_resources::container_network::{
    ContainerNetwork, ContainerNetworkStatus as Status, NetworkMode as Mode, NetworkState as State,
};

use crate::plan::{Action, Cause, Failure, Finalizer, NetworkRequest, Plan, Subject};
use crate::ready::{CONTROLLERS_KILLED, Ready};

/// Held while a network exists that has to be removed at the end.
pub const FINALIZER: &str = "underpass.dev/container-network";

/// How soon an engine that is away, or a network that somebody else has to make, is looked for again. An engine's start and a new
/// network give no signal while nobody is connected to the engine.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// A network was once seen to be removed without anything being heard of it, or only before it was gone: what runs is looked at again.
const LOOK_IN_CASE: Duration = Duration::from_secs(15);

/// How long an engine may take to let go of a network that nobody uses any more.
const LET_GO: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Observed {
    pub object: ContainerNetwork,
    pub engine: Engine,
    #[serde(default)]
    pub failure: Option<Failure>,
    pub now: Timestamp,
}

/// The container engine as it was seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Engine {
    /// No engine can be driven. `why` says where it was looked for and what to do.
    Unavailable { why: String },
    /// It answered: the network of the wanted name, if there is one.
    Available { network: Option<Network> },
}

/// A network as the engine describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    pub id: String,
    pub name: String,
    #[serde(default)]
    pub driver: String,
    #[serde(default)]
    pub ipv6: bool,
    #[serde(default)]
    pub subnets: Vec<Cidr>,
    #[serde(default)]
    pub gateways: Vec<IpAddress>,
    /// Names by id. Docker leaves out those that do not run.
    #[serde(default)]
    pub containers: BTreeMap<String, String>,
    /// The uid in the label that a network of ours carries.
    #[serde(default)]
    pub owner: Option<String>,
}

/// What was decided, before it is compared with what is stored.
struct Decision<'a> {
    state: State,
    ready: Ready,
    finalizer: Finalizer,
    action: Option<Action>,
    /// The network whose details the status shows.
    shown: Option<&'a Network>,
    look_again_after: Option<Duration>,
    because: String,
}

pub fn plan(observed: &Observed) -> Plan {
    let deleted = observed.object.metadata.deletion_timestamp.is_some();
    if deleted && !holds_finalizer(&observed.object.metadata) {
        return Plan::nothing(subject(observed), "it is being deleted, and nothing of it is left to remove");
    }
    let decision = match (&observed.engine, deleted) {
        (Engine::Unavailable { why }, false) => without_engine(observed, why),
        (Engine::Unavailable { why }, true) => removal_blocked(observed, why),
        (Engine::Available { network: None }, false) => absent(observed),
        (Engine::Available { network: Some(network) }, false) => present(observed, network),
        (Engine::Available { network }, true) => remove(observed, network.as_ref()),
    };
    decision.into_plan(observed)
}

/// The plan of who is left when the controllers were killed: without them nobody knows of the network, whether or not it is still there.
pub fn abandon(object: ContainerNetwork, why: &str, now: Timestamp) -> Plan {
    let observed = Observed { object, engine: Engine::Unavailable { why: why.to_owned() }, failure: None, now };
    if observed.object.metadata.deletion_timestamp.is_some() {
        return Plan::nothing(subject(&observed), "it does not say that it works");
    }
    let decision = Decision {
        state: State::Pending,
        ready: Ready::no(CONTROLLERS_KILLED, why),
        finalizer: Finalizer::Leave,
        action: None,
        shown: None,
        look_again_after: None,
        because: why.to_owned(),
    };
    decision.into_plan(&observed)
}

/// The name of the network on the engine. A name that nobody chose ends in characters of the object's uid: the same in every pass and
/// after a crash, different for two objects that have had the same name.
pub fn network_name(object: &ContainerNetwork) -> String {
    if let Some(name) = &object.spec.network_name {
        return name.to_string();
    }
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let suffix: String =
        object.metadata.uid.iter().flat_map(|uid| uid.chars()).filter(char::is_ascii_alphanumeric).take(10).collect();
    if suffix.is_empty() { format!("{name}-<from its uid>") } else { format!("{name}-{suffix}") }
}

fn without_engine<'a>(observed: &'a Observed, why: &str) -> Decision<'a> {
    Decision {
        state: State::Pending,
        ready: Ready::no("NoContainerEngine", why),
        finalizer: Finalizer::Leave,
        action: None,
        shown: None,
        look_again_after: Some(LOOK_AGAIN),
        because: format!(
            "the network {} needs a container engine, and none can be driven",
            network_name(&observed.object)
        ),
    }
}

fn absent(observed: &Observed) -> Decision<'_> {
    let name = network_name(&observed.object);
    if !mode(observed).creates() {
        return not_found(observed, &name);
    }
    if let Some((failure, wait)) = waiting(observed) {
        return Decision {
            state: State::FailedToStart,
            ready: Ready::no(failure.cause.as_str(), &failure.message),
            finalizer: hold(observed),
            action: None,
            shown: None,
            look_again_after: Some(wait),
            because: format!("creating the network {name} failed, and the time to try again has not come"),
        };
    }
    let vanished = observed.object.status.as_ref().is_some_and(|status| status.id.is_some());
    let (ready, because) = if vanished {
        (
            Ready::no(
                "NetworkVanished",
                format!("the network {name} was removed from the engine by somebody else; it is being created again"),
            ),
            format!("the network {name} existed and is gone from the engine"),
        )
    } else {
        (
            Ready::not_yet("Creating", format!("the network {name} is being created")),
            format!("the engine has no network {name}, and mode {} creates it", word(mode(observed))),
        )
    };
    Decision {
        state: if observed.failure.is_some() { State::FailedToStart } else { State::Pending },
        ready: failed(observed).unwrap_or(ready),
        finalizer: hold(observed),
        action: Some(Action::CreateNetwork(request(observed, &name))),
        shown: None,
        look_again_after: None,
        because,
    }
}

fn not_found<'a>(observed: &'a Observed, name: &str) -> Decision<'a> {
    Decision {
        state: State::NotFound,
        ready: Ready::no(
            "NetworkNotFound",
            format!("the engine has no network {name}; create it, or use mode session or persistent"),
        ),
        finalizer: hold(observed),
        action: None,
        shown: None,
        look_again_after: Some(LOOK_AGAIN),
        because: format!("mode {} uses a network that exists and never creates one", word(mode(observed))),
    }
}

fn present<'a>(observed: &'a Observed, network: &'a Network) -> Decision<'a> {
    let (state, ready, because) = match refusal(observed, network) {
        Some(ready) => {
            (State::FailedToStart, ready, format!("the engine has a network {} that does not fit", network.name))
        }
        None => (
            State::Running,
            Ready::yes("NetworkExists", format!("the engine has the network {} ({})", network.name, network.id)),
            format!("the engine shows the network {}", network.name),
        ),
    };
    let running = state == State::Running;
    Decision {
        state,
        ready,
        finalizer: if running { hold(observed) } else { Finalizer::Leave },
        action: None,
        shown: running.then_some(network),
        look_again_after: Some(if running { LOOK_IN_CASE } else { LOOK_AGAIN }),
        because,
    }
}

/// Why a network of the right name is not the one that the object asks for.
fn refusal(observed: &Observed, network: &Network) -> Option<Ready> {
    if mode(observed) == Mode::Session && !is_own(observed, network) {
        return Some(Ready::no(
            "NameTaken",
            format!(
                "a network {} exists already and does not belong to this object; choose another spec.networkName, \
                 or use mode existing or persistent to share it",
                network.name
            ),
        ));
    }
    (wants_ipv6(observed) && !network.ipv6).then(|| {
        Ready::no(
            "NoIpv6",
            format!("the network {} exists without IPv6; remove it, or ask for spec.ipv6: false", network.name),
        )
    })
}

fn removal_blocked<'a>(observed: &'a Observed, why: &str) -> Decision<'a> {
    let name = network_name(&observed.object);
    Decision {
        state: State::Removing,
        ready: Ready::no("NoContainerEngine", format!("the network {name} cannot be removed: {why}")),
        finalizer: Finalizer::Leave,
        action: None,
        shown: None,
        look_again_after: Some(LOOK_AGAIN),
        because: format!("the network {name} may still exist, and only its engine can tell"),
    }
}

/// Deletion is a plan like any other: nothing of the object shall be left.
fn remove<'a>(observed: &'a Observed, network: Option<&'a Network>) -> Decision<'a> {
    let ours = network
        .filter(|network| mode(observed).removes() && (mode(observed) == Mode::Cleanup || is_own(observed, network)));
    let Some(network) = ours else {
        return Decision {
            state: State::Removed,
            ready: Ready::not_yet("Removed", "nothing of this object is left on the engine"),
            finalizer: Finalizer::Remove(FINALIZER),
            action: None,
            shown: None,
            look_again_after: None,
            because: "the engine shows no network that this object has to remove".to_owned(),
        };
    };
    let freed = somebody_left(observed, network);
    let waiting = waiting_for(observed, network).filter(|_| !freed);
    let trouble = in_use(observed, network).or_else(|| failed(observed).filter(|_| !freed));
    Decision {
        state: State::Removing,
        ready: trouble
            .unwrap_or_else(|| Ready::not_yet("Removing", format!("the network {} is being removed", network.name))),
        finalizer: Finalizer::Leave,
        action: waiting.is_none().then(|| Action::RemoveNetwork { id: network.id.clone(), name: network.name.clone() }),
        shown: Some(network),
        look_again_after: waiting.map(|wait| wait.min(LOOK_AGAIN)),
        because: format!("the object is being deleted, and mode {} takes its network along", word(mode(observed))),
    }
}

/// How long its removal is not tried again. An engine lets go of a network a moment after its last user has left.
fn waiting_for(observed: &Observed, network: &Network) -> Option<Duration> {
    let failure = observed.failure.as_ref()?;
    let unused = failure.cause == Cause::NetworkInUse && network.containers.is_empty();
    let failure = if unused { failure.retried_within(LET_GO) } else { failure.clone() };
    failure.wait(observed.now)
}

/// Who has to go before the network can.
fn in_use(observed: &Observed, network: &Network) -> Option<Ready> {
    let cause = observed.failure.as_ref().map(|failure| failure.cause).filter(|cause| *cause == Cause::NetworkInUse)?;
    let names: Vec<&str> = network.containers.values().map(String::as_str).collect();
    let who = match names.as_slice() {
        [] => return None,
        [name] => format!("the container {name}: remove it, or disconnect it"),
        names => format!("the containers {}: remove them, or disconnect them", names.join(", ")),
    };
    let message = format!("the network {} cannot be removed, because it is used by {who}", network.name);
    Some(Ready::no(cause.as_str(), message))
}

/// Whether a container that used the network does not any more: that is worth another attempt at once.
fn somebody_left(observed: &Observed, network: &Network) -> bool {
    let before = observed.object.status.iter().flat_map(|status| &status.container_ids);
    before.into_iter().any(|id| !network.containers.contains_key(id))
}

impl Decision<'_> {
    fn into_plan(self, observed: &Observed) -> Plan {
        let mut stored = observed.object.status.clone().unwrap_or_default();
        // Conditions of other writers are theirs: neither compared nor sent.
        stored.conditions.retain(|condition| condition.type_ == READY);
        let generation = observed.object.metadata.generation;
        let mut status = self.status();
        status.observed_generation = generation;
        status.conditions = stored.conditions.clone();
        let event = self.ready.record(&mut status.conditions, generation, observed.now);
        Plan {
            subject: subject(observed),
            finalizer: self.finalizer,
            status: (status != stored).then(|| json!(status)),
            events: event.into_iter().collect(),
            actions: self.action.into_iter().collect(),
            look_again_after: self.look_again_after,
            reasons: vec![self.because],
        }
    }

    /// What the engine shows, without what concerns the object's own history.
    fn status(&self) -> Status {
        let mut status = Status { state: Some(self.state), message: self.ready.complaint(), ..Status::default() };
        if let Some(network) = self.shown {
            status.id = Some(network.id.clone());
            status.network_name = Some(network.name.clone());
            status.driver = Some(network.driver.clone());
            status.ipv6 = Some(network.ipv6);
            status.subnets = network.subnets.clone();
            status.gateways = network.gateways.clone();
            status.container_ids = network.containers.keys().cloned().collect();
        }
        status
    }
}

fn subject(observed: &Observed) -> Subject {
    Subject::new("underpass.dev/v1alpha1", "ContainerNetwork", &observed.object.metadata)
}

fn request(observed: &Observed, name: &str) -> NetworkRequest {
    NetworkRequest {
        name: name.to_owned(),
        object: observed.object.metadata.name.clone().unwrap_or_default(),
        ipv6: wants_ipv6(observed),
        owner: mode(observed).removes().then(|| observed.object.metadata.uid.clone().unwrap_or_default()),
    }
}

/// The finalizer stands before the first side effect, on objects that leave something to remove.
fn hold(observed: &Observed) -> Finalizer {
    if mode(observed).removes() && !holds_finalizer(&observed.object.metadata) {
        Finalizer::Add(FINALIZER)
    } else {
        Finalizer::Leave
    }
}

fn holds_finalizer(metadata: &ObjectMeta) -> bool {
    metadata.finalizers.iter().flatten().any(|name| name == FINALIZER)
}

/// What the last action's failure, if it is not yet overcome, makes of the object.
fn failed(observed: &Observed) -> Option<Ready> {
    let failure = observed.failure.as_ref()?;
    Some(Ready::no(failure.cause.as_str(), &failure.message))
}

fn waiting(observed: &Observed) -> Option<(&Failure, Duration)> {
    let failure = observed.failure.as_ref()?;
    failure.wait(observed.now).map(|wait| (failure, wait))
}

fn is_own(observed: &Observed, network: &Network) -> bool {
    network.owner.is_some() && network.owner == observed.object.metadata.uid
}

fn wants_ipv6(observed: &Observed) -> bool {
    observed.object.spec.ipv6
}

fn mode(observed: &Observed) -> Mode {
    observed.object.spec.effective_mode()
}

fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::Session => "session",
        Mode::Persistent => "persistent",
        Mode::Existing => "existing",
        Mode::Cleanup => "cleanup",
    }
}
