//! The way from one table to the next, where the straight one leads connections astray.
//!
//! An Envoy is told of endpoints before it is told of listeners, so that what is new has somewhere to go. When one edit gives a backend
//! another target and takes a name or a port from it, whoever comes by that name would be led to the new target, which may be another tenant's, until the
//! listener is known. So the backend first has its target of before, and only those ways to it that stay; when every Envoy runs that, it has
//! everything. Who comes by what is new is refused for that time. Another cluster for each target was rejected: connections of a backend that
//! only moves would end, and people know clusters by the backend's name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use underpass_tables::{Listener, RelayTable, Route, RouteId, Rules, Transport};

/// A way to a route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Door {
    address: SocketAddr,
    transport: Transport,
    opening: Opening,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Opening {
    Named(String),
    Unnamed,
    Plain,
}

/// Of routes, by name.
type Doors<'a> = BTreeMap<&'a str, BTreeSet<Door>>;

/// What is to be in force between what was `said` last and `after`; `None` where nothing has to be. Listeners may still be those that were in
/// force before.
pub(crate) fn detour(in_force: &RelayTable, said: &RelayTable, after: &RelayTable) -> Option<RelayTable> {
    let moved = moved(said, after);
    if moved.is_empty() {
        return None;
    }
    let names: BTreeSet<&str> = moved.values().map(|route| route.name.as_str()).collect();
    let (old, new) = (doors([in_force, said], &names), doors([after], &names));
    let loses_one = |route: &Route| !old[route.name.as_str()].is_subset(&new[route.name.as_str()]);
    let astray: BTreeMap<usize, &Arc<Route>> = moved.into_iter().filter(|(_, route)| loses_one(route)).collect();
    if astray.is_empty() {
        return None;
    }
    let stays =
        |door: &Door, route: RouteId| astray.get(&route.0).is_none_or(|route| old[route.name.as_str()].contains(door));
    let mut table = after.clone();
    table.listeners = after.listeners.iter().filter_map(|listener| with_doors(listener, stays)).collect();
    for (number, route) in &astray {
        table.routes[*number] = (*route).clone();
    }
    Some(table)
}

/// Routes that are led to another target, as they were, by their number in `after`. Both are sorted by name.
fn moved<'a>(before: &'a RelayTable, after: &RelayTable) -> BTreeMap<usize, &'a Arc<Route>> {
    let mut moved = BTreeMap::new();
    let mut old = before.routes.iter().peekable();
    for (number, new) in after.routes.iter().enumerate() {
        while old.next_if(|old| old.name < new.name).is_some() {}
        let same = old.next_if(|old| old.name == new.name);
        moved.extend(same.filter(|old| old.target != new.target).map(|old| (number, old)));
    }
    moved
}

fn doors<'a, const N: usize>(tables: [&RelayTable; N], routes: &BTreeSet<&'a str>) -> Doors<'a> {
    let mut doors: Doors<'a> = routes.iter().map(|name| (*name, BTreeSet::new())).collect();
    for table in tables {
        for (door, route) in table.listeners.iter().flat_map(doors_of) {
            if let Some(all) = doors.get_mut(table.routes[route.0].name.as_str()) {
                all.insert(door);
            }
        }
    }
    doors
}

fn doors_of(listener: &Listener) -> impl Iterator<Item = (Door, RouteId)> {
    let rules = &listener.rules;
    let named = rules.names().into_iter().map(|(pattern, route)| (Opening::Named(pattern), route));
    let unnamed = rules.unnamed.map(|unnamed| (Opening::Unnamed, unnamed.route));
    let plain = rules.plain.map(|route| (Opening::Plain, route));
    let (address, transport) = (listener.address, listener.transport);
    named.chain(unnamed).chain(plain).map(move |(opening, route)| (Door { address, transport, opening }, route))
}

/// The listener with these of its doors; `None` if it has none left.
fn with_doors(listener: &Listener, stays: impl Fn(&Door, RouteId) -> bool) -> Option<Listener> {
    let mut rules = Rules::default();
    let mut is_empty = true;
    for (door, route) in doors_of(listener).filter(|(door, route)| stays(door, *route)) {
        is_empty = false;
        match door.opening {
            // They were all different in the listener, too.
            Opening::Named(pattern) => drop(rules.add_name(&pattern, route)),
            Opening::Unnamed => rules.unnamed = listener.rules.unnamed,
            Opening::Plain => rules.plain = Some(route),
        }
    }
    (!is_empty).then(|| Listener { rules, ..listener.clone() })
}

