//! Events: what happened to an object, once for each thing that is said, with how often and when last.
//!
//! They are written as core/v1 with `firstTimestamp`, `lastTimestamp` and `count`: `kubectl get events --sort-by=.lastTimestamp` and
//! `kubectl describe` go by these. The recorder of kube-rs writes events.k8s.io/v1, whose events have neither and sort before all others,
//! and it takes two events with one reason for the same, whatever they say.
//!
//! A start takes less than a second, and is told in several events. So `eventTime`, and `series` of those that came again, say when to the
//! microsecond, and `lastTimestamp` does, too: a Kubernetes cuts that to the second, the embedded server keeps it.
//!
//! The name of an event follows from the object and from what is said. So the next process goes on counting where this one ended, and
//! nothing has to be remembered.

use k8s_openapi::api::core::v1::{Event as CoreEvent, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use sha2::{Digest, Sha256};
use underpass_plan::{Event, Severity, Subject};

use crate::apply::FIELD_MANAGER;
use crate::host::host;

/// Who says it.
const REPORTER: &str = "underpass.dev/controllers";
/// What the reporter was doing: an event with an `eventTime` has to say it.
const ACTION: &str = "Reconcile";
/// Where events about objects without a namespace are: Kubernetes knows no other place for them.
const CLUSTER_EVENTS: &str = "default";
/// How often another writer may come between looking and writing.
const ATTEMPTS: usize = 3;
const LONGEST_NAME: usize = 253;
/// The API refuses a longer note in the newer group, and nobody reads one.
const LONGEST_NOTE: usize = 1024;
/// Where the middle was.
const CUT: &str = " … ";

#[derive(Clone)]
pub(crate) struct Recorder {
    client: Client,
    host: String,
}

impl Recorder {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, host: host() }
    }

    pub(crate) async fn publish(&self, subject: &Subject, event: &Event, now: Timestamp) -> kube::Result<()> {
        let new = describe(subject, event, &self.host, now);
        let namespace = new.metadata.namespace.as_deref().unwrap_or(CLUSTER_EVENTS);
        let resource = ApiResource::erase::<CoreEvent>(&());
        let api = Api::namespaced_with(self.client.clone(), namespace, &resource);
        let mut attempt = 1;
        loop {
            match write(&api, &new).await {
                Err(kube::Error::Api(status)) if attempt < ATTEMPTS && (status.code == 409 || status.code == 404) => {
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }
}

/// Counts it once more, or makes it.
async fn write(api: &Api<DynamicObject>, new: &CoreEvent) -> kube::Result<()> {
    let name = new.metadata.name.as_deref().unwrap_or_default();
    match api.get_opt(name).await? {
        Some(known) => {
            let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            api.patch(name, &params, &Patch::Merge(again(&known, new))).await.map(drop)
        }
        None => {
            let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
            api.create(&params, &to_the_microsecond(new)?).await.map(drop)
        }
    }
}

/// As it is sent.
fn to_the_microsecond(new: &CoreEvent) -> kube::Result<DynamicObject> {
    let mut sent = serde_json::to_value(new).map_err(kube::Error::SerdeError)?;
    sent["lastTimestamp"] = json!(new.event_time);
    serde_json::from_value(sent).map_err(kube::Error::SerdeError)
}

/// Bound to what was seen: of two writers none may be forgotten in the count.
fn again(known: &DynamicObject, new: &CoreEvent) -> serde_json::Value {
    let count = known.data["count"].as_i64().unwrap_or(1).saturating_add(1);
    json!({
        "metadata": { "resourceVersion": known.metadata.resource_version },
        "count": count,
        "lastTimestamp": new.event_time,
        "series": { "count": count, "lastObservedTime": new.event_time },
    })
}

fn describe(subject: &Subject, event: &Event, host: &str, now: Timestamp) -> CoreEvent {
    let severity = match event.severity {
        Severity::Normal => "Normal",
        Severity::Warning => "Warning",
    };
    CoreEvent {
        metadata: ObjectMeta {
            name: Some(name(subject, severity, event)),
            namespace: Some(subject.namespace.clone().unwrap_or_else(|| CLUSTER_EVENTS.to_owned())),
            ..ObjectMeta::default()
        },
        involved_object: reference(subject),
        type_: Some(severity.to_owned()),
        reason: Some(event.reason.to_owned()),
        message: Some(shortened(&event.note)),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        source: Some(EventSource { component: Some(REPORTER.to_owned()), host: None }),
        event_time: Some(MicroTime(now)),
        action: Some(ACTION.to_owned()),
        reporting_component: Some(REPORTER.to_owned()),
        reporting_instance: Some(host.to_owned()),
        ..CoreEvent::default()
    }
}

/// Equal for equal things said of one life of an object, and for nothing else.
fn name(subject: &Subject, severity: &str, event: &Event) -> String {
    let said = Sha256::digest([subject.uid.as_str(), severity, event.reason, &event.note].join("\0"));
    let said: String = said.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let room = LONGEST_NAME - said.len() - 1;
    format!("{}.{said}", subject.name.get(..room).unwrap_or(&subject.name))
}

fn reference(subject: &Subject) -> ObjectReference {
    ObjectReference {
        api_version: Some(subject.api_version.clone()),
        kind: Some(subject.kind.clone()),
        namespace: subject.namespace.clone(),
        name: Some(subject.name.clone()),
        uid: Some(subject.uid.clone()),
        ..ObjectReference::default()
    }
}

/// Without its middle: the beginning says what it is about, and the last words of whatever failed say why.
fn shortened(note: &str) -> String {
    if note.len() <= LONGEST_NOTE {
        return note.to_owned();
    }
    let half = (LONGEST_NOTE - CUT.len()) / 2;
    let (beginning, end) = (note.floor_char_boundary(half), note.ceil_char_boundary(note.len() - half));
    format!("{}{CUT}{}", &note[..beginning], &note[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(uid: &str) -> Subject {
        Subject {
            api_version: "underpass.dev/v1alpha1".to_owned(),
            kind: "ContainerNetwork".to_owned(),
            namespace: None,
            name: "dev".to_owned(),
            uid: uid.to_owned(),
            resource_version: "1".to_owned(),
        }
    }

    fn told(subject: &Subject, note: &str, now: Timestamp) -> CoreEvent {
        describe(subject, &Event { severity: Severity::Warning, reason: "Failed", note: note.to_owned() }, "host", now)
    }

    #[test]
    fn a_long_note_is_cut_between_characters() {
        assert_eq!(shortened("short"), "short");
        let long = shortened(&format!("the build failed:{}no space left", "ö".repeat(1000)));
        assert!(long.len() <= 1024 && long.contains(" … "), "{}", long.len());
        assert!(long.starts_with("the build failed:ö") && long.ends_with("öno space left"), "{long}");
    }

    #[test]
    fn the_name_stands_for_what_is_said_of_whom() {
        let name = |uid: &str, note: &str| told(&subject(uid), note, Timestamp::UNIX_EPOCH).metadata.name;
        assert_eq!(name("a", "one"), name("a", "one"));
        assert_ne!(name("a", "one"), name("a", "two"));
        assert_ne!(name("a", "one"), name("b", "one"), "another life of the same name");
        let long = Subject { name: "n".repeat(LONGEST_NAME), ..subject("a") };
        assert_eq!(told(&long, "one", Timestamp::UNIX_EPOCH).metadata.name.unwrap().len(), LONGEST_NAME);
    }

    #[test]
    fn said_again_it_counts() {
        let (first, later) = (Timestamp::UNIX_EPOCH, Timestamp::from_microsecond(60_000_001).unwrap());
        let mut known = to_the_microsecond(&told(&subject("a"), "one", first)).unwrap();
        for count in [2, 3] {
            let patch = again(&known, &told(&subject("a"), "one", later));
            let time = "1970-01-01T00:01:00.000001Z";
            let series = json!({ "count": count, "lastObservedTime": time });
            assert_eq!(
                (&patch["count"], &patch["lastTimestamp"], &patch["series"]),
                (&json!(count), &json!(time), &series)
            );
            known.data["count"] = patch["count"].clone();
        }
    }

    #[test]
    fn two_of_one_second_have_an_order() {
        let sent = |micros: i64| {
            to_the_microsecond(&told(&subject("a"), "one", Timestamp::from_microsecond(micros).unwrap())).unwrap().data
        };
        let (first, second) = (sent(1_000_000), sent(1_000_001));
        for field in ["eventTime", "lastTimestamp"] {
            assert!(first[field].as_str().unwrap() < second[field].as_str().unwrap(), "{first:#} {second:#}");
        }
    }
}
