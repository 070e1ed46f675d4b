//! Taking a pair away: endpoints, tunnels, container, process, files, in this order.

use super::endpoints;
use super::observed::{Engine, Observed, Pair};
use crate::plan::Action;

/// All that is left of the pair, as the steps that take it away. Empty when nothing is left that can be seen.
pub(super) fn actions(observed: &Observed) -> Vec<Action> {
    let mut actions = endpoints::removal(observed);
    let alive = observed.started_server().filter(|server| server.ended.is_none());
    // A pair whose halves do not reach each other closes its tunnels with its end; asking would only take time.
    let dead =
        matches!(observed.engine, Engine::Available { .. }) && !observed.client().is_some_and(|client| client.running);
    if let (Pair::Answered { gap: None, tunnels }, Some(_), false) = (&observed.pair, alive, dead) {
        actions.extend(tunnels.iter().map(|tunnel| Action::DeleteTunnel { number: tunnel.number }));
    }
    actions.extend(containers(observed));
    actions.extend(alive.map(|server| Action::StopServer { pid: server.pid }));
    actions.extend(observed.folder.as_ref().map(|_| Action::RemovePairFolder));
    actions
}

/// Containers that carry this object's uid but are not its client proxy: an earlier process ended before it could write them down.
pub(super) fn strays(observed: &Observed) -> Vec<Action> {
    let known = observed.started_client().map(|client| client.container_id.as_str());
    let strays = observed.containers().iter().filter(|container| Some(container.id.as_str()) != known);
    strays.map(|container| Action::RemoveContainer { id: container.id.clone(), name: container.name.clone() }).collect()
}

fn containers(observed: &Observed) -> impl Iterator<Item = Action> {
    observed
        .containers()
        .iter()
        .map(|container| Action::RemoveContainer { id: container.id.clone(), name: container.name.clone() })
}
