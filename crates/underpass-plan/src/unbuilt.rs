//! Kinds that are stored and checked, but whose crossing is not built: because this version cannot, or because it takes a machine with a
//! container engine and the controllers run without one.
//!
//! They share one plan, which says exactly that. It touches nothing but the `Ready` condition and takes no finalizer, so that the
//! objects can be deleted freely and a later version finds them as their author left them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use underpass_resources::conditions::{self, READY};

use crate::plan::{Plan, Subject};
use crate::ready::Ready;

/// What it would take to build an object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Lacking {
    /// A version that can.
    #[default]
    Controller,
    /// A cluster, whose nodes run pods.
    Cluster,
    /// Controllers on a machine that has one. They may run beside those that ask here, and know better.
    ContainerEngine,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Observed {
    pub object: Object,
    #[serde(default)]
    pub lacking: Lacking,
    pub now: Timestamp,
}

/// As much of an object of any of our kinds as this plan looks at.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Object {
    pub api_version: String,
    pub kind: String,
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub status: Status,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    pub observed_generation: Option<i64>,
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

pub fn plan(observed: &Observed) -> Plan {
    let object = &observed.object;
    let subject = Subject::new(&object.api_version, &object.kind, &object.metadata);
    if object.metadata.deletion_timestamp.is_some() {
        return Plan::nothing(subject, leaving(observed.lacking));
    }
    let generation = object.metadata.generation;
    let mut conditions = object.status.conditions.clone();
    conditions.retain(|condition| condition.type_ == READY);
    let stored = conditions.clone();
    if let Some(others) = looked_after_by(observed.lacking, &stored, generation) {
        return Plan::nothing(subject, others);
    }
    let event =
        Ready::no(reason(observed.lacking), message(observed)).record(&mut conditions, generation, observed.now);
    if conditions == stored && object.status.observed_generation == generation {
        return Plan::nothing(subject, "its status already says why it is not built");
    }
    Plan {
        status: Some(json!({ "observedGeneration": generation, "conditions": conditions })),
        events: event.into_iter().collect(),
        ..Plan::nothing(subject, because(observed))
    }
}

fn leaving(lacking: Lacking) -> &'static str {
    match lacking {
        Lacking::Controller | Lacking::Cluster => "it is being deleted, and nothing was ever made for it",
        Lacking::ContainerEngine => {
            "it is being deleted; what was made for it is removed by the controllers that made it"
        }
    }
}

/// Others who can build it, and have said something about it. An operator takes a moment to say something about a new generation; controllers on a
/// machine that are gone say nothing any more.
fn looked_after_by(lacking: Lacking, stored: &[Condition], generation: Option<i64>) -> Option<&'static str> {
    let said = conditions::find(stored, READY)?;
    let by_us = |lacking: &Lacking| said.reason == reason(*lacking);
    match lacking {
        Lacking::Controller => None,
        Lacking::Cluster => {
            let nobody = [Lacking::Controller, Lacking::Cluster, Lacking::ContainerEngine].iter().any(by_us);
            (!nobody).then_some("an operator looks after it")
        }
        Lacking::ContainerEngine => (!by_us(&lacking) && said.observed_generation == generation)
            .then_some("controllers on a machine with a container engine look after it"),
    }
}

fn reason(lacking: Lacking) -> &'static str {
    match lacking {
        Lacking::Controller => "NotInThisVersion",
        Lacking::Cluster => "NeedsCluster",
        Lacking::ContainerEngine => "NeedsContainerEngine",
    }
}

fn because(observed: &Observed) -> String {
    let kind = with_article(&observed.object.kind);
    match observed.lacking {
        Lacking::Controller => format!("this version has no controller that builds {kind}"),
        Lacking::Cluster => format!("{kind} is built on a Kubernetes cluster, and this is none"),
        Lacking::ContainerEngine => format!("{kind} is built on a machine with a container engine, and this is none"),
    }
}

fn message(observed: &Observed) -> String {
    let kind = with_article(&observed.object.kind);
    match observed.lacking {
        Lacking::Controller => format!(
            "this version of underpass stores and checks {kind} but does not build its crossing yet; \
             nothing was done for this object, and a version that can will find it here"
        ),
        Lacking::Cluster => format!(
            "{kind} is carried by pods, and no node runs pods here: nothing was done for this object; on a cluster the operator builds it \
             (`underpass install`), and `underpass proxy --proxy-name {}` carries it on this machine",
            observed.object.metadata.name.as_deref().unwrap_or_default()
        ),
        Lacking::ContainerEngine => format!(
            "the operator on this cluster has no container engine, which {kind} needs: nothing was done for this object; \
             `underpass controllers` on a machine that has Podman or Docker, with a kubeconfig of this cluster, builds it there"
        ),
    }
}

fn with_article(kind: &str) -> String {
    let article = if kind.starts_with(['A', 'E', 'I', 'O', 'U']) { "an" } else { "a" };
    format!("{article} {kind}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_spoken_of_as_people_do() {
        for (kind, said) in [("Infra", "an Infra"), ("EgressGateway", "an EgressGateway"), ("DNSServer", "a DNSServer")]
        {
            assert_eq!(with_article(kind), said);
        }
    }
}
