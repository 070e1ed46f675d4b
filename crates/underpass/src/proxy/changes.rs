//! What a new table changed, said in the log, in the words that people who know Envoy look for.

use std::cmp::Ordering;
use std::sync::Arc;

use tracing::{debug, info, warn};
use underpass_tables::{RelayTable, Route};

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
    for reject in after.rejects.iter().filter(|reject| !before.rejects.contains(reject)) {
        warn!("invalid configuration: {reject}");
    }
}

fn log_routes(before: &RelayTable, after: &RelayTable) {
    let changes = changes(&before.routes, &after.routes);
    let one_by_one = changes.len() <= TOLD_ONE_BY_ONE;
    for change in &changes {
        change.log(one_by_one);
    }
    if !one_by_one {
        let count = |wanted: fn(&Change<'_>) -> bool| changes.iter().filter(|change| wanted(change)).count();
        info!(
            added = count(|change| matches!(change, Change::Added(_))),
            updated = count(|change| matches!(change, Change::Updated { .. })),
            removed = count(|change| matches!(change, Change::Removed(_))),
            "upstream clusters changed"
        );
    }
}

enum Change<'a> {
    Added(&'a Route),
    Updated { before: &'a Route, after: &'a Route },
    Removed(&'a Route),
}

impl Change<'_> {
    fn log(&self, aloud: bool) {
        let (route, what) = match self {
            Self::Added(route) => (route, "added"),
            Self::Updated { after, .. } => (after, "updated"),
            Self::Removed(route) => (route, "removed"),
        };
        let Route { name, target, .. } = route;
        let endpoints = route.open().count();
        match &route.trouble {
            Some(trouble) if aloud && !matches!(self, Self::Removed(_)) => {
                warn!("upstream cluster {name}: {what}, failed to discover endpoints: {trouble}");
            }
            _ if aloud => info!(%target, endpoints, "upstream cluster {name}: {what}"),
            _ => debug!(%target, endpoints, "upstream cluster {name}: {what}"),
        }
        if aloud && self.has_new_endpoints() {
            info!(endpoints, "Discovered endpoints for service {target}");
        }
    }

    fn has_new_endpoints(&self) -> bool {
        match self {
            Self::Added(route) => !route.endpoints.is_empty(),
            Self::Updated { before, after } => !after.endpoints.is_empty() && before.endpoints != after.endpoints,
            Self::Removed(_) => false,
        }
    }
}

/// Both are sorted by name: one walk along them.
fn changes<'a>(mut before: &'a [Arc<Route>], mut after: &'a [Arc<Route>]) -> Vec<Change<'a>> {
    let mut changes = Vec::new();
    loop {
        let order = match (before.first(), after.first()) {
            (None, None) => return changes,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => old.name.cmp(&new.name),
        };
        match order {
            Ordering::Less => changes.push(Change::Removed(&before[0])),
            Ordering::Greater => changes.push(Change::Added(&after[0])),
            Ordering::Equal if before[0] != after[0] => {
                changes.push(Change::Updated { before: &before[0], after: &after[0] });
            }
            Ordering::Equal => {}
        }
        before = &before[usize::from(order.is_le())..];
        after = &after[usize::from(order.is_ge())..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(name: &str, target: &str) -> Arc<Route> {
        Arc::new(Route::new(name, target, Vec::new()))
    }

    #[test]
    fn what_came_went_or_changed_is_found() {
        let before = [route("b", "1"), route("c", "1"), route("d", "1"), route("f", "1")];
        let after = [route("a", "1"), route("c", "2"), route("d", "1"), route("g", "1")];
        let found: Vec<String> = changes(&before, &after)
            .iter()
            .map(|change| match change {
                Change::Added(route) => format!("+{}", route.name),
                Change::Updated { after, .. } => format!("~{}", after.name),
                Change::Removed(route) => format!("-{}", route.name),
            })
            .collect();
        assert_eq!(found, ["+a", "-b", "~c", "-f", "+g"]);
        assert!(changes(&before, &before).is_empty());
    }
}
