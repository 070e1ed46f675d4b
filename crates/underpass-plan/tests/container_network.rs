//! What holds for every combination of mode, engine, life and memory, not just for the cases in `plans/`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use serde_json::{Value, json};
use underpass_plan::container_network::{self, FINALIZER, Observed};
use underpass_plan::{Action, Finalizer, Plan};

const UID: &str = "5f0c6a1e-9d1b-4c53-8a43-0f6d1f1b2c3d";

/// Every observation that differs in something the planner looks at.
fn observations() -> Vec<Value> {
    let mut all = Vec::new();
    for mode in ["session", "persistent", "existing", "cleanup"] {
        for network in [json!(null), network(Some(UID)), network(Some("other")), network(None)] {
            for engine in [json!({ "available": { "network": network } }), json!({ "unavailable": { "why": "away" } })]
            {
                for finalizers in [json!([]), json!([FINALIZER])] {
                    for deleted in [Value::Null, json!("2026-01-02T03:04:00Z")] {
                        for retry in [None, Some("2026-01-02T03:04:04Z"), Some("2026-01-02T03:04:09Z")] {
                            all.push(observation(mode, &engine, &finalizers, &deleted, retry));
                        }
                    }
                }
            }
        }
    }
    all
}

fn network(owner: Option<&str>) -> Value {
    json!({ "id": "1", "name": "n", "driver": "bridge", "subnets": ["10.0.0.0/24"], "gateways": ["10.0.0.1"], "owner": owner })
}

fn observation(mode: &str, engine: &Value, finalizers: &Value, deleted: &Value, retry: Option<&str>) -> Value {
    json!({
        "object": {
            "apiVersion": "underpass.dev/v1alpha1",
            "kind": "ContainerNetwork",
            "metadata": {
                "name": "dev", "uid": UID, "generation": 1, "finalizers": finalizers, "deletionTimestamp": deleted,
            },
            "spec": { "mode": mode, "networkName": "n" },
        },
        "engine": engine,
        "failure": retry.map(|at| json!({ "cause": "EngineRefused", "message": "no", "retryAt": at })),
        "now": "2026-01-02T03:04:05Z",
    })
}

fn plan(observation: &Value) -> Plan {
    let observed: Observed = serde_json::from_value(observation.clone()).unwrap();
    container_network::plan(&observed)
}

fn holds_finalizer(observation: &Value) -> bool {
    observation["object"]["metadata"]["finalizers"][0] == FINALIZER
}

fn ready(plan: &Plan) -> Option<&Value> {
    plan.status.as_ref().map(|status| &status["conditions"][0]["status"])
}

fn mode(observation: &Value) -> &str {
    observation["object"]["spec"]["mode"].as_str().unwrap()
}

#[test]
fn nothing_that_must_be_removed_is_made_before_the_finalizer_is_held() {
    for observation in observations() {
        let plan = plan(&observation);
        let makes = plan.actions.iter().any(|action| matches!(action, Action::CreateNetwork(_)));
        let held = holds_finalizer(&observation) || plan.finalizer == Finalizer::Add(FINALIZER);
        assert!(!makes || held || mode(&observation) == "persistent", "{observation}\n{plan}");
    }
}

#[test]
fn the_finalizer_is_never_let_go_while_something_of_ours_may_be_left() {
    for observation in observations() {
        let plan = plan(&observation);
        if plan.finalizer == Finalizer::Remove(FINALIZER) {
            assert!(plan.actions.is_empty(), "{observation}\n{plan}");
            let network = &observation["engine"]["available"]["network"];
            assert!(observation["engine"]["available"].is_object(), "{observation}\n{plan}");
            let left = match mode(&observation) {
                "session" => network["owner"] == UID,
                "cleanup" => !network.is_null(),
                _ => false,
            };
            assert!(!left, "{observation}\n{plan}");
        }
    }
}

#[test]
fn ready_is_true_only_for_a_network_that_was_seen() {
    for observation in observations() {
        let plan = plan(&observation);
        if ready(&plan) == Some(&json!("True")) {
            assert!(observation["engine"]["available"]["network"].is_object(), "{observation}\n{plan}");
            assert!(observation["object"]["metadata"]["deletionTimestamp"].is_null(), "{observation}\n{plan}");
        }
    }
}

#[test]
fn a_network_of_somebody_else_is_removed_only_when_cleanup_asks_for_it() {
    for observation in observations() {
        let plan = plan(&observation);
        let removes = plan.actions.iter().any(|action| matches!(action, Action::RemoveNetwork { .. }));
        let own = observation["engine"]["available"]["network"]["owner"] == UID;
        let allowed = (mode(&observation) == "session" && own) || mode(&observation) == "cleanup";
        assert!(!removes || allowed, "{observation}\n{plan}");
    }
}

#[test]
fn the_back_off_is_kept() {
    for observation in observations() {
        let waiting = observation["failure"]["retryAt"] == "2026-01-02T03:04:09Z";
        assert!(!waiting || plan(&observation).actions.is_empty(), "{observation}");
    }
}

#[test]
fn the_same_observation_with_the_plan_stored_writes_no_more() {
    for mut observation in observations() {
        let first = plan(&observation);
        if let Finalizer::Add(name) = first.finalizer {
            observation["object"]["metadata"]["finalizers"] = json!([name]);
        }
        if let Some(status) = first.status {
            observation["object"]["status"] = status;
        }
        observation["now"] = json!("2026-01-02T03:04:06Z");
        let second = plan(&observation);
        assert_eq!(second.status, None, "{observation}\n{second}");
        assert_eq!(second.events, [], "{observation}\n{second}");
        assert!(!matches!(second.finalizer, Finalizer::Add(_)), "{observation}\n{second}");
    }
}
