//! Whether the operator works, and if not, why: its Deployment, its pods, its lease.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodSpec};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tokio::time::{Interval, interval};
use underpass_deploy::OPERATOR;
use underpass_operator::{Answer, leadership};

use crate::output::tell;

const LOOK: Duration = Duration::from_millis(500);
/// Why containers wait that only begin.
const USUAL: [&str; 2] = ["ContainerCreating", "PodInitializing"];
/// No time heals a name that is none; anything else may come right, a registry even.
const HOPELESS: &str = "InvalidImageName";

/// Until every pod is new and ready and one of them leads, which it shows by renewing; says which.
pub(crate) async fn works(client: &Client, namespace: &str) -> anyhow::Result<String> {
    let mut look = interval(LOOK);
    let lease =
        || async { leadership::written(client, namespace, OPERATOR).await.context("cannot read the operator's lease") };
    let before = lease().await?;
    rolled_out(client, namespace, &mut look).await?;
    loop {
        let renewed = lease().await?.filter(|lease| before.as_ref() != Some(lease));
        // A pod of the version before may hold it until it has ended.
        if let Some(leader) = renewed.and_then(|lease| lease.holder_identity).filter(|leader| !leader.is_empty())
            && pods(client, namespace).await?.iter().any(|pod| leader.starts_with(&pod.name_any()) && is_ready(pod))
        {
            return Ok(leader);
        }
        look.tick().await;
    }
}

async fn rolled_out(client: &Client, namespace: &str, look: &mut Interval) -> anyhow::Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let (mut told, mut known) = (String::new(), BTreeSet::new());
    loop {
        let deployment = deployments.get(OPERATOR).await.map_err(Answer::from).context("cannot read the Deployment")?;
        let Some(lacking) = lacking(&deployment) else { return Ok(()) };
        if lacking != told {
            tell(&format!("waiting   {lacking}"));
            told = lacking;
        }
        let image = deployment.spec.as_ref().and_then(|spec| image_of(spec.template.spec.as_ref()));
        // Those of the version before may hang on what was wrong with it.
        let pods = pods(client, namespace).await?.into_iter().filter(|pod| image_of(pod.spec.as_ref()) == image);
        tell_why(pods, &mut known);
        if known.iter().any(|(_, reason)| reason == HOPELESS) {
            let why = troubles(client, namespace).await?;
            bail!("the operator cannot work:\n{}", to_repair(&why));
        }
        look.tick().await;
    }
}

/// Each reason once per pod: the words beside it change with every attempt.
fn tell_why(pods: impl Iterator<Item = Pod>, known: &mut BTreeSet<(String, String)>) {
    for pod in pods.filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let Some(reason) = waiting_reason(&pod).filter(|reason| !USUAL.contains(&reason.as_str())) else { continue };
        if known.insert((pod.name_any(), reason)) {
            tell(&format!("waiting   for pod {}: {}", pod.name_any(), why_not_ready(&pod)));
        }
    }
}

fn image_of(pod: Option<&PodSpec>) -> Option<&str> {
    pod?.containers.first()?.image.as_deref()
}

fn waiting_reason(pod: &Pod) -> Option<String> {
    let container = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    container.state.as_ref()?.waiting.as_ref()?.reason.clone()
}

/// What stands in the way, and what to do then.
pub(crate) fn to_repair(why: &[String]) -> String {
    format!("  {}\nRepair that and run `underpass install` again; everything is applied.", why.join("\n  "))
}

/// What a rollout still waits for.
fn lacking(deployment: &Deployment) -> Option<String> {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = deployment.status.clone().unwrap_or_default();
    if status.observed_generation < deployment.metadata.generation {
        return Some("for the cluster to take the Deployment up".to_owned());
    }
    let [total, new, ready] =
        [status.replicas, status.updated_replicas, status.available_replicas].map(Option::unwrap_or_default);
    if new < wanted || ready < wanted {
        return Some(format!("for {wanted} pods: {new} started, {ready} ready"));
    }
    (total > new).then(|| format!("for {} pods of the version before to end", total - new))
}

