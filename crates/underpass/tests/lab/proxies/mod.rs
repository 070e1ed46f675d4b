//! ProxyServers on a real cluster, carried by Envoy and by our own data plane: machines on a tenant network reach hosted control planes.
//!
//! One test for all, since they share the operator and its definitions; its parts run side by side, some at a time, each in namespaces and on a
//! subnet of its own.

mod changing;
mod crossing;
pub(crate) mod document;
mod killed;
mod leaving;
mod refused;
mod replicas;
mod routed;
mod switched;
mod troubles;
mod under_load;

use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use underpass_testbed::{Kubectl, Lab, LabNamespace, PATIENCE, Process, follow_guide, wait_until};

use crate::{BINARY, alone_with_definitions, root};

const IMAGE: &str = "lab.local/underpass:proxies";
/// For a rollout on a machine that does other things too.
const ROLLOUT: Duration = Duration::from_secs(120);
/// What two processors carry: all at once, seventy pods start in the same minute, and whoever waits for one waits in vain.
const AT_A_TIME: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Plane {
    Envoy,
    NewestEnvoy,
    Native,
}

/// The operator, for as long as this lives.
struct Operator<'a> {
    lab: &'a Lab,
}

impl<'a> Operator<'a> {
    fn install(lab: &'a Lab) -> Self {
        let archive = crate::image(IMAGE);
        lab.load(archive.path()).ok();
        let operator = Self { lab };
        operator.underpass(&["install", "--image", IMAGE]);
        operator
    }

    fn underpass(&self, words: &[&str]) {
        let mut command = Command::new(BINARY);
        command.args(words).arg("--kubeconfig").arg(self.lab.kubeconfig());
        Process::start(&mut command).wait_within(Duration::from_secs(240)).ok();
    }
}

impl Drop for Operator<'_> {
    #[allow(clippy::print_stderr, reason = "what it was at when a test failed is known to itself alone")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said =
                self.lab.kubectl().run("logs -n underpass-system -l app.kubernetes.io/name=underpass --tail=300");
            eprintln!("what the operator said:\n{said}");
            return;
        }
        self.underpass(&["uninstall", "--yes"]);
    }
}

#[test]
fn machines_reach_hosted_control_planes_through_proxies() {
    let _alone = alone_with_definitions();
    let lab = Lab::running();
    let _operator = Operator::install(&lab);
    lab.envoy_image();
    // Held while others work: whoever measures does so alone.
    let turn = Mutex::new(());
    std::thread::scope(|measured| {
        let others = turn.lock().unwrap();
        for (plane, subnets) in
            [(Plane::Envoy, [113, 118]), (Plane::Native, [114, 119]), (Plane::NewestEnvoy, [134, 135])]
        {
            let (lab, turn) = (&lab, &turn);
            measured.spawn(move || {
                under_load::changes_are_obeyed_and_no_connection_breaks(lab, plane, subnets[0], turn);
            });
            measured.spawn(move || {
                replicas::one_of_several_has_the_address_and_another_follows(lab, plane, subnets[1], turn);
            });
        }
        side_by_side(&lab);
        drop(others);
    });
}

/// The longest first, so that nobody is left alone with one at the end.
fn side_by_side(lab: &Lab) {
    let scenarios: Vec<Box<dyn FnOnce() + Send + '_>> = vec![
        Box::new(|| document::is_true_from_top_to_bottom(lab)),
        Box::new(|| lab.metrics()),
        Box::new(|| as_the_guide_says(lab)),
        Box::new(|| troubles::are_told_on_the_object(lab)),
        Box::new(|| replicas::one_becomes_several_and_two_never_have_the_address(lab, Plane::Native, 128)),
        Box::new(|| killed::containers_serve_again(lab, Plane::Envoy, 120)),
        Box::new(|| killed::containers_serve_again(lab, Plane::Native, 121)),
        Box::new(|| killed::containers_serve_again(lab, Plane::NewestEnvoy, 133)),
        Box::new(|| switched::one_data_plane_follows_the_other(lab, 136)),
        Box::new(|| refused::a_port_that_is_taken_is_told_and_tried_again(lab, Plane::Envoy, 122)),
        Box::new(|| refused::a_port_that_is_taken_is_told_and_tried_again(lab, Plane::Native, 123)),
        Box::new(|| crossing::by_name_by_port_and_by_default(lab, Plane::Envoy, 110)),
        Box::new(|| crossing::by_name_by_port_and_by_default(lab, Plane::Native, 111)),
        Box::new(|| crossing::by_name_by_port_and_by_default(lab, Plane::NewestEnvoy, 112)),
        Box::new(|| troubles::an_address_of_another_proxy_is_told(lab)),
        Box::new(|| troubles::what_others_have_is_not_used(lab)),
        Box::new(|| troubles::pods_that_are_refused_are_told(lab)),
        Box::new(|| routed::machines_behind_a_router_are_answered(lab, Plane::Native, 1, [124, 125])),
        Box::new(|| routed::machines_behind_a_router_are_answered(lab, Plane::Native, 2, [126, 127])),
        Box::new(|| changing::what_people_change_by_hand_stays(lab)),
        Box::new(|| leaving::takes_everything_along_and_nothing_of_another(lab, Plane::Native, 1, 117)),
        Box::new(|| leaving::takes_everything_along_and_nothing_of_another(lab, Plane::Envoy, 2, 132)),
    ];
    let waiting = Mutex::new(scenarios.into_iter());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(scenario) = next() {
                    scenario();
                }
            });
        }
    });
}

