//! Several pods of which one has the address.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use underpass_testbed::tenant::Door;
use underpass_testbed::{HostedControlPlane, HostedService, Lab, PATIENCE, Tenant, wait_until};

use super::killed::killer;
use super::{Plane, ROLLOUT, Site, backend};

const ROUNDS: usize = 4;
const PODS: usize = 3;

/// `turn` is taken once everything stands: how long another needs to follow is measured.
pub(super) fn one_of_several_has_the_address_and_another_follows(
    lab: &Lab,
    plane: Plane,
    subnet: u8,
    turn: &Mutex<()>,
) {
    let site = Site::new(lab, plane, subnet);
    // Moving an address takes a capability that the strictest standard does not know.
    site.kubectl().ok(&format!("label namespace {} pod-security.kubernetes.io/enforce-", site.namespace.name));
    let target = lab.namespace("target");
    let hosted =
        HostedControlPlane::start(lab, &target, &[HostedService::tls("kube-apiserver", 6443, &["api.example.com"])]);
    let mut proxy = site.proxy("edge", &[backend("api", "api.example.com", 6443, "kube-apiserver", &target)]);
    proxy["spec"]["replicas"] = json!(PODS);
    nobody_takes_an_address_that_is_in_use(&site, &proxy);
    site.is_ready("edge");
    let (vm, door) = (lab.machine(&format!("192.168.{subnet}.50/24")), Door::new("api.example.com", 6443));
    let mut tenant = Tenant::on(&vm, &site.server_ip(), &hosted.authority());
    others_are_ready(&site);
    a_node_that_goes_does_not_take_all(&site);
    let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
    for round in 0..ROUNDS {
        others_are_ready(&site);
        tenant.await_return(&door, &hosted.name_of("kube-apiserver"));
        another_follows(&site, &mut tenant, &door, &hosted.name_of("kube-apiserver"), round);
    }
    site.kubectl().ok("delete proxyserver edge --timeout=110s");
}

/// Killed where it is, or deleted, by turns; how long it took is told, and decides nothing.
#[allow(clippy::print_stdout, reason = "what was measured is told to whoever runs it with --nocapture")]
fn another_follows(site: &Site<'_>, tenant: &mut Tenant, door: &Door, who: &str, round: usize) {
    let before = holder(site);
    let how = if round.is_multiple_of(2) { "killed" } else { "deleted" };
    let kill = killer(site, &before, |_| true);
    let lasted = std::thread::scope(|scope| {
        let outage = scope.spawn(|| tenant.outage(door, who));
        if how == "killed" {
            kill();
        } else {
            site.kubectl().ok(&format!("delete pod {before} --force --grace-period=0"));
        }
        outage.join().unwrap()
    });
    println!("{:?}, round {round}: served again {lasted:.2?} after the pod was {how}", site.plane);
    let active = || site.kubectl().ok("get proxyserver edge -o jsonpath={.status.activePod}");
    wait_until("the status names whoever has it", ROLLOUT, || (active() == holder(site)).then_some(()));
}

/// They are on as many nodes as there are, and whoever empties nodes has to leave two.
fn a_node_that_goes_does_not_take_all(site: &Site<'_>) {
    let words = |what: &str, field: &str| -> BTreeSet<String> {
        let words = site.kubectl().ok(&format!("get {what} -o jsonpath={{.items[*].{field}}}"));
        words.split(' ').map(str::to_owned).collect()
    };
    let nodes = words("nodes", "metadata.name");
    let used = words("pods -l app=proxy-server,hostedcluster.densityops.com=edge", "spec.nodeName");
    assert_eq!(used.len(), nodes.len().min(PODS), "of {nodes:?}, {used:?} have one");
    let allowed = "get poddisruptionbudget edge-proxy -o jsonpath={.status.expectedPods}/{.status.disruptionsAllowed}";
    wait_until("one pod at a time may be disrupted", ROLLOUT, || {
        (site.kubectl().ok(allowed) == format!("{PODS}/1")).then_some(())
    });
}

/// All that are to be there, so that nobody who starts is measured.
fn others_are_ready(site: &Site<'_>) {
    let ready = "get proxyserver edge -o jsonpath={.status.readyReplicas}";
    wait_until("three ready pods", ROLLOUT, || (site.kubectl().ok(ready) == PODS.to_string()).then_some(()));
}

