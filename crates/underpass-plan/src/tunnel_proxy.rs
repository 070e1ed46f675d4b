//! ContainerNetworkTunnelProxy: a pair of proxies and its tunnels, from nothing to Running, and back to nothing.
//!
//! ```text
//! Pending -> BuildingImage -> Starting -> Running
//!    (network, engine)  (image)  (client, then server)  (tunnels)
//!                 any of these -> Failed           restartPolicy Never
//!                      Running -> Starting again   restartPolicy Always, after a pause that grows
//!                  any of these -> Pending          somebody had one of its aliases first
//! ```
//!
//! The state comes from what is seen: the engine's containers with the object's uid, the process whose pid and start time were written
//! down, and what the pair itself lists. What was written down and is not seen any more has died; what is seen and was never written
//! down is a leftover and goes. Nothing written down means that nothing was started: so a new process of the controllers adopts a pair
//! that lives, and starts another where a watchdog has cleaned up. A pair that died before they saw it alive was ended with everything
//! else, by a crash or a reboot: that is no failure of the pair, and another is started in its place.

mod abandoned;
mod aliases;
mod endpoints;
mod observed;
mod removal;
mod restart;
mod servers;
mod status;
mod tunnels;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use underpass_resources::conditions::Finding;
use underpass_resources::container_network::NetworkState;
use underpass_resources::tunnel_proxy::{RestartPolicy, TunnelProxyState as State, TunnelState};

use crate::plan::{Action, Cause, ClientRequest, Failure, Finalizer, Plan, ServerRequest, Subject};
use crate::ready::Ready;
use aliases::Taken;
use restart::{RESTARTING, Restarts};
use status::Steps;
use tunnels::Tunnels;

pub use abandoned::abandon;
pub use endpoints::{OWNER_LABEL, manifest};
pub use observed::{
    Bystander, Container, Engine, Folder, Image, Observed, Pair, PreparedTunnel, Refusal, Server, StartedClient,
    StartedServer,
};
pub use underpass_resources::tunnel_proxy::{CONTROL_PORT, DATA_PORT};

/// Held while a pair may exist.
pub const FINALIZER: &str = "underpass.dev/tunnel-proxy";

/// An engine's start gives no signal while nobody is connected to it.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// A pair whose halves do not reach each other: in the first moments of its life, and later.
const LOOK_SOON: Duration = Duration::from_millis(50);
const LOOK_LATER: Duration = Duration::from_secs(2);
const FIRST_MOMENTS: Duration = Duration::from_secs(10);

/// A pair that runs: its processes' ends are told at once, a connection that hangs is not.
const LOOK_WHILE_RUNNING: Duration = Duration::from_secs(30);

/// A half that does not answer for so long does not come back by itself.
const SILENT_TOO_LONG: Duration = Duration::from_secs(30);

/// The engines' limit for a host name leaves room for more, but a name is for people.
const LONGEST_NAME: usize = 100;

/// What was decided, before it is compared with what is stored.
struct Decision {
    state: State,
    ready: Ready,
    /// About the parts; those that are left out are as they were last told.
    findings: Vec<Finding>,
    /// What the status says in its `message`, when it is not the complaint of `ready`.
    message: Option<String>,
    tunnels: Tunnels,
    /// Whether the pair's ids and ports are shown.
    shows_pair: bool,
    restarts: Restarts,
    finalizer: Finalizer,
    actions: Vec<Action>,
    look_again_after: Option<Duration>,
    because: String,
}

pub fn plan(observed: &Observed) -> Plan {
    let deleted = observed.object.metadata.deletion_timestamp.is_some();
    if deleted && !holds_finalizer(&observed.object.metadata) {
        return Plan::nothing(subject(observed), "it is being deleted, and nothing of it is left to remove");
    }
    let decision = if deleted { remove(observed) } else { keep(observed) };
    decision.into_plan(observed)
}

/// The name of the client proxy's container: the same in every pass and after a crash, another for an object of the same name that
/// comes later.
pub fn container_name(object: &ObjectMeta) -> String {
    let name: String = object.name.iter().flat_map(|name| name.chars()).take(LONGEST_NAME).collect();
    let uid = object.uid.iter().flat_map(|uid| uid.chars());
    let suffix: String = uid.filter(char::is_ascii_alphanumeric).take(10).collect();
    if suffix.is_empty() { format!("{name}-<from its uid>") } else { format!("{name}-{suffix}") }
}