#[cfg(test)]
mod tests {
    use underpass_tables::Expects;

    use super::*;

    /// Where everything that was said is in force.
    fn way(before: &RelayTable, after: &RelayTable) -> Option<RelayTable> {
        detour(before, before, after)
    }

    /// Backends by name: their target, and the name and the port that lead to them; without a name, everything on that port.
    fn table(backends: &[(&str, &str, &str, u16)]) -> RelayTable {
        let mut table = RelayTable::default();
        for (number, (name, target, hostname, port)) in backends.iter().enumerate() {
            table.routes.push(Arc::new(Route::new(*name, *target, Vec::new())));
            let address = SocketAddr::from(([0, 0, 0, 0], *port));
            let listener = Listener {
                name: format!("listener-{port}"),
                address,
                transport: Transport::Stream,
                proxy_header: false,
                expects: Expects::Hello,
                rules: Rules::default(),
            };
            let at = table.listeners.iter().position(|listener| listener.address == address);
            let at = at.unwrap_or_else(|| {
                table.listeners.push(listener);
                table.listeners.len() - 1
            });
            let rules = &mut table.listeners[at].rules;
            match *hostname {
                "" => rules.plain = Some(RouteId(number)),
                hostname => rules.add_name(hostname, RouteId(number)).unwrap(),
            }
        }
        table
    }

    /// `NAME:PORT TARGET`, of all that leads somewhere.
    fn ways(table: &RelayTable) -> Vec<String> {
        let of = |listener: &Listener| {
            let way = |(door, route): (Door, RouteId)| {
                let name = match door.opening {
                    Opening::Named(name) => name,
                    Opening::Unnamed => "unnamed".to_owned(),
                    Opening::Plain => "plain".to_owned(),
                };
                format!("{name}:{} {}", door.address.port(), table.routes[route.0].target)
            };
            doors_of(listener).map(way).collect::<Vec<_>>()
        };
        table.listeners.iter().flat_map(of).collect()
    }

    #[test]
    fn who_moves_and_loses_a_name_is_led_to_by_nothing_that_changes() {
        let before =
            table(&[("a", "one", "a.example", 443), ("b", "two", "b.example", 443), ("c", "three", "c.example", 443)]);
        let after =
            table(&[("a", "two", "b.example", 443), ("b", "one", "a.example", 443), ("c", "three", "c.example", 443)]);
        assert_eq!(ways(&way(&before, &after).unwrap()), ["c.example:443 three"], "two have swapped their names");

        let after =
            table(&[("a", "four", "a.example", 444), ("b", "two", "b.example", 443), ("c", "three", "c.example", 443)]);
        let between = way(&before, &after).unwrap();
        assert_eq!(
            ways(&between),
            ["b.example:443 two", "c.example:443 three"],
            "a port without anybody is not listened on"
        );
        assert!(way(&between, &after).is_none(), "from there it is straight");
        let again = detour(&before, &between, &after).unwrap();
        assert_eq!(ways(&again), ways(&between), "as long as it is not in force");
    }

    #[test]
    fn ways_that_stay_lead_to_the_old_target() {
        let names = |target: &str, others: &[&str]| {
            let mut table = table(&[("a", target, "a.example", 443)]);
            for name in others {
                table.listeners[0].rules.add_name(name, RouteId(0)).unwrap();
            }
            table
        };
        let between = way(&names("one", &["old.example"]), &names("two", &["new.example"])).unwrap();
        assert_eq!(ways(&between), ["a.example:443 one"]);
    }

    #[test]
    fn what_only_moves_or_only_changes_its_names_goes_straight() {
        let before = table(&[("a", "one", "a.example", 443), ("plain", "two", "", 5432)]);
        for after in [
            table(&[("a", "three", "a.example", 443), ("plain", "two", "", 5432)]),
            table(&[("a", "one", "other.example", 443), ("plain", "two", "", 5433)]),
            table(&[("a", "one", "a.example", 443)]),
            table(&[("new", "three", "a.example", 443), ("plain", "two", "", 5432)]),
        ] {
            assert!(way(&before, &after).is_none(), "{:?}", ways(&after));
        }
        let after = table(&[("a", "one", "a.example", 443), ("plain", "three", "", 5433)]);
        assert_eq!(ways(&way(&before, &after).unwrap()), ["a.example:443 one"]);
    }
}