/// The pod that holds the lease: what stands before the first `_` of its name there.
fn holder(site: &Site<'_>) -> String {
    wait_until("somebody holds the lease", PATIENCE, || {
        let holder = site.kubectl().ok("get lease edge-proxy -o jsonpath={.spec.holderIdentity}");
        holder.split('_').next().filter(|pod| !pod.is_empty()).map(str::to_owned)
    })
}

/// One pod that has the address for good becomes three that take turns, and one again. While that happens, and where it is possible at all,
/// machines are answered by one.
pub(super) fn one_becomes_several_and_two_never_have_the_address(lab: &Lab, plane: Plane, subnet: u8) {
    let site = Site::new(lab, plane, subnet);
    site.kubectl().ok(&format!("label namespace {} pod-security.kubernetes.io/enforce-", site.namespace.name));
    let target = lab.namespace("target");
    let hosted =
        HostedControlPlane::start(lab, &target, &[HostedService::tls("kube-apiserver", 6443, &["api.example.com"])]);
    site.apply(&site.proxy("edge", &[backend("api", "api.example.com", 6443, "kube-apiserver", &target)]));
    site.is_ready("edge");
    let (vm, door) = (lab.machine(&format!("192.168.{subnet}.50/24")), Door::new("api.example.com", 6443));
    let mut tenant = Tenant::on(&vm, &site.server_ip(), &hosted.authority());
    for replicas in ["3", "1"] {
        site.kubectl().ok(&format!("patch proxyserver edge --type=merge -p {{\"spec\":{{\"replicas\":{replicas}}}}}"));
        let done = "get deployment proxy-server-edge -o jsonpath={.spec.replicas}/{.status.updatedReplicas}/{.status.replicas}/{.status.readyReplicas}";
        let all = [replicas; 4].join("/");
        wait_until(&format!("{replicas} pods, and never two holders"), ROLLOUT, || {
            let (holders, pods) = (holders(&site), site.kubectl().ok(done));
            assert!(holders <= 1, "{holders} have it, with pods {pods}");
            (pods == all && holders == 1).then_some(())
        });
        tenant.await_return(&door, &hosted.name_of("kube-apiserver"));
        site.is_ready("edge");
    }
}

/// A machine has it before the proxy comes; it is the proxy's when the machine has gone.
fn nobody_takes_an_address_that_is_in_use(site: &Site<'_>, proxy: &Value) {
    let squatter = site.lab.machine(&format!("{}/24", site.server_ip()));
    site.apply(proxy);
    let message = site.becomes("edge", "NetworkReady", "False", "IPConflict");
    assert!(message.contains(&squatter.mac()), "{} is not in: {message}", squatter.mac());
    assert_eq!(holders(site), 1, "the machine alone has it");
    drop(squatter);
    site.becomes("edge", "NetworkReady", "True", "Attached");
    // A pod that cannot renew its lease in time, because the machine is busy, is without it for a moment; two never have it.
    wait_until("one pod has it", PATIENCE, || match holders(site) {
        0 => None,
        one_or_more => {
            assert_eq!(one_or_more, 1, "two have it");
            Some(())
        }
    });
}

/// How many have the address at one moment. It may move while one is looked at after the other: two have it where the first is seen with it
/// again, after the second.
fn holders(site: &Site<'_>) -> usize {
    let all = seen_with_it(site);
    if all.len() < 2 || seen_with_it(site).contains(&all[0]) { all.len() } else { 1 }
}

/// All pods and machines that have the address, in the order of looking. Others' pods go meanwhile.
fn seen_with_it(site: &Site<'_>) -> Vec<String> {
    let nodes = site.kubectl().ok("get nodes -o jsonpath={.items[*].metadata.name}");
    let look = format!(
        "for one in $(ip netns list | cut -d' ' -f1); do [ -z \"$(ip -n $one -o -4 address show to {})\" ] || echo $one; done",
        site.server_ip()
    );
    let on = |node: &str| site.lab.on(node, &look).ok().lines().map(|one| format!("{node} {one}")).collect::<Vec<_>>();
    nodes.split(' ').flat_map(on).collect()
}
