//! A pair whose controllers were killed, as their watchdog leaves it: nothing of it stands, and nobody looks after it.

use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::jiff::Timestamp;
use underpass_resources::tunnel_proxy::{TunnelProxyState as State, TunnelState};
use underpass_resources::{ContainerNetwork, ContainerNetworkTunnelProxy};

use super::observed::{Engine, Image, Observed, Pair};
use super::status::Steps;
use super::{Decision, endpoints, subject, tunnels};
use crate::plan::{Finalizer, Plan};
use crate::ready::{CONTROLLERS_KILLED, Ready};

/// Pending, and not Failed: that its controllers were killed is no failure of the pair, and the next ones start it.
pub fn abandon(
    object: ContainerNetworkTunnelProxy,
    network: Option<ContainerNetwork>,
    own_slices: Vec<EndpointSlice>,
    why: &str,
    now: Timestamp,
) -> Plan {
    let failed = object.status.as_ref().is_some_and(|status| status.state == Some(State::Failed));
    let deleted = object.metadata.deletion_timestamp.is_some();
    let observed = with_nothing(object, network, own_slices, now);
    if failed || deleted {
        return Plan::nothing(subject(&observed), "it does not say that it works");
    }
    let steps = Steps::seen(&observed).client(CONTROLLERS_KILLED, why).server(CONTROLLERS_KILLED, why);
    let decision = Decision {
        findings: steps.tunnels(CONTROLLERS_KILLED, why).into_findings(),
        tunnels: tunnels::all(&observed, TunnelState::NotReady, why),
        actions: endpoints::removal(&observed),
        finalizer: Finalizer::Leave,
        ..Decision::new(&observed, State::Pending, Ready::no(CONTROLLERS_KILLED, why)).because(why)
    };
    decision.into_plan(&observed)
}

fn with_nothing(
    object: ContainerNetworkTunnelProxy,
    network: Option<ContainerNetwork>,
    own_slices: Vec<EndpointSlice>,
    now: Timestamp,
) -> Observed {
    Observed {
        silent_for: None,
        object,
        network,
        neighbours: Vec::new(),
        bystanders: Vec::new(),
        engine: Engine::Available { containers: Vec::new() },
        image: Image::Unknown,
        folder: None,
        pair: Pair::NotAsked,
        refusals: std::collections::BTreeMap::new(),
        preparing: Vec::new(),
        services: Vec::new(),
        slices: Vec::new(),
        own_slices,
        unwritten: Vec::new(),
        failure: None,
        now,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::plan::Action;

    fn plan(state: &str) -> Plan {
        let object = json!({
            "apiVersion": "underpass.dev/v1alpha1", "kind": "ContainerNetworkTunnelProxy",
            "metadata": {"name": "p", "uid": "u", "generation": 1},
            "spec": {"containerNetworkName": "n", "tunnels": [
                {"name": "t", "serverAddress": "127.0.0.1", "serverPort": 80},
            ]},
            "status": {"state": state, "observedGeneration": 1, "serverProxyProcessId": 7, "conditions": [
                {"type": "Ready", "status": "True", "reason": "TunnelsReady", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ], "tunnelStatuses": [
                {"name": "t", "state": "Ready", "clientProxyPort": 80, "timestamp": "2026-01-01T00:00:00.000000Z"},
            ]},
        });
        let slice = json!({"metadata": {"namespace": "default", "name": "s"}, "addressType": "IPv4", "endpoints": []});
        let (object, slice) = (serde_json::from_value(object).unwrap(), serde_json::from_value(slice).unwrap());
        abandon(object, None, vec![slice], "they were killed", Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn it_says_that_nothing_stands_and_shows_no_endpoint() {
        let plan = plan("Running");
        let status = plan.status.unwrap();
        assert_eq!(status["state"], "Pending");
        assert_eq!(status["serverProxyProcessId"], Value::Null);
        let conditions = status["conditions"].as_array().unwrap();
        assert!(conditions.iter().all(|condition| condition["status"] != "True"), "{conditions:?}");
        let tunnel = &status["tunnelStatuses"][0];
        assert_eq!((&tunnel["state"], &tunnel["clientProxyPort"]), (&json!("NotReady"), &Value::Null));
        assert_eq!(tunnel["lastClientProxyPort"], 80, "the next pair asks for it again");
        assert_eq!(plan.actions, [Action::RemoveEndpoints { namespace: "default".into(), name: "s".into() }]);
        assert_eq!(plan.events[0].reason, CONTROLLERS_KILLED);
    }

    #[test]
    fn what_has_failed_keeps_its_cause() {
        assert!(plan("Failed").changes_nothing());
    }
}