fn keep(observed: &Observed) -> Decision {
    if stands_failed(observed) {
        return still_failed(observed);
    }
    if let Some(taken) = aliases::taken(observed) {
        return without_alias(observed, &taken);
    }
    if let Some(death) = death(observed) {
        return match observed.object.spec.restart_policy {
            _ if !observed.is_watched() => start_anew(observed, &death),
            RestartPolicy::Never => failed(observed, &death),
            RestartPolicy::Always => restart(observed, &death),
        };
    }
    if observed.object.spec.restart_policy == RestartPolicy::Never
        && let Some(cause) = failed_start(observed)
    {
        return failed(observed, &cause);
    }
    match (observed.started_client(), observed.started_server()) {
        (None, _) => without_pair(observed),
        (Some(_), None) => without_server(observed),
        (Some(_), Some(_)) => running(observed),
    }
}

/// Failed stays Failed until the spec changes; then everything is cleaned up before something new is begun.
fn stands_failed(observed: &Observed) -> bool {
    let Some(status) = &observed.object.status else { return false };
    let same = status.observed_generation == observed.object.metadata.generation;
    status.state == Some(State::Failed) && (same || removal::is_due(observed))
}

/// How a pair that was started has died.
fn death(observed: &Observed) -> Option<String> {
    let client = observed.started_client()?;
    let short = short(&client.container_id);
    if let Engine::Available { .. } = observed.engine {
        match observed.client() {
            None | Some(Container { removing: true, .. }) => {
                return Some(format!("the client proxy's container {short} is gone: somebody else removed it"));
            }
            Some(container) if !container.running => {
                let code = container.exit_code.map_or("no exit code".to_owned(), |code| format!("exit code {code}"));
                let words = container.last_words.as_ref().map(|words| format!(": {words}")).unwrap_or_default();
                return Some(format!("the client proxy's container {short} ended with {code}{words}"));
            }
            Some(container) if container.addresses.is_empty() && !container.changing => {
                return Some(format!(
                    "the client proxy's container {short} is on no network any more: somebody took it off"
                ));
            }
            Some(_) => {}
        }
    }
    if let Some((id, name)) = network(observed).ok().filter(|(id, _)| *id != client.network_id) {
        return Some(format!("the network {name} was replaced by another one ({})", self::short(&id)));
    }
    if let Some(alias) = aliases::lost(observed) {
        return Some(format!(
            "the client proxy's container {short} has lost the alias {alias}: somebody took it off its network and put it back"
        ));
    }
    let server = observed.started_server()?;
    match &server.ended {
        Some(ended) => Some(format!("the server proxy (process {}) {ended}", server.pid)),
        None => silence(observed),
    }
}

/// Which half has been silent for too long: it hangs, which is no better than being dead.
fn silence(observed: &Observed) -> Option<String> {
    observed.silent_for.filter(|silent| *silent >= SILENT_TOO_LONG)?;
    let seconds = SILENT_TOO_LONG.as_secs();
    match (&observed.pair, &observed.engine) {
        (Pair::Silent { why }, _) => {
            let pid = observed.started_server()?.pid;
            Some(format!("the server proxy (process {pid}) has not answered for {seconds} seconds: {why}"))
        }
        // An engine that is away may have its containers stand still.
        (Pair::Answered { gap: Some(why), .. }, Engine::Available { .. }) => {
            let id = short(&observed.started_client()?.container_id);
            Some(format!("the client proxy's container {id} has not answered for {seconds} seconds: {why}"))
        }
        _ => None,
    }
}

/// Why a pair could not be started, where that is the pair's own trouble: an engine that is away comes back.
fn failed_start(observed: &Observed) -> Option<String> {
    // A client proxy that was started has its image, whatever has become since of an attempt to make it for another object.
    if let (Image::Failed { message, .. }, None) = (&observed.image, observed.started_client()) {
        return Some(format!("the client proxy's image cannot be had: {message}"));
    }
    let failure = observed.failure.as_ref()?;
    let own = matches!(failure.cause, Cause::ClientProxyNotStarted | Cause::ServerProxyNotStarted);
    own.then(|| failure.message.clone())
}

