//! The cells of a Pod. Its status in one word is a summary of many: the phase, unless a container has more to say.

use jiff::Timestamp;
use serde_json::Value;

use crate::{cells, fields};

pub(crate) fn row(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = Summary::of(pod);
    vec![
        cells::name(pod),
        format!("{}/{}", summary.ready, containers(pod)).into(),
        summary.reason.clone().into(),
        summary.restarts.text(now).into(),
        cells::age(pod, now),
        cells::or(fields::text(pod, "/status/podIPs/0/ip"), cells::NONE),
        cells::or(fields::text(pod, "/spec/nodeName"), cells::NONE),
        cells::or(fields::text(pod, "/status/nominatedNodeName"), cells::NONE),
        gates(pod).into(),
    ]
}

struct Summary {
    ready: usize,
    reason: String,
    restarts: Restarts,
}

#[derive(Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count += fields::int(status, "/restartCount").unwrap_or_default();
        let finished = fields::text(status, "/lastState/terminated/finishedAt").parse().ok();
        self.last = self.last.max(finished);
    }

    fn text(&self, now: Timestamp) -> String {
        match self.last {
            Some(last) if self.count != 0 => {
                format!("{} ({} ago)", self.count, cells::duration(now.duration_since(last).as_secs()))
            }
            _ => self.count.to_string(),
        }
    }
}

impl Summary {
    fn of(pod: &Value) -> Self {
        let mut summary = Self { ready: 0, reason: phase(pod), restarts: Restarts::default() };
        let mut sidecars = Restarts::default();
        let initializing = summary.read_init(pod, &mut sidecars);
        if !initializing || condition(pod, "Initialized", "True") {
            summary.restarts = sidecars;
            summary.read_containers(pod);
        }
        if pod.pointer("/metadata/deletionTimestamp").is_some() {
            if fields::text(pod, "/status/reason") == "NodeLost" {
                summary.reason = "Unknown".to_owned();
            } else if !["Succeeded", "Failed"].contains(&fields::text(pod, "/status/phase")) {
                summary.reason = "Terminating".to_owned();
            }
        }
        summary
    }

    /// Whether an init container is still to finish; the first such one gives the reason.
    fn read_init(&mut self, pod: &Value, sidecars: &mut Restarts) -> bool {
        for (index, status) in fields::list(pod, "/status/initContainerStatuses").iter().enumerate() {
            self.restarts.add(status);
            let sidecar = is_sidecar(pod, fields::text(status, "/name"));
            if sidecar {
                sidecars.add(status);
            }
            if fields::int(status, "/state/terminated/exitCode") == Some(0) {
                continue;
            }
            if sidecar && fields::flag(status, "/started") {
                self.ready += usize::from(fields::flag(status, "/ready"));
                continue;
            }
            self.reason = match ended(status).or_else(|| waiting(status).filter(|reason| reason != "PodInitializing")) {
                Some(reason) => format!("Init:{reason}"),
                None => format!("Init:{index}/{}", fields::list(pod, "/spec/initContainers").len()),
            };
            return true;
        }
        false
    }

