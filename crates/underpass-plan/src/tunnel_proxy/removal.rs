//! Taking a pair away: endpoints, tunnels, container, process, files, in this order.

use super::endpoints;
use super::observed::{Engine, Observed, Pair};
use crate::plan::Action;

/// All that is left of the pair and can be taken away now, as the steps that do so.
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
    // What the engine keeps of the pair goes with its folder, by which it is known until then.
    let there = matches!(observed.engine, Engine::Available { .. });
    actions.extend(observed.folder.as_ref().filter(|_| there).map(|_| Action::RemovePairFolder));
    actions
}

/// Whether anything is left that can be seen, also if it cannot be taken away now.
pub(super) fn is_due(observed: &Observed) -> bool {
    observed.folder.is_some() || !actions(observed).is_empty()
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