fn failed(observed: &Observed, cause: &str) -> Decision {
    let steps = Steps::seen(observed).leaving(observed).tunnels("Failed", "the pair failed");
    let (actions, look_again_after) = clean_up(observed);
    Decision {
        findings: steps.into_findings(),
        tunnels: tunnels::all(observed, TunnelState::Failed, cause),
        actions,
        look_again_after,
        ..Decision::new(observed, State::Failed, Ready::no("Failed", with_trouble(observed, cause)))
            .says(cause)
            .because(format!("{cause}, and restartPolicy Never does not start the pair again"))
    }
}

fn still_failed(observed: &Observed) -> Decision {
    let stored = observed.object.status.as_ref().and_then(|status| status.message.clone());
    let cause = stored.unwrap_or_else(|| "the pair failed".to_owned());
    Decision {
        findings: Steps::seen(observed).leaving(observed).into_halves(),
        because: "it has failed; a change of its spec starts it again".to_owned(),
        ..failed(observed, &cause)
    }
}

/// What is still there of it goes: containers that ask for the name must not meet two who have it.
fn without_alias(observed: &Observed, taken: &Taken<'_>) -> Decision {
    let message = taken.message();
    let (actions, wait) = clean_up(observed);
    let steps = Steps::seen(observed).tunnels("AliasTaken", "somebody else has the alias");
    Decision {
        findings: steps.into_findings(),
        actions,
        tunnels: tunnels::all(observed, TunnelState::NotReady, &message),
        look_again_after: wait.or(Some(LOOK_AGAIN)),
        ..pending(observed, Ready::no("AliasTaken", with_trouble(observed, &message)))
            .because("a name leads to one place only, and somebody else has it")
    }
}

/// It did not die under our eyes, so it is neither failed nor restarted: it is started, as everything is at a start.
fn start_anew(observed: &Observed, death: &str) -> Decision {
    let message = format!("{death}, while no controllers ran: the pair is started anew");
    let steps = Steps::seen(observed)
        .client("Starting", &message)
        .server("Starting", &message)
        .tunnels("Starting", "the pair is started anew");
    let (actions, look_again_after) = clean_up(observed);
    Decision {
        findings: steps.into_findings(),
        tunnels: tunnels::all(observed, TunnelState::NotReady, "the pair is started anew"),
        actions,
        look_again_after,
        ..Decision::new(observed, State::Starting, Ready::not_yet("StartingAnew", with_trouble(observed, &message)))
            .because(message)
    }
}

fn restart(observed: &Observed, cause: &str) -> Decision {
    let restarts = Restarts::after_death(observed);
    let steps = Steps::seen(observed)
        .client(RESTARTING, cause)
        .server(RESTARTING, cause)
        .tunnels(RESTARTING, "the pair is started again");
    let (actions, look_again_after) = clean_up(observed);
    Decision {
        findings: steps.into_findings(),
        tunnels: tunnels::all(observed, TunnelState::NotReady, "the pair is started again"),
        actions,
        look_again_after,
        restarts,
        ..Decision::new(observed, State::Starting, Ready::no(RESTARTING, with_trouble(observed, cause)))
            .says(cause)
            .because(format!("{cause}, and restartPolicy Always starts the pair again"))
    }
}

/// Nothing of a pair is there: what does it still need?
fn without_pair(observed: &Observed) -> Decision {
    if let Some(wait) = Restarts::stored(observed).pause(observed.now) {
        return pausing(observed, wait);
    }
    let (network_id, network_name) = match network_that_stays(observed) {
        Ok(network) => network,
        Err(why) => return before_the_network(observed, why),
    };
    if let Engine::Unavailable { why } = &observed.engine {
        return pending(observed, Ready::no("NoContainerEngine", why));
    }
    let image = match &observed.image {
        Image::Ready { reference } => reference.clone(),
        image => return without_image(observed, image),
    };
    let steps = Steps::seen(observed).client("Starting", "the client proxy is being started");
    if let Some((failure, wait)) = waiting(observed) {
        return Decision { look_again_after: Some(wait), ..starting_failed(observed, steps, failure) };
    }
    let request = ClientRequest {
        name: container_name(&observed.object.metadata),
        image,
        network_id,
        network_name,
        aliases: observed.object.spec.aliases.iter().map(ToString::to_string).collect(),
    };
    let mut actions = removal::strays(observed);
    actions.push(Action::StartClient(request));
    let decision = match &observed.failure {
        Some(failure) => starting_failed(observed, steps, failure),
        None => starting(observed, steps, "the client proxy is being started"),
    };
    Decision { actions, restarts: Restarts::stored(observed).resumed(), ..decision }
}