    fn read_containers(&mut self, pod: &Value) {
        let mut running = false;
        for status in fields::list(pod, "/status/containerStatuses").iter().rev() {
            self.restarts.add(status);
            if let Some(reason) = waiting(status).or_else(|| ended(status)) {
                self.reason = reason;
            } else if fields::flag(status, "/ready") && status.pointer("/state/running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        // One container is done, another goes on.
        if self.reason == "Completed" && running {
            self.reason = if condition(pod, "Ready", "True") { "Running" } else { "NotReady" }.to_owned();
        }
    }
}

fn phase(pod: &Value) -> String {
    let gated = fields::list(pod, "/status/conditions").iter().any(|condition| {
        fields::text(condition, "/type") == "PodScheduled" && fields::text(condition, "/reason") == "SchedulingGated"
    });
    match fields::text(pod, "/status/reason") {
        _ if gated => "SchedulingGated".to_owned(),
        "" => fields::text(pod, "/status/phase").to_owned(),
        reason => reason.to_owned(),
    }
}

fn waiting(status: &Value) -> Option<String> {
    let reason = fields::text(status, "/state/waiting/reason");
    (!reason.is_empty()).then(|| reason.to_owned())
}

fn ended(status: &Value) -> Option<String> {
    let terminated = status.pointer("/state/terminated")?;
    Some(match (fields::text(terminated, "/reason"), fields::int(terminated, "/signal").unwrap_or_default()) {
        ("", 0) => format!("ExitCode:{}", fields::int(terminated, "/exitCode").unwrap_or_default()),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    })
}

/// An init container that is restarted goes on beside the others, and counts among them.
fn is_sidecar(pod: &Value, name: &str) -> bool {
    let mut init = fields::list(pod, "/spec/initContainers").iter();
    init.any(|container| {
        fields::text(container, "/name") == name && fields::text(container, "/restartPolicy") == "Always"
    })
}

fn containers(pod: &Value) -> usize {
    let init = fields::list(pod, "/spec/initContainers").iter();
    let sidecars = init.filter(|container| fields::text(container, "/restartPolicy") == "Always").count();
    fields::list(pod, "/spec/containers").len() + sidecars
}

fn condition(pod: &Value, type_: &str, status: &str) -> bool {
    let mut conditions = fields::list(pod, "/status/conditions").iter();
    conditions
        .any(|condition| fields::text(condition, "/type") == type_ && fields::text(condition, "/status") == status)
}

fn gates(pod: &Value) -> String {
    let gates = fields::list(pod, "/spec/readinessGates");
    let met = gates.iter().filter(|gate| condition(pod, fields::text(gate, "/conditionType"), "True")).count();
    if gates.is_empty() { cells::NONE.to_owned() } else { format!("{met}/{}", gates.len()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(status: Value) -> (String, String, String) {
        shown_with(json!({"containers": [{"name": "a"}, {"name": "b"}]}), status)
    }

    fn shown_with(spec: Value, status: Value) -> (String, String, String) {
        let pod = json!({"metadata": {"name": "p"}, "spec": spec, "status": status});
        let cells = row(&pod, "2026-01-01T01:00:00Z".parse().unwrap());
        let text = |index: usize| cells[index].as_str().unwrap().to_owned();
        (text(1), text(2), text(3))
    }

    fn expect(ready: &str, status: &str, restarts: &str) -> (String, String, String) {
        (ready.to_owned(), status.to_owned(), restarts.to_owned())
    }

    #[test]
    fn the_phase_when_nothing_else_is_known() {
        assert_eq!(shown(json!({"phase": "Pending"})), expect("0/2", "Pending", "0"));
        assert_eq!(shown(json!({"phase": "Failed", "reason": "Evicted"})), expect("0/2", "Evicted", "0"));
        let gated = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]});
        assert_eq!(shown(gated), expect("0/2", "SchedulingGated", "0"));
    }

    #[test]
    fn containers_have_more_to_say() {
        let running = json!({"ready": true, "restartCount": 0, "state": {"running": {}}});
        let crashed = json!({
            "restartCount": 3,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"finishedAt": "2026-01-01T00:50:00Z"}},
        });
        assert_eq!(
            shown(json!({"phase": "Running", "containerStatuses": [running, running]})),
            expect("2/2", "Running", "0")
        );
        assert_eq!(
            shown(json!({"phase": "Running", "containerStatuses": [crashed, running]})),
            expect("1/2", "CrashLoopBackOff", "3 (10m ago)")
        );
        let killed = json!({"state": {"terminated": {"signal": 9, "exitCode": 137}}});
        assert_eq!(shown(json!({"phase": "Running", "containerStatuses": [killed]})), expect("0/2", "Signal:9", "0"));
        let done = json!({"state": {"terminated": {"reason": "Completed", "exitCode": 0}}});
        assert_eq!(
            shown(json!({"phase": "Running", "containerStatuses": [done, running]})),
            expect("1/2", "NotReady", "0")
        );
    }

    #[test]
    fn init_containers_come_first() {
        let spec = json!({
            "containers": [{"name": "a"}],
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
        });
        let ended = json!({"name": "i", "state": {"terminated": {"exitCode": 0}}});
        let sidecar = json!({"name": "s", "started": true, "ready": true, "state": {"running": {}}});
        let status = |init: Value| json!({"phase": "Pending", "initContainerStatuses": init});
        assert_eq!(
            shown_with(spec.clone(), status(json!([{"name": "i", "state": {"running": {}}}]))),
            expect("0/2", "Init:0/2", "0")
        );
        let failed = json!([{"name": "i", "state": {"terminated": {"exitCode": 1}}}]);
        assert_eq!(shown_with(spec.clone(), status(failed)), expect("0/2", "Init:ExitCode:1", "0"));
        assert_eq!(shown_with(spec, status(json!([ended, sidecar]))), expect("1/2", "Pending", "0"));
    }

    #[test]
    fn being_deleted() {
        let pod = |phase: &str, reason: &str| json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": phase, "reason": reason}});
        let status = |pod: Value| row(&pod, Timestamp::UNIX_EPOCH)[2].clone();
        assert_eq!(status(pod("Running", "")), "Terminating");
        assert_eq!(status(pod("Running", "NodeLost")), "Unknown");
        assert_eq!(status(pod("Succeeded", "")), "Succeeded");
    }

    #[test]
    fn wide_cells() {
        let pod = json!({
            "spec": {"nodeName": "n", "readinessGates": [{"conditionType": "x"}, {"conditionType": "y"}]},
            "status": {"podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "x", "status": "True"}]},
        });
        assert_eq!(
            row(&pod, Timestamp::UNIX_EPOCH)[5..],
            [json!("10.0.0.1"), json!("n"), json!("<none>"), json!("1/2")]
        );
    }
}
