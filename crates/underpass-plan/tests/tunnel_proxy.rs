//! What holds for every combination of engine, image, pair, policy and life, not just for the cases in `plans/`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use serde_json::{Value, json};
use underpass_plan::tunnel_proxy::{self, FINALIZER, Observed};
use underpass_plan::{Action, Finalizer, Plan};

const NOW: &str = "2026-01-02T03:04:05Z";
const LATER: &str = "2026-01-02T03:04:09Z";

/// Every observation that differs in something the planner looks at: it asks for the pair's answer only with one.
fn observations() -> Vec<Value> {
    let mut all = Vec::new();
    for folder in folders() {
        let pairs = if folder["server"].is_object() { pairs() } else { pairs()[..1].to_vec() };
        for (engine, object, (network, failure)) in surroundings() {
            for image in &images() {
                for pair in &pairs {
                    all.push(json!({
                        "object": object, "network": network, "engine": engine, "folder": folder, "image": image,
                        "pair": pair, "failure": failure, "now": NOW,
                    }));
                }
            }
        }
    }
    all
}

fn surroundings() -> Vec<(Value, Value, (Value, Value))> {
    let failure = |cause: &str| json!({ "cause": cause, "message": "no", "retryAt": LATER });
    let troubles = [
        (network("1"), Value::Null),
        (network("2"), Value::Null),
        (network("1"), failure("NotRemoved")),
        (network("1"), failure("ClientProxyNotStarted")),
    ];
    let mut all = Vec::new();
    for engine in engines() {
        for object in objects() {
            all.extend(troubles.clone().map(|trouble| (engine.clone(), object.clone(), trouble)));
        }
    }
    all
}

fn images() -> Vec<Value> {
    let failed = json!({ "failed": { "message": "no", "retryAt": LATER } });
    vec![json!("unknown"), failed, json!({ "ready": { "reference": "i:1" } })]
}

fn engines() -> Vec<Value> {
    let container = |running: bool| json!({ "id": "c", "name": "n", "running": running, "controlPort": 1, "dataPort": 2, "addresses": ["10.0.0.2"] });
    let seen = |containers: Value| json!({ "available": { "containers": containers } });
    vec![
        json!({ "unavailable": { "why": "away" } }),
        seen(json!([])),
        seen(json!([container(true)])),
        seen(json!([container(false)])),
    ]
}

fn folders() -> Vec<Value> {
    let client = json!({ "containerId": "c", "networkId": "1" });
    let server = |ended: Value| json!({ "pid": 7, "controlPort": 3, "startedAt": "2026-01-02T03:00:00Z", "stdOutFile": "o", "stdErrFile": "e", "ended": ended });
    vec![
        Value::Null,
        json!({}),
        json!({ "client": client }),
        json!({ "client": client, "server": server(Value::Null) }),
        json!({ "client": client, "server": server(json!("ended with exit code 1")) }),
        json!({ "client": client, "server": server(json!("ended with exit code 1")), "watched": false }),
    ]
}

fn pairs() -> Vec<Value> {
    let tunnel = |number: u32| json!({ "number": number, "protocol": "TCP", "serverHost": "127.0.0.1", "serverPort": 80, "addresses": ["127.0.0.1", "10.0.0.2"], "clientPort": 80, "server": { "unreachable": { "why": "refused" } } });
    let mut deaf = tunnel(1);
    deaf["trouble"] = json!("the port 80 is taken");
    vec![
        json!("notAsked"),
        json!({ "silent": { "why": "no answer" } }),
        json!({ "answered": { "gap": "no data connection", "tunnels": [tunnel(1)] } }),
        json!({ "answered": { "tunnels": [tunnel(1), tunnel(9)] } }),
        json!({ "answered": { "tunnels": [deaf] } }),
    ]
}

fn objects() -> Vec<Value> {
    let mut all = Vec::new();
    for policy in ["Never", "Always"] {
        for state in [None, Some("Running"), Some("Failed")] {
            for (finalizers, deleted) in
                [(json!([]), Value::Null), (json!([FINALIZER]), Value::Null), (json!([FINALIZER]), json!(NOW))]
            {
                all.push(json!({
                    "apiVersion": "underpass.dev/v1alpha1", "kind": "ContainerNetworkTunnelProxy",
                    "metadata": { "name": "p", "uid": "u-1", "generation": 1, "finalizers": finalizers, "deletionTimestamp": deleted },
                    "spec": {
                        "containerNetworkName": "n", "restartPolicy": policy,
                        "tunnels": [{ "name": "t", "serverAddress": "127.0.0.1", "serverPort": 80 }],
                    },
                    "status": state.map(|state| json!({ "state": state, "observedGeneration": 1 })),
                }));
            }
        }
    }
    all
}

fn network(id: &str) -> Value {
    json!({
        "apiVersion": "underpass.dev/v1alpha1", "kind": "ContainerNetwork", "metadata": { "name": "n" }, "spec": {},
        "status": { "state": "Running", "id": id, "networkName": "n" },
    })
}

/// `holds` is asked about every observation and its plan.
fn for_all(mut holds: impl FnMut(&Value, &Plan) -> bool) {
    for observation in observations() {
        let plan = plan(&observation);
        assert!(holds(&observation, &plan), "{observation:#}\n{plan}");
    }
}

