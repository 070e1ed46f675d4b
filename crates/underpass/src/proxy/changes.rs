//! What a new table changed, said in the log, in the words that people who know Envoy look for.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracing::{debug, info, warn};
use underpass_tables::{Reject, RelayTable, Route};

/// More changes than these are summed up; each is then told at level debug.
const TOLD_ONE_BY_ONE: usize = 50;

pub(crate) fn log_changes(before: &RelayTable, after: &RelayTable) {
    for listener in &after.listeners {
        if !before.listeners.iter().any(|old| (old.address, old.transport) == (listener.address, listener.transport)) {
            info!("listener {}: ready ({})", listener.address, listener.name);
        }
    }
    for listener in &before.listeners {
        if !after.listeners.iter().any(|new| (new.address, new.transport) == (listener.address, listener.transport)) {
            info!("listener {}: removed ({})", listener.address, listener.name);
        }
    }
    log_routes(before, after);
    for Reject { entry, reason } in after.rejects.iter().filter(|reject| !before.rejects.contains(reject)) {
        warn!("invalid configuration: {entry}: {reason}");
    }
}

fn log_routes(before: &RelayTable, after: &RelayTable) {
    let (old, new) = (by_name(before), by_name(after));
    let mut changes = Vec::new();
    for (name, route) in &new {
        match old.get(name) {
            None => changes.push(Change::Added(route)),
            Some(known) if known != route => changes.push(Change::Updated(route)),
            Some(_) => {}
        }
    }
    changes.extend(old.iter().filter(|(name, _)| !new.contains_key(*name)).map(|(_, route)| Change::Removed(route)));
    let one_by_one = changes.len() <= TOLD_ONE_BY_ONE;
    for change in &changes {
        change.log(one_by_one);
    }
    if !one_by_one {
        let count = |wanted: fn(&Change<'_>) -> bool| changes.iter().filter(|change| wanted(change)).count();
        info!(
            added = count(|change| matches!(change, Change::Added(_))),
            updated = count(|change| matches!(change, Change::Updated(_))),
            removed = count(|change| matches!(change, Change::Removed(_))),
            "upstream clusters changed"
        );
    }
}

enum Change<'a> {
    Added(&'a Route),
    Updated(&'a Route),
    Removed(&'a Route),
}

impl Change<'_> {
    fn log(&self, aloud: bool) {
        let (route, what) = match self {
            Self::Added(route) => (route, "added"),
            Self::Updated(route) => (route, "updated"),
            Self::Removed(route) => (route, "removed"),
        };
        let Route { name, target, endpoints, .. } = route;
        match &route.trouble {
            Some(trouble) if aloud && !matches!(self, Self::Removed(_)) => {
                warn!("upstream cluster {name}: {what}, failed to discover endpoints: {trouble}");
            }
            _ if aloud => info!(%target, endpoints = endpoints.len(), "upstream cluster {name}: {what}"),
            _ => debug!(%target, endpoints = endpoints.len(), "upstream cluster {name}: {what}"),
        }
    }
}

fn by_name(table: &RelayTable) -> BTreeMap<&str, &Route> {
    table.routes.iter().map(|route: &Arc<Route>| (route.name.as_str(), &**route)).collect()
}