/// The image does not depend on the network: it is made meanwhile.
fn before_the_network(observed: &Observed, why: String) -> Decision {
    let early = matches!((&observed.engine, &observed.image), (Engine::Available { .. }, Image::Unknown));
    Decision {
        actions: if early { vec![ensure_image(observed)] } else { Vec::new() },
        ..pending(observed, Ready::not_yet("WaitingForNetwork", why))
    }
}

fn pending(observed: &Observed, ready: Ready) -> Decision {
    Decision {
        findings: Steps::seen(observed).into_findings(),
        finalizer: Finalizer::Leave,
        look_again_after: Some(LOOK_AGAIN),
        ..Decision::new(observed, State::Pending, ready).because("the pair has nowhere to stand yet")
    }
}

fn without_image(observed: &Observed, image: &Image) -> Decision {
    let wait = match image {
        Image::Failed { retry_at, .. } => {
            Duration::try_from(retry_at.duration_since(observed.now)).ok().filter(|wait| !wait.is_zero())
        }
        Image::Looking | Image::Working => Some(LOOK_AGAIN),
        Image::Unknown | Image::Ready { .. } => None,
    };
    let (state, ready) = match image {
        Image::Failed { message, .. } => (State::BuildingImage, Ready::no("ImageFailed", message.as_str())),
        Image::Working => {
            (State::BuildingImage, Ready::not_yet("BuildingImage", "the client proxy's image is being made"))
        }
        _ => (State::Pending, Ready::not_yet("LookingForImage", "the client proxy's image is being looked for")),
    };
    Decision {
        findings: Steps::seen(observed).into_findings(),
        actions: if wait.is_none() { vec![ensure_image(observed)] } else { Vec::new() },
        look_again_after: wait,
        ..Decision::new(observed, state, ready).because("the client proxy's image is not known to be there")
    }
}

fn ensure_image(observed: &Observed) -> Action {
    Action::EnsureImage { base: observed.object.spec.base_image.as_ref().map(ToString::to_string) }
}

/// Between a death and the next start.
fn pausing(observed: &Observed, wait: Duration) -> Decision {
    let cause = restart::cause(observed);
    Decision {
        findings: Vec::new(),
        look_again_after: Some(wait),
        tunnels: tunnels::all(observed, TunnelState::NotReady, "the pair is started again"),
        ..Decision::new(observed, State::Starting, Ready::no(RESTARTING, cause.as_str()))
            .says(&cause)
            .because("the pair died, and the time to start it again has not come")
    }
}

fn starting(observed: &Observed, steps: Steps, what: &str) -> Decision {
    Decision {
        findings: steps.into_findings(),
        ..Decision::new(observed, State::Starting, Ready::not_yet("Starting", what)).because(what)
    }
}

fn starting_failed(observed: &Observed, steps: Steps, failure: &Failure) -> Decision {
    Decision {
        findings: steps.into_findings(),
        ..Decision::new(observed, State::Starting, Ready::no(failure.cause.as_str(), failure.message.as_str()))
            .because("the last attempt to start the pair failed")
    }
}

/// The client proxy runs, and its other half was not started yet.
fn without_server(observed: &Observed) -> Decision {
    let steps = Steps::seen(observed).server("Starting", "the server proxy is being started");
    if let Some((failure, wait)) = waiting(observed) {
        let decision = starting_failed(observed, steps, failure);
        return Decision { look_again_after: Some(wait), shows_pair: true, ..decision };
    }
    let request = observed.client().and_then(server_request);
    let decision = match (&observed.failure, &observed.engine) {
        (Some(failure), _) => starting_failed(observed, steps, failure),
        (None, Engine::Unavailable { why }) => {
            Decision { ready: Ready::no("NoContainerEngine", why), ..starting(observed, steps, "the engine is away") }
        }
        (None, Engine::Available { .. }) => starting(observed, steps, "the server proxy is being started"),
    };
    let mut actions = removal::strays(observed);
    let look_again_after = if request.is_none() { Some(LOOK_AGAIN) } else { None };
    actions.extend(request.map(Action::StartServer));
    Decision { actions, look_again_after, shows_pair: true, ..decision }
}