fn plan(observation: &Value) -> Plan {
    let observed: Observed = serde_json::from_value(observation.clone()).unwrap();
    tunnel_proxy::plan(&observed)
}

fn deleted(observation: &Value) -> bool {
    observation["object"]["metadata"]["deletionTimestamp"].is_string()
}

fn ready(plan: &Plan) -> bool {
    plan.status.as_ref().is_some_and(|status| status["conditions"][0]["status"] == "True")
}

#[test]
fn nothing_is_made_before_the_finalizer_is_held() {
    for_all(|observation, plan| {
        let makes = plan.actions.iter().any(|action| matches!(action, Action::StartClient(_) | Action::StartServer(_)));
        let held = observation["object"]["metadata"]["finalizers"][0] == FINALIZER;
        !makes || held || plan.finalizer == Finalizer::Add(FINALIZER)
    });
}

#[test]
fn the_finalizer_is_never_let_go_while_something_of_ours_may_be_left() {
    for_all(|observation, plan| {
        let containers = &observation["engine"]["available"]["containers"];
        let gone = containers.as_array().is_some_and(Vec::is_empty) && observation["folder"].is_null();
        plan.finalizer != Finalizer::Remove(FINALIZER) || (gone && plan.actions.is_empty())
    });
}

#[test]
fn nothing_is_started_that_is_being_deleted_or_has_failed() {
    for_all(|observation, plan| {
        let starts = plan.actions.iter().any(|action| {
            matches!(
                action,
                Action::StartClient(_) | Action::StartServer(_) | Action::PrepareTunnel(_) | Action::EnsureImage { .. }
            )
        });
        !starts || !(deleted(observation) || observation["object"]["status"]["state"] == "Failed")
    });
}

#[test]
fn ready_is_true_only_when_both_halves_were_seen_and_reach_each_other() {
    for_all(|observation, plan| {
        let proven = observation["engine"]["available"]["containers"][0]["running"] == true
            && observation["folder"]["server"]["ended"].is_null()
            && observation["folder"]["server"].is_object()
            && observation["pair"]["answered"]["gap"].is_null()
            && observation["pair"]["answered"].is_object();
        !ready(plan) || (proven && !deleted(observation))
    });
}

#[test]
fn a_tunnel_that_clients_cannot_reach_is_prepared_again() {
    let mut seen = 0;
    for_all(|observation, plan| {
        let deaf = observation["pair"]["answered"]["tunnels"][0]["trouble"].is_string();
        let prepares = plan.actions.iter().any(|action| matches!(action, Action::PrepareTunnel(_)));
        seen += usize::from(deaf && prepares);
        !deaf || !ready(plan)
    });
    assert_ne!(seen, 0);
}

/// What is known of an image is known of its base, which other objects may have, too.
#[test]
fn what_becomes_of_an_image_is_no_trouble_of_a_pair_that_was_started() {
    for_all(|observation, plan| {
        let mut with_image = observation.clone();
        with_image["image"] = images().pop().unwrap();
        let with_image = self::plan(&with_image);
        !observation["folder"]["client"].is_object()
            || (with_image.actions == plan.actions && with_image.events == plan.events)
    });
}

#[test]
fn what_could_not_be_taken_away_is_told_and_not_tried_before_its_time() {
    let mut seen = 0;
    for_all(|observation, plan| {
        if observation["failure"]["cause"] != "NotRemoved" {
            return true;
        }
        seen += 1;
        let tries = plan.actions.iter().any(|action| {
            matches!(action, Action::RemoveContainer { .. } | Action::StopServer { .. } | Action::RemovePairFolder)
        });
        !tries && !ready(plan)
    });
    assert_ne!(seen, 0);
}

/// By its folder is known what the engine keeps of it.
#[test]
fn a_pair_s_folder_stays_while_its_engine_is_away() {
    for_all(|observation, plan| {
        observation["engine"]["unavailable"].is_null() || !plan.actions.contains(&Action::RemovePairFolder)
    });
}

#[test]
fn a_failed_object_has_failed_tunnels_and_keeps_nothing() {
    for_all(|observation, plan| {
        let Some(status) = plan.status.as_ref().filter(|status| status["state"] == "Failed") else { return true };
        let tunnels = status["tunnelStatuses"].as_array().unwrap();
        let tunnels_failed = tunnels.iter().all(|tunnel| tunnel["state"] == "Failed");
        deleted(observation) || (tunnels_failed && status["clientProxyContainerId"].is_null())
    });
}

#[test]
fn a_tunnel_never_shows_a_loopback_address() {
    for_all(|_, plan| {
        let statuses = plan.status.iter().flat_map(|status| status["tunnelStatuses"].as_array().unwrap());
        statuses.into_iter().all(|status| !status["clientProxyAddresses"].to_string().contains("127.0.0.1"))
    });
}

#[test]
fn only_a_ready_tunnel_shows_where_it_is() {
    for_all(|_, plan| {
        let statuses = plan.status.iter().flat_map(|status| status["tunnelStatuses"].as_array().unwrap());
        statuses.into_iter().all(|status| {
            let ready = status["state"] == "Ready";
            status["clientProxyAddresses"].is_array() == ready && status["clientProxyPort"].is_u64() == ready
        })
    });
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
        assert_eq!(second.status, None, "{observation:#}\n{second}");
        assert_eq!(second.events, [], "{observation:#}\n{second}");
    }
}
