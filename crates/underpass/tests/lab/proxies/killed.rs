//! A container that is killed, with its pod where it was.

use std::time::Instant;

use serde_json::Value;
use underpass_testbed::tenant::{Door, NOBODY};
use underpass_testbed::{HostedControlPlane, HostedService, Lab, PATIENCE, Tenant, wait_until};

use super::{Plane, ROLLOUT, Site, backend};

const STREAMS: usize = 20;

#[allow(clippy::print_stdout, reason = "what was measured is told to whoever runs it with --nocapture")]
pub(super) fn containers_serve_again(lab: &Lab, plane: Plane, subnet: u8) {
    let site = Site::new(lab, plane, subnet);
    let target = lab.namespace("target");
    let hosted =
        HostedControlPlane::start(lab, &target, &[HostedService::tls("kube-apiserver", 6443, &["api.example.com"])]);
    site.apply(&site.proxy("edge", &[backend("api", "api.example.com", 6443, "kube-apiserver", &target)]));
    site.is_ready("edge");
    let (vm, pod) = (lab.machine(&format!("192.168.{subnet}.50/24")), site.pod("edge"));
    let (door, who) = (Door::new("api.example.com", 6443), hosted.name_of("kube-apiserver"));
    let tenant = || Tenant::on(&vm, &site.server_ip(), &hosted.authority());
    if plane != Plane::Native {
        nobody_notices_the_death_of_a_manager(&site, tenant(), &door, &who);
    }
    let carrier = if plane == Plane::Native { "manager" } else { "envoy" };
    let mut witness = tenant();
    witness.stream(&door, &who, STREAMS);
    kill(&site, carrier);
    let killed = Instant::now();
    let since = tenant().await_answer(&door, &[NOBODY], &who, 3);
    println!("{plane:?}: served again {:?} after {carrier} was killed", since.saturating_duration_since(killed));
    wait_until("every stream ends with whoever carried it", PATIENCE, || {
        (witness.report().broken.len() == STREAMS).then_some(())
    });
    started_anew(&site, carrier);
    assert_eq!(site.pod("edge"), pod, "the pod is the same");
    site.is_ready("edge");
}

/// Connections go on and new ones are let in all the time; whoever follows says the same, and nothing of it is new to Envoy.
fn nobody_notices_the_death_of_a_manager(site: &Site<'_>, mut tenant: Tenant, door: &Door, who: &str) {
    tenant.stream(door, who, STREAMS);
    tenant.watch(door, who);
    let (version, made) = (version(site), made_by_envoy(site));
    kill(site, "manager");
    started_anew(site, "manager");
    let said = format!("logs {} -c manager", site.pod("edge"));
    wait_until("the next manager to say the same, and Envoy to hear it", PATIENCE, || {
        let log = site.kubectl().ok(&said);
        (log.contains(&version) && log.contains("connected")).then_some(())
    });
    wait_until("the next manager is ready", ROLLOUT, || container(site, "manager")["ready"].as_bool().filter(|it| *it));
    let last = tenant.report().least;
    let report = wait_until("every stream goes on", PATIENCE, || {
        let report = tenant.report();
        (report.least > last + 2 || !report.broken.is_empty()).then_some(report)
    });
    assert_eq!((report.streams, report.broken, report.wrong), (STREAMS, Vec::new(), Vec::new()));
    assert_eq!(made_by_envoy(site), made, "listeners and clusters are those of before");
    assert_eq!(self::version(site), version);
}

fn kill(site: &Site<'_>, name: &str) {
    killer(site, &site.pod("edge"), |container| container == name)();
}

/// What ends containers as a crash would, all at once: the first process of each, and with it all others.
pub(super) fn killer<'a>(site: &Site<'a>, pod: &str, which: impl Fn(&str) -> bool) -> Box<dyn FnOnce() + 'a> {
    let pod = site.kubectl().json(&format!("get pod {pod}"));
    let all = pod["status"]["containerStatuses"].as_array().unwrap().iter();
    let ids = all.filter(|container| which(container["name"].as_str().unwrap()));
    let ids = ids.map(|container| container["containerID"].as_str().unwrap().trim_start_matches("containerd://"));
    let kill = |id| format!("ctr -n k8s.io tasks kill --signal SIGKILL {id} & all=\"$all $!\"\n");
    let script = format!("all=\n{}for one in $all; do wait $one; done", ids.map(kill).collect::<String>());
    let (lab, node) = (site.lab, pod["spec"]["nodeName"].as_str().unwrap().to_owned());
    Box::new(move || drop(lab.on(&node, &script).ok()))
}

fn started_anew(site: &Site<'_>, name: &str) {
    wait_until(&format!("{name} starts anew"), ROLLOUT, || {
        let container = container(site, name);
        (container["restartCount"] == 1 && container["state"]["running"].is_object()).then_some(())
    });
}

fn container(site: &Site<'_>, name: &str) -> Value {
    let pod = site.pod_object("edge");
    let all = pod["status"]["containerStatuses"].as_array().unwrap();
    all.iter().find(|container| container["name"] == name).unwrap().clone()
}

/// Of what Envoy runs, as its pod says.
fn version(site: &Site<'_>) -> String {
    wait_until("the version of the configuration", PATIENCE, || {
        let found = site.kubectl().ok("get proxyserver edge -o jsonpath={.status.pods[0].configurationVersion}");
        Some(found).filter(|version| !version.is_empty())
    })
}

/// What Envoy has counted of what it was told to make, change and remove.
fn made_by_envoy(site: &Site<'_>) -> Vec<String> {
    let page = site.metrics("edge");
    let counts = |line: &&str| {
        ["envoy_listener_manager_listener_", "envoy_cluster_manager_cluster_"].iter().any(|what| line.starts_with(what))
            && ["_added", "_modified", "_removed"].iter().any(|what| line.contains(what))
    };
    let found: Vec<String> = page.lines().filter(counts).map(str::to_owned).collect();
    assert!(found.len() >= 6, "Envoy counts something else:\n{page}");
    found
}