/// The container's own address comes first: no forwarder of the engine stands in between.
fn server_request(container: &Container) -> Option<ServerRequest> {
    let places = |inside: u16, published: u16| {
        let own = container.addresses.iter().map(|address| SocketAddr::new(*address, inside));
        own.chain([SocketAddr::from((Ipv4Addr::LOCALHOST, published))]).collect()
    };
    Some(ServerRequest {
        control: places(CONTROL_PORT, container.control_port?),
        data: places(DATA_PORT, container.data_port?),
    })
}

fn running(observed: &Observed) -> Decision {
    let tunnels = tunnels::of_running_pair(observed);
    let steps = Steps::seen(observed).with_tunnels(observed, &tunnels.statuses).with_servers(&tunnels.statuses);
    // What an earlier pass could not take away: a container that may answer to the same names, or endpoints that lead nowhere.
    let ready = match &observed.failure {
        Some(failure) => Ready::no(failure.cause.as_str(), failure.message.as_str()),
        None => steps.sum(&tunnels.statuses),
    };
    let (soon, message) = match &observed.pair {
        Pair::Answered { gap: None, .. } => (LOOK_WHILE_RUNNING, "both proxies run and reach each other"),
        _ if restart::lived(observed) < FIRST_MOMENTS => {
            (LOOK_SOON, "both proxies run, and do not reach each other yet")
        }
        _ => (LOOK_LATER, "both proxies run, and do not reach each other at the moment"),
    };
    let mut surplus = removal::strays(observed);
    surplus.extend(endpoints::surplus(observed, &tunnels.endpoints));
    let mut actions = unless_waiting(observed, surplus);
    actions.extend(tunnels.actions.iter().cloned());
    // Nobody tells of an engine's end of refusing, nor of its start while nobody is connected to it.
    let unseen = matches!(observed.engine, Engine::Unavailable { .. }).then_some(LOOK_AGAIN);
    let waits = [tunnels.look_again_after, waiting(observed).map(|(_, wait)| wait), unseen];
    let look_again_after = waits.into_iter().flatten().fold(soon, Duration::min);
    Decision {
        findings: steps.into_findings(),
        tunnels,
        shows_pair: true,
        restarts: Restarts::stored(observed).resumed(),
        actions,
        look_again_after: Some(look_again_after),
        ..Decision::new(observed, State::Running, ready).because(message)
    }
}

/// Deletion is a plan like any other: nothing of the object shall be left.
fn remove(observed: &Observed) -> Decision {
    let actions = removal::actions(observed);
    let state = observed.object.status.as_ref().and_then(|status| status.state).unwrap_or(State::Pending);
    let removing = "the pair is being removed";
    let decision = |ready: Ready| Decision {
        findings: Vec::new(),
        tunnels: tunnels::all(observed, TunnelState::NotReady, removing),
        finalizer: Finalizer::Leave,
        ..Decision::new(observed, state, ready)
    };
    if let (Engine::Unavailable { why }, true) = (&observed.engine, actions.is_empty()) {
        let message = format!("the client proxy's container may still exist and cannot be removed: {why}");
        return Decision { look_again_after: Some(LOOK_AGAIN), ..decision(Ready::no("NoContainerEngine", message)) }
            .because("only its engine can tell whether anything is left");
    }
    if actions.is_empty() {
        return Decision {
            finalizer: Finalizer::Remove(FINALIZER),
            ..decision(Ready::not_yet("Removed", "nothing of this object is left"))
        }
        .because("nothing of the pair is left: no tunnel, no container, no process, no file");
    }
    let ready = match &observed.failure {
        Some(failure) => Ready::no(failure.cause.as_str(), failure.message.as_str()),
        None => Ready::not_yet("Removing", removing),
    };
    Decision {
        actions: unless_waiting(observed, actions),
        look_again_after: waiting(observed).map(|(_, wait)| wait),
        shows_pair: true,
        ..decision(ready)
    }
    .because("the object is being deleted: tunnels, container, process and files go before it does")
}