/// What keeps the operator from working, as far as the cluster says it.
pub(crate) async fn troubles(client: &Client, namespace: &str) -> anyhow::Result<Vec<String>> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let deployment = deployments.get(OPERATOR).await.map_err(Answer::from)?;
    let conditions = deployment.status.unwrap_or_default().conditions.unwrap_or_default();
    let refused = conditions.into_iter().filter(|condition| condition.type_ == "ReplicaFailure");
    let mut all: Vec<String> =
        refused.map(|condition| format!("no pod can be made: {}", condition.message.unwrap_or_default())).collect();
    for pod in pods(client, namespace).await?.iter().filter(|pod| !is_ready(pod)) {
        all.push(format!("pod {}: {}", pod.name_any(), why_not_ready(pod)));
    }
    if all.is_empty() {
        all.push(format!("its pods are ready, but none of them leads: see the lease {OPERATOR} in {namespace}"));
    }
    Ok(all)
}

/// How many pods of an earlier version are ready.
pub(crate) async fn of_the_version_before(client: &Client, namespace: &str) -> anyhow::Result<usize> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let deployment = deployments.get(OPERATOR).await.map_err(Answer::from)?;
    let image = deployment.spec.as_ref().and_then(|spec| image_of(spec.template.spec.as_ref()));
    let pods = pods(client, namespace).await?;
    Ok(pods.iter().filter(|pod| is_ready(pod) && image_of(pod.spec.as_ref()) != image).count())
}

fn why_not_ready(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let container = status.container_statuses.unwrap_or_default().first().and_then(trouble_of);
    let conditions = status.conditions.unwrap_or_default();
    let unscheduled =
        conditions.iter().find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    container.or_else(|| unscheduled.and_then(|condition| condition.message.clone())).unwrap_or_else(|| {
        format!("it is not ready; kubectl logs -n {} {}", pod.namespace().unwrap_or_default(), pod.name_any())
    })
}

fn trouble_of(container: &ContainerStatus) -> Option<String> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let (reason, message) = (waiting.reason.clone()?, waiting.message.clone().unwrap_or_default());
    let ended = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let ended = ended.map(|ended| format!(" (it ended with {})", ended.exit_code)).unwrap_or_default();
    Some(format!("{reason}: {message}{ended}"))
}

async fn pods(client: &Client, namespace: &str) -> anyhow::Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let ours = ListParams::default().labels("app.kubernetes.io/name=underpass,app.kubernetes.io/component=operator");
    Ok(pods.list(&ours).await.map_err(Answer::from).context("cannot list the operator's pods")?.items)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    pod.metadata.deletion_timestamp.is_none()
        && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(generation: i64, status: &serde_json::Value) -> Deployment {
        let object = json!({
            "metadata": { "name": "o", "generation": generation },
            "spec": { "replicas": 2, "selector": {}, "template": {} },
            "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_rollout_is_over_when_every_pod_is_new_and_ready_and_no_other_is_left() {
        let counts = |total, new, ready| {
            let status = json!({ "observedGeneration": 3, "replicas": total, "updatedReplicas": new, "availableReplicas": ready });
            lacking(&deployment(3, &status))
        };
        assert_eq!(counts(2, 2, 2), None);
        assert_eq!(counts(2, 1, 2).unwrap(), "for 2 pods: 1 started, 2 ready");
        assert_eq!(counts(2, 2, 1).unwrap(), "for 2 pods: 2 started, 1 ready");
        assert_eq!(counts(3, 2, 2).unwrap(), "for 1 pods of the version before to end");
        let unseen = deployment(
            4,
            &json!({ "observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2 }),
        );
        assert_eq!(lacking(&unseen).unwrap(), "for the cluster to take the Deployment up");
    }

    #[test]
    fn a_pod_says_what_it_hangs_on() {
        let pod = |status: serde_json::Value| {
            serde_json::from_value::<Pod>(json!({ "metadata": { "name": "p", "namespace": "n" }, "status": status }))
                .unwrap()
        };
        let waiting = json!({ "waiting": { "reason": "ImagePullBackOff", "message": "no such image" } });
        let container = json!({ "name": "operator", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": waiting });
        assert_eq!(why_not_ready(&pod(json!({ "containerStatuses": [container] }))), "ImagePullBackOff: no such image");
        let unscheduled =
            json!({ "conditions": [{ "type": "PodScheduled", "status": "False", "message": "0/1 nodes" }] });
        assert_eq!(why_not_ready(&pod(unscheduled)), "0/1 nodes");
        assert_eq!(why_not_ready(&pod(json!({}))), "it is not ready; kubectl logs -n n p");
    }
}