fn as_the_guide_says(lab: &Lab) {
    let page = std::fs::read_to_string(root().join("docs/hosted-clusters.md")).unwrap();
    let kubeconfig = lab.kubeconfig().display().to_string();
    follow_guide(&page, "#!/bin/sh\nexit 1\n", &[("KUBECONFIG", &kubeconfig)], Duration::from_secs(240));
}

/// A namespace with a NetworkAttachmentDefinition, and a ProxyServer in it.
struct Site<'a> {
    lab: &'a Lab,
    namespace: LabNamespace,
    plane: Plane,
    /// The third number of its addresses.
    subnet: u8,
}

impl<'a> Site<'a> {
    fn new(lab: &'a Lab, plane: Plane, subnet: u8) -> Self {
        let namespace = lab.namespace("hosted");
        // What is refused there is refused by the strictest of Kubernetes' own standards.
        namespace
            .kubectl
            .ok(&format!("label namespace {} pod-security.kubernetes.io/enforce=restricted", namespace.name));
        let site = Self { lab, namespace, plane, subnet };
        site.make_network("tenant-vlan-100");
        site
    }

    /// As the documents print it.
    fn make_network(&self, name: &str) {
        self.make_network_with(name, &json!({ "ipam": { "type": "static" } }));
    }

    /// One whose addresses come from elsewhere.
    fn make_network_with(&self, name: &str, addresses: &Value) {
        let mut config = json!({ "cniVersion": "0.3.1", "type": "macvlan", "master": "eth1", "mode": "bridge" });
        json_patch::merge(&mut config, addresses);
        self.apply(&json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": { "name": name }, "spec": { "config": config.to_string() },
        }));
    }

    fn kubectl(&self) -> &Kubectl {
        &self.namespace.kubectl
    }

    #[track_caller]
    fn apply(&self, object: &Value) {
        self.kubectl().ok_with("apply -f -", &object.to_string());
    }

    fn server_ip(&self) -> String {
        format!("192.168.{}.4", self.subnet)
    }

    fn proxy(&self, name: &str, backends: &[Value]) -> Value {
        let mut spec = json!({
            "networkConfig": { "serverIP": self.server_ip(), "networkAttachmentName": "tenant-vlan-100" },
            "dataPlane": if self.plane == Plane::Native { "Native" } else { "Envoy" },
            "drainSeconds": 5,
            // They have to fit onto the nodes side by side, some thirty of them.
            "resources": amounts("500m", "512Mi"),
            "managerResources": amounts("250m", "256Mi"),
            "backends": backends,
        });
        if self.plane == Plane::NewestEnvoy {
            spec["proxyImage"] = json!(self.lab.newest_envoy_image());
        }
        json!({
            "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer",
            "metadata": { "name": name }, "spec": spec,
        })
    }

    /// What is said of the newest generation: status, reason and message.
    fn condition(&self, name: &str, condition: &str) -> Option<(String, String, String)> {
        let object = self.kubectl().json(&format!("get proxyserver {name}"));
        if object["status"]["observedGeneration"] != object["metadata"]["generation"] {
            return None;
        }
        let conditions = object["status"]["conditions"].as_array()?.clone();
        let found = conditions.into_iter().find(|one| one["type"] == condition)?;
        let word = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        Some((word("status"), word("reason"), word("message")))
    }

    /// Waits until the condition has that status and reason. Its message.
    #[track_caller]
    fn becomes(&self, name: &str, condition: &str, status: &str, reason: &str) -> String {
        wait_until(&format!("{condition}={status} {reason} of {name}"), ROLLOUT, || {
            let (found, why, message) = self.condition(name, condition)?;
            (found == status && why == reason).then_some(message)
        })
    }

    #[track_caller]
    fn is_ready(&self, name: &str) {
        assert_eq!(self.becomes(name, "Ready", "True", "DeploymentReady"), "Proxy deployment is ready");
    }

    fn uid(&self, name: &str) -> String {
        self.kubectl().ok(&format!("get proxyserver {name} -o jsonpath={{.metadata.uid}}"))
    }

    /// Its only pod, by name; of several, all.
    fn pod(&self, name: &str) -> String {
        let selector = format!("app=proxy-server,hostedcluster.densityops.com={name}");
        self.kubectl().ok(&format!("get pods -l {selector} -o jsonpath={{.items[*].metadata.name}}"))
    }

    /// What the API server says about it.
    fn pod_object(&self, name: &str) -> Value {
        self.kubectl().json(&format!("get pod {}", self.pod(name)))
    }

    /// The page of its data plane, over the pod network.
    fn metrics(&self, name: &str) -> String {
        let pod = self.pod_object(name);
        let page = format!("http://{}:9902/stats/prometheus", pod["status"]["podIP"].as_str().unwrap());
        wait_until("metrics of a proxy", PATIENCE, || {
            let page = Command::new("curl").args(["-fsS", "--max-time", "5", &page]).output().ok()?;
            page.status.success().then(|| String::from_utf8_lossy(&page.stdout).into_owned())
        })
    }

    /// How often its containers have started anew.
    fn restarts(&self, pod: &str) -> String {
        self.kubectl().ok(&format!("get pod {pod} -o jsonpath={{.status.containerStatuses[*].restartCount}}"))
    }
}

/// At most so much, and hardly anything set aside.
fn amounts(cpu: &str, memory: &str) -> Value {
    json!({ "requests": { "cpu": "10m", "memory": "32Mi" }, "limits": { "cpu": cpu, "memory": memory } })
}

/// One that leads to a hosted service.
fn backend(name: &str, hostname: &str, port: u16, service: &str, namespace: &LabNamespace) -> Value {
    json!({
        "name": name, "hostname": hostname, "port": port,
        "targetService": service, "targetPort": 6443, "targetNamespace": namespace.name,
    })
}
