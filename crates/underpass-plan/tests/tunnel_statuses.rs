//! The list of a pair's tunnels, in whichever order they are added, changed and removed: sorted, and each keeps its number and its port.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;

use serde_json::{Value, json};
use underpass_plan::tunnel_proxy::{self, FINALIZER, Observed};
use underpass_plan::{Action, ClientPort, Plan, TunnelRequest};

const NOW: &str = "2026-01-02T03:04:05Z";
/// Of which every set is a number of three bits.
const NAMES: [&str; 3] = ["a", "b", "c"];
const SETS: usize = 1 << NAMES.len();

/// An object and its pair, which does as it is told.
#[derive(Default)]
struct Pair {
    status: Value,
    listed: BTreeMap<u64, Value>,
    next_port: u16,
}

/// The first and the last are removed, none that is there, one that is not, all, and the same over and over.
#[test]
fn every_way_from_one_set_of_tunnels_over_another_to_a_third_leaves_a_sorted_list_of_stable_numbers() {
    for ways in 0..SETS * SETS * SETS {
        let mut pair = Pair { next_port: 1000, ..Pair::default() };
        for (step, set) in [ways % SETS, ways / SETS % SETS, ways / SETS / SETS].into_iter().enumerate() {
            pair.becomes(step, set);
        }
    }
}

impl Pair {
    /// The tunnel `a` leads to another server at every step.
    fn becomes(&mut self, step: usize, set: usize) {
        let names: Vec<&str> = (0..NAMES.len()).filter(|bit| set & (1 << bit) != 0).map(|bit| NAMES[bit]).collect();
        let server = |name: &str| if name == "a" { 8000 + step } else { 80 };
        let tunnels: Vec<Value> = names.iter().rev().map(|name| tunnel(name, server(name))).collect();
        let before = self.statuses();
        // What there was goes, what there shall be comes, and is seen.
        for _ in 0..2 {
            let plan = self.plan(step, &tunnels);
            self.do_as_told(plan);
        }
        let settled = self.plan(step, &tunnels);
        assert_eq!((settled.actions.as_slice(), settled.status), (&[][..], None), "{names:?} after {before:#?}");

        let after = self.statuses();
        assert_eq!(after.iter().map(|status| &status["name"]).collect::<Vec<_>>(), names);
        assert_eq!(self.listed.len(), names.len(), "the pair keeps nothing that nobody wants");
        for status in &after {
            let listed = &self.listed[&status["tunnelId"].as_u64().unwrap()];
            assert_eq!(listed["serverPort"], server(status["name"].as_str().unwrap()));
            assert_eq!(status["state"], "Ready");
            match before.iter().find(|old| old["name"] == status["name"]) {
                Some(old) => assert_eq!(identity(status), identity(old), "{after:#?} after {before:#?}"),
                None => assert!(before.iter().all(|old| old["tunnelId"] != status["tunnelId"]), "it is another's"),
            }
        }
    }

    fn statuses(&self) -> Vec<Value> {
        self.status["tunnelStatuses"].as_array().cloned().unwrap_or_default()
    }

    fn plan(&self, step: usize, tunnels: &[Value]) -> Plan {
        let listed: Vec<&Value> = self.listed.values().collect();
        let observed = json!({
            "object": {
                "apiVersion": "underpass.dev/v1alpha1", "kind": "ContainerNetworkTunnelProxy",
                "metadata": { "name": "p", "uid": "u-1", "generation": step + 1, "finalizers": [FINALIZER] },
                "spec": { "containerNetworkName": "n", "tunnels": tunnels },
                "status": self.status,
            },
            "network": {
                "apiVersion": "underpass.dev/v1alpha1", "kind": "ContainerNetwork", "metadata": { "name": "n" }, "spec": {},
                "status": { "state": "Running", "id": "1", "networkName": "n" },
            },
            "engine": { "available": { "containers": [
                { "id": "c", "name": "n", "running": true, "controlPort": 1, "dataPort": 2, "addresses": ["10.0.0.2"] },
            ] } },
            "folder": {
                "client": { "containerId": "c", "networkId": "1" },
                "server": { "pid": 7, "controlPort": 3, "startedAt": NOW, "stdOutFile": "o", "stdErrFile": "e", "ended": null },
            },
            "image": { "ready": { "reference": "i:1" } },
            "pair": { "answered": { "tunnels": listed } },
            "failure": null, "now": NOW,
        });
        tunnel_proxy::plan(&serde_json::from_value::<Observed>(observed).unwrap())
    }

    fn do_as_told(&mut self, plan: Plan) {
        self.status = plan.status.unwrap_or(self.status.take());
        for action in plan.actions {
            match action {
                Action::DeleteTunnel { number } => {
                    assert!(self.listed.remove(&number.into()).is_some(), "there is no tunnel {number}");
                }
                Action::PrepareTunnel(request) => {
                    let port = self.free_port(&request);
                    self.listed.insert(
                        request.number.into(),
                        json!({
                            "number": request.number, "protocol": "TCP", "serverHost": request.server_host,
                            "serverPort": request.server_port, "addresses": ["10.0.0.2"], "clientPort": port,
                            "server": "reachable",
                        }),
                    );
                }
                other => panic!("the pair runs already: {other}"),
            }
        }
    }
}

impl Pair {
    /// The one that is asked for, unless another tunnel has it: most lead to the same server.
    fn free_port(&mut self, request: &TunnelRequest) -> u16 {
        let mut others = self.listed.values().filter(|other| other["number"] != request.number);
        match request.client_port {
            ClientPort::Preferred(port) if others.all(|other| other["clientPort"] != port) => port,
            _ => {
                self.next_port += 1;
                self.next_port
            }
        }
    }
}

fn tunnel(name: &str, server: usize) -> Value {
    json!({ "name": name, "serverAddress": "127.0.0.1", "serverPort": server })
}

/// What clients and the pair know it by.
fn identity(status: &Value) -> [&Value; 2] {
    [&status["tunnelId"], &status["clientProxyPort"]]
}
