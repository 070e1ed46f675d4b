//! `/config_dump`: the table in force, and all that is not in it and why.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use underpass_tables::{Listener, RelayTable, Rules};

use super::{phase, pretty};
use crate::admin::AdminState;
use crate::live::Live;

/// `configs` has listeners second and clusters fourth, where the documentation of the Envoy data plane tells people to look.
pub(super) fn text(state: &AdminState, live: &Live) -> String {
    let table = &live.table;
    let listeners: Vec<Value> = table.listeners.iter().map(|listener| dump(table, listener)).collect();
    let clusters: Vec<Value> = table.routes.iter().map(|route| json!({ "cluster": route })).collect();
    pretty(&json!({
        "generation": table.generation,
        "state": phase(state),
        "configs": [
            { "limits": table.limits, "drain_seconds": table.drain.as_secs(), "log_level": table.log_level },
            { "version_info": table.generation.to_string(), "dynamic_listeners": listeners },
            { "rejects": table.rejects },
            { "version_info": table.generation.to_string(), "dynamic_active_clusters": clusters },
        ],
        "rejects": table.rejects,
        "refused_source": *state.refused.lock(),
    }))
}

fn dump(table: &RelayTable, listener: &Listener) -> Value {
    let Listener { name, address, transport, proxy_header, expects, rules } = listener;
    json!({
        "name": name,
        "address": address,
        "transport": transport,
        "proxy_header": proxy_header,
        "expects": expects,
        "rules": rules_by_name(table, rules),
    })
}

/// Routes by their names: numbers mean nothing to a reader.
fn rules_by_name(table: &RelayTable, rules: &Rules) -> Value {
    let named = |route: underpass_tables::RouteId| &table.routes[route.0].name;
    let names: BTreeMap<String, &String> =
        rules.names().into_iter().map(|(pattern, route)| (pattern, named(route))).collect();
    let unnamed =
        rules.unnamed.map(|unnamed| json!({ "route": named(unnamed.route), "because": unnamed.rule.as_str() }));
    let tunnels: BTreeMap<u32, &String> =
        rules.tunnels.iter().map(|(number, route)| (*number, named(*route))).collect();
    json!({ "names": names, "unnamed": unnamed, "plain": rules.plain.map(named), "tunnels": tunnels })
}
