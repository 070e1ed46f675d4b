//! Kinds that this version stores and checks, but whose crossing it does not build yet.
//!
//! They share one plan, which says exactly that. It touches nothing but the `Ready` condition and takes no finalizer, so that the
//! objects can be deleted freely and a later version finds them as their author left them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use underpass_resources::conditions::READY;

use crate::plan::{Plan, Subject};
use crate::ready::Ready;

pub const REASON: &str = "NotInThisVersion";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Observed {
    pub object: Object,
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
        return Plan::nothing(subject, "it is being deleted, and nothing was ever made for it");
    }
    let generation = object.metadata.generation;
    let mut conditions = object.status.conditions.clone();
    conditions.retain(|condition| condition.type_ == READY);
    let stored = conditions.clone();
    let event = Ready::no(REASON, message(&object.kind)).record(&mut conditions, generation, observed.now);
    if conditions == stored && object.status.observed_generation == generation {
        return Plan::nothing(subject, "its status already says that this version does not build it");
    }
    Plan {
        status: Some(json!({ "observedGeneration": generation, "conditions": conditions })),
        events: event.into_iter().collect(),
        ..Plan::nothing(subject, format!("this version has no controller that builds {}", with_article(&object.kind)))
    }
}

fn message(kind: &str) -> String {
    format!(
        "this version of underpass stores and checks {} but does not build its crossing yet; \
         nothing was done for this object, and a version that can will find it here",
        with_article(kind)
    )
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
            assert!(message(kind).contains(&format!("checks {said} but")), "{}", message(kind));
        }
    }
}
