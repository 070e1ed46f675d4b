//! What the Deployment and its pods show.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use underpass_resources::proxy_server::PodReport;

use super::Observed;
use super::network::NETWORKS;
use super::pod::ADDRESS;

/// On the Lease: who else has the address.
pub(super) const CONFLICT: &str = "underpass.dev/address-conflict";
/// How long its renewal took, when nobody has the address for that reason.
pub(super) const LATE: &str = "underpass.dev/address-late";
/// What Multus writes about the networks of a pod.
const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";
/// More than a node needs to connect a pod.
const A_NETWORK_TAKES: SignedDuration = SignedDuration::from_secs(10);
/// Why the kubelet does not start a container, when it is the image.
const IMAGE_TROUBLE: [&str; 5] =
    ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"];

#[derive(Deserialize)]
struct Attached {
    #[serde(default)]
    ips: Vec<IpAddr>,
    #[serde(default)]
    default: bool,
}

/// What the pods that are there say of themselves.
pub(super) fn reports(observed: &Observed) -> Vec<&PodReport> {
    let reports = observed.object.status.iter().flat_map(|status| &status.pods);
    let is_there = |report: &&PodReport| observed.pods.iter().any(|pod| runs(pod) && name(pod) == report.name);
    reports.filter(is_there).collect()
}

/// Names of pods that have said something and are gone.
pub(super) fn departed(observed: &Observed) -> Vec<String> {
    let reports = observed.object.status.iter().flat_map(|status| &status.pods);
    let is_gone = |report: &&PodReport| !observed.pods.iter().any(|pod| name(pod) == report.name);
    reports.filter(is_gone).map(|report| report.name.clone()).collect()
}

pub(super) fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

pub(super) fn runs(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && phase == Some("Running")
}

/// Those that may still do something.
fn alive(pods: &[Pod]) -> impl Iterator<Item = &Pod> {
    let has_ended = |pod: &&Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        phase.is_some_and(|phase| ["Succeeded", "Failed"].contains(&phase))
    };
    pods.iter().filter(move |pod| !has_ended(pod))
}

/// Under which accounts they run.
pub(super) fn accounts(pods: &[Pod]) -> BTreeSet<&str> {
    alive(pods).filter_map(|pod| pod.spec.as_ref()?.service_account_name.as_deref()).collect()
}

/// Whether one of them gets the address when it is its turn.
pub(super) fn take_turns(pods: &[Pod]) -> bool {
    let containers = alive(pods).filter_map(|pod| pod.spec.as_ref()).flat_map(|spec| &spec.containers);
    containers.into_iter().any(|container| container.name == ADDRESS)
}

/// Whether a node has had time to set up its network, and has not: what keeps it is told in Events of the pod alone.
pub(super) fn waits_for_its_network(pod: &Pod, now: Timestamp) -> bool {
    let Some(status) = &pod.status else { return false };
    let since = status.start_time.as_ref().map_or(now, |time| time.0);
    let lacks_it = status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == "PodReadyToStartContainers" && condition.status == "False");
    pod.metadata.deletion_timestamp.is_none() && lacks_it && now.duration_since(since) > A_NETWORK_TAKES
}

/// Whether these are the networks that it is to join.
pub(super) fn asks_for(pod: &Pod, networks: &str) -> bool {
    annotation(pod, NETWORKS) == Some(networks)
}

fn network_status(pod: &Pod) -> Vec<Attached> {
    annotation(pod, NETWORK_STATUS).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

pub(super) fn has_network_status(pod: &Pod) -> bool {
    !network_status(pod).is_empty()
}

/// Its addresses on secondary networks.
pub(super) fn addresses(pod: &Pod) -> Vec<IpAddr> {
    network_status(pod).into_iter().filter(|network| !network.default).flat_map(|network| network.ips).collect()
}

pub(super) fn wanted(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// What the Deployment's own controller has counted, of the newest that it was told.
fn counted(deployment: &Deployment) -> Option<&k8s_openapi::api::apps::v1::DeploymentStatus> {
    let status = deployment.status.as_ref()?;
    (status.observed_generation >= deployment.metadata.generation).then_some(status)
}

pub(super) fn updated(deployment: &Deployment) -> i32 {
    counted(deployment).and_then(|status| status.updated_replicas).unwrap_or_default()
}

pub(super) fn ready(deployment: &Deployment) -> i32 {
    counted(deployment).and_then(|status| status.ready_replicas).unwrap_or_default()
}

pub(super) fn is_available(deployment: &Deployment) -> bool {
    counted(deployment).is_some_and(|status| status.available_replicas.is_some_and(|count| count > 0))
}

/// What keeps pods from being made or from starting: a reason and a sentence.
pub(super) fn trouble(deployment: Option<&Deployment>, pods: &[Pod]) -> Option<(&'static str, String)> {
    let images = pods.iter().flat_map(|pod| containers(pod).map(move |container| (pod, container)));
    let waiting =
        images.filter_map(|(pod, container)| Some((pod, container, container.state.as_ref()?.waiting.as_ref()?)));
    for (pod, container, waiting) in waiting {
        let reason = waiting.reason.as_deref().unwrap_or_default();
        let why = waiting.message.as_deref().unwrap_or(reason);
        let (pod, container, image) = (name(pod), &container.name, &container.image);
        if IMAGE_TROUBLE.contains(&reason) {
            let message = format!("pod {pod} cannot get the image {image} of its container {container}: {why}");
            return Some(("ImagePullFailed", message));
        }
        if ["CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "RunContainerError"]
            .contains(&reason)
        {
            let message = format!("container {container} of pod {pod} does not start ({reason}): {why}");
            return Some(("ContainerFailed", message));
        }
    }
    let unplaced = pods.iter().find_map(|pod| Some((pod, unschedulable(pod)?)));
    if let Some((pod, why)) = unplaced {
        return Some(("Unschedulable", format!("no node takes pod {}: {why}", name(pod))));
    }
    let conditions = deployment?.status.as_ref()?.conditions.as_ref()?;
    let refused =
        conditions.iter().find(|condition| condition.type_ == "ReplicaFailure" && condition.status == "True")?;
    let why = refused.message.as_deref().unwrap_or_default();
    let reason = if why.contains("security context constraint") { "SCCDenied" } else { "PodsRefused" };
    Some((reason, format!("the cluster refuses to make a pod: {why}")))
}

/// Why the scheduler finds no node for it.
fn unschedulable(pod: &Pod) -> Option<&str> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let placed = conditions.find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    // It may wait for something else, and says nothing then.
    (placed.reason.as_deref() == Some("Unschedulable")).then(|| placed.message.as_deref().unwrap_or_default())
}

fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    status.into_iter().flat_map(|status| {
        status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten())
    })
}