/// As [`network`], where a pair is yet to be put on it.
fn network_that_stays(observed: &Observed) -> Result<(String, String), String> {
    let leaving = observed.network.as_ref().is_some_and(|network| network.metadata.deletion_timestamp.is_some());
    if leaving {
        return Err(format!("the ContainerNetwork {} is being deleted", observed.object.spec.container_network_name));
    }
    network(observed)
}

/// The id and the name of the network that the pair stands on or is to stand on, or why it cannot yet.
fn network(observed: &Observed) -> Result<(String, String), String> {
    let name = &observed.object.spec.container_network_name;
    let network = observed.network.as_ref().ok_or_else(|| format!("there is no ContainerNetwork {name} yet"))?;
    let status = network.status.as_ref();
    // One that is being removed is there until nobody uses it.
    let there = |state| matches!(state, NetworkState::Running | NetworkState::Removing);
    let ids = status
        .filter(|status| status.state.is_some_and(there))
        .and_then(|status| Some((status.id.clone()?, status.network_name.clone()?)));
    ids.ok_or_else(|| {
        let told = status.and_then(|status| status.message.as_ref()).map(|why| format!(": {why}")).unwrap_or_default();
        format!("the ContainerNetwork {name} is not Running yet{told}")
    })
}

impl Decision {
    fn new(observed: &Observed, state: State, ready: Ready) -> Self {
        Self {
            state,
            message: ready.complaint(),
            ready,
            findings: Vec::new(),
            tunnels: tunnels::all(observed, TunnelState::NotReady, "the pair does not run yet"),
            shows_pair: false,
            restarts: Restarts::stored(observed),
            finalizer: hold(observed),
            actions: Vec::new(),
            look_again_after: None,
            because: String::new(),
        }
    }

    fn because(self, reason: impl Into<String>) -> Self {
        Self { because: reason.into(), ..self }
    }

    fn says(self, message: &str) -> Self {
        Self { message: Some(message.to_owned()), ..self }
    }
}

/// A cause, and what stands in the way of cleaning up after it.
fn with_trouble(observed: &Observed, cause: &str) -> String {
    let trouble = observed
        .failure
        .as_ref()
        .filter(|failure| !matches!(failure.cause, Cause::ClientProxyNotStarted | Cause::ServerProxyNotStarted));
    let trouble = match (&observed.engine, trouble) {
        (_, Some(failure)) => Some(&failure.message),
        (Engine::Unavailable { why }, None) if removal::is_due(observed) => Some(why),
        _ => None,
    };
    match trouble {
        Some(trouble) => format!("{cause}; it cannot be cleaned up yet: {trouble}"),
        None => cause.to_owned(),
    }
}

/// What takes away what is left of the pair, and when to look whether more can be done.
fn clean_up(observed: &Observed) -> (Vec<Action>, Option<Duration>) {
    let actions = unless_waiting(observed, removal::actions(observed));
    let wait = waiting(observed).map(|(_, wait)| wait);
    let away = (actions.is_empty() && removal::is_due(observed)).then_some(LOOK_AGAIN);
    (actions, wait.or(away))
}

fn unless_waiting(observed: &Observed, actions: Vec<Action>) -> Vec<Action> {
    // What failed to start is cleaned up at once; only a clean-up that failed is paused.
    let paused = waiting(observed).is_some_and(|(failure, _)| failure.cause == Cause::NotRemoved);
    if paused { Vec::new() } else { actions }
}

fn waiting(observed: &Observed) -> Option<(&Failure, Duration)> {
    let failure = observed.failure.as_ref()?;
    failure.wait(observed.now).map(|wait| (failure, wait))
}

fn hold(observed: &Observed) -> Finalizer {
    if holds_finalizer(&observed.object.metadata) { Finalizer::Leave } else { Finalizer::Add(FINALIZER) }
}

fn holds_finalizer(metadata: &ObjectMeta) -> bool {
    metadata.finalizers.iter().flatten().any(|name| name == FINALIZER)
}

fn subject(observed: &Observed) -> Subject {
    Subject::new("underpass.dev/v1alpha1", "ContainerNetworkTunnelProxy", &observed.object.metadata)
}

fn short(id: &str) -> &str {
    &id[..id.floor_char_boundary(12)]
}
