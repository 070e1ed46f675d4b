//! The way out: our objects, deleted in dependency order, each waited for until its finalizers are done. By looking again and again: a watch for
//! each object is a connection for each, and of those a process has a thousand.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{DeleteParams, DynamicObject, ListParams};
use kube::{Client, ResourceExt};
use tokio::time::{Instant, sleep};
use underpass_resources::{KINDS, Kind};

use crate::answer::Answer;
use crate::kinds;
use crate::reach::is_not_served;
use crate::reconcile::Key;

/// Whoever watches wonders after two seconds what it hangs on; said before, and then from time to time.
const FIRST_EXPLANATION: Duration = Duration::from_millis(1500);
const NEXT_EXPLANATION: Duration = Duration::from_secs(10);
/// Between two looks; more where a look itself takes long.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const TIMES_A_LOOK: u32 = 2;
/// Requests under way at once.
const DELETED_AT_ONCE: usize = 16;

/// Something that happened on the way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    Deleting {
        kind: &'static str,
        key: Key,
    },
    Deleted {
        kind: &'static str,
        key: Key,
    },
    /// Nothing was heard of these for a while.
    Waiting(Vec<Left>),
}

/// An object that is still there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    pub kind: &'static str,
    pub key: Key,
    pub held: Held,
}

/// Why an object is still there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// Nobody has asked it to go: objects of these kinds have to go first.
    Behind(Vec<&'static str>),
    /// It is asked to go, and waits for whoever takes these away.
    By(Vec<FinalizerHeld>),
    /// It is asked to go, and nothing holds it.
    ByNothing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinalizerHeld {
    pub name: String,
    /// Who wrote it, by the name in managedFields.
    pub set_by: Option<String>,
    /// For a finalizer of our controllers: what they say of the object, which may be nothing.
    pub ours: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum TeardownError {
    #[error("cannot list {0}")]
    List(&'static str, #[source] Answer),
    #[error("cannot delete {0} {1}")]
    Delete(&'static str, Key, #[source] Answer),
}

type Objects = Vec<(&'static Kind, DynamicObject)>;

/// Deletes every object of our kinds, each when nothing is left that stands on its kind. Returns what was left when `patience` was
/// over.
pub async fn teardown(
    client: &Client,
    patience: Duration,
    mut progress: impl FnMut(Progress),
) -> Result<Vec<Left>, TeardownError> {
    match tokio::time::timeout(patience, empty(client, &mut progress)).await {
        Ok(done) => done.map(|()| Vec::new()),
        Err(_) => Ok(left(&list(client).await?)),
    }
}

/// Objects that are asked to go and not known to be gone, by uid.
type Asked = BTreeMap<String, (&'static str, Key)>;

/// Until a look finds nothing: somebody may have made a new object while the old ones went.
async fn empty(client: &Client, progress: &mut impl FnMut(Progress)) -> Result<(), TeardownError> {
    let mut explanation = Instant::now() + FIRST_EXPLANATION;
    let mut asked = Asked::new();
    loop {
        let begun = Instant::now();
        let objects = list(client).await?;
        // What is asked to go next comes after these lines.
        let there: BTreeSet<String> = objects.iter().map(|(_, object)| uid(object)).collect();
        for (_, (kind, key)) in asked.extract_if(.., |uid, _| !there.contains(uid)) {
            progress(Progress::Deleted { kind, key });
        }
        if objects.is_empty() {
            return Ok(());
        }
        let before_others = objects.iter().filter(|(kind, _)| stands_in_front(kind, &objects).is_empty());
        let next: Vec<_> = before_others.filter(|(_, object)| !asked.contains_key(&uid(object))).collect();
        let mut deleted =
            stream::iter(next).map(|(kind, object)| delete(client, kind, object)).buffer_unordered(DELETED_AT_ONCE);
        while let Some((kind, object)) = deleted.try_next().await? {
            asked.insert(uid(object), (kind.kind, key(object)));
            progress(Progress::Deleting { kind: kind.kind, key: key(object) });
        }
        if Instant::now() >= explanation {
            progress(Progress::Waiting(left(&objects)));
            explanation = Instant::now() + NEXT_EXPLANATION;
        }
        sleep((begun.elapsed() * TIMES_A_LOOK).max(LOOK_AGAIN)).await;
    }
}

/// Kinds of which there are objects, and which go before this one.
fn stands_in_front(kind: &Kind, objects: &Objects) -> Vec<&'static str> {
    let there = |name: &&str| objects.iter().any(|(other, _)| other.kind == *name);
    kind.deleted_after.iter().copied().filter(there).collect()
}

async fn list(client: &Client) -> Result<Objects, TeardownError> {
    let mut objects = Vec::new();
    for kind in KINDS {
        match kinds::api(client, kind, None).list(&ListParams::default()).await {
            Ok(page) => objects.extend(page.items.into_iter().map(|object| (kind, object))),
            // The CRD is gone, and its objects with it.
            Err(error) if is_not_served(&error) => {}
            Err(error) => return Err(TeardownError::List(kind.plural, error.into())),
        }
    }
    Ok(objects)
}

/// Gives it back once it is asked to go.
async fn delete<'a>(
    client: &Client,
    kind: &'static Kind,
    object: &'a DynamicObject,
) -> Result<(&'static Kind, &'a DynamicObject), TeardownError> {
    let api = kinds::api(client, kind, object.namespace().as_deref());
    match api.delete(&object.name_any(), &DeleteParams::background()).await {
        Ok(_) => Ok((kind, object)),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok((kind, object)),
        Err(error) => Err(TeardownError::Delete(kind.kind, key(object), error.into())),
    }
}

fn left(objects: &Objects) -> Vec<Left> {
    let left = |(kind, object): &(&'static Kind, DynamicObject)| Left {
        kind: kind.kind,
        key: key(object),
        held: held(kind, object, objects),
    };
    objects.iter().map(left).collect()
}

fn held(kind: &Kind, object: &DynamicObject, objects: &Objects) -> Held {
    if object.metadata.deletion_timestamp.is_none() {
        return Held::Behind(stands_in_front(kind, objects));
    }
    match object.finalizers() {
        [] => Held::ByNothing,
        names => Held::By(names.iter().map(|name| finalizer(name, object)).collect()),
    }
}

fn finalizer(name: &str, object: &DynamicObject) -> FinalizerHeld {
    let ours = is_our_finalizer(name).then(|| ready_message(object));
    FinalizerHeld { name: name.to_owned(), set_by: writer(name, object), ours }
}

/// Whether it is for our controllers to take it away.
pub fn is_our_finalizer(name: &str) -> bool {
    let group = name.split('/').next();
    KINDS.iter().any(|kind| Some(kind.group) == group)
}

/// Who owns this entry of the list of finalizers.
fn writer(finalizer: &str, object: &DynamicObject) -> Option<String> {
    let entry = format!("v:{}", serde_json::Value::from(finalizer));
    let owns = |fields: &serde_json::Value| !fields["f:metadata"]["f:finalizers"][&entry].is_null();
    let writes =
        object.managed_fields().iter().find(|writes| writes.fields_v1.as_ref().is_some_and(|fields| owns(&fields.0)));
    writes.and_then(|writes| writes.manager.clone())
}

fn ready_message(object: &DynamicObject) -> String {
    let conditions = object.data["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready");
    ready.and_then(|ready| ready["message"].as_str()).unwrap_or_default().to_owned()
}

fn uid(object: &DynamicObject) -> String {
    object.uid().unwrap_or_default()
}

fn key(object: &DynamicObject) -> Key {
    Key { namespace: object.namespace(), name: object.name_any() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(kind: &'static str, metadata: &serde_json::Value) -> (&'static Kind, DynamicObject) {
        let kind = underpass_resources::kind(kind).unwrap();
        let mut object = json!({
            "apiVersion": kind.api_version(), "kind": kind.kind, "metadata": metadata,
            "status": { "conditions": [{ "type": "Ready", "message": "as it should be" }] }
        });
        object["metadata"]["name"] = "x".into();
        (kind, serde_json::from_value(object).unwrap())
    }

    #[test]
    fn what_is_not_asked_to_go_waits_for_other_kinds_and_has_no_finalizer_to_blame() {
        let infra = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/hold"] });
        let objects = vec![object("Infra", &infra), object("ProxyServer", &json!({ "finalizers": ["a.b/c"] }))];
        let held: Vec<Held> = left(&objects).into_iter().map(|left| left.held).collect();
        let foreign = FinalizerHeld { name: "example.com/hold".into(), set_by: None, ours: None };
        assert_eq!(held, [Held::By(vec![foreign]), Held::Behind(vec!["Infra"])]);
    }

    #[test]
    fn a_finalizer_is_told_with_its_writer_and_ours_with_what_the_controllers_say() {
        let fields = json!({ "f:metadata": { "f:finalizers": { ".": {}, "v:\"underpass.dev/network\"": {} } } });
        let managed =
            json!([{ "manager": "underpass", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": fields }]);
        let metadata = json!({
            "deletionTimestamp": "2026-01-01T00:00:00Z", "managedFields": managed, "finalizers": ["underpass.dev/network"]
        });
        let ours = FinalizerHeld {
            name: "underpass.dev/network".into(),
            set_by: Some("underpass".into()),
            ours: Some("as it should be".into()),
        };
        assert_eq!(left(&vec![object("ContainerNetwork", &metadata)])[0].held, Held::By(vec![ours]));
    }

    #[test]
    fn a_kind_goes_as_soon_as_nothing_stands_on_it() {
        let objects = vec![object("InterceptRequest", &json!({})), object("ContainerNetwork", &json!({}))];
        assert_eq!(stands_in_front(objects[1].0, &objects), Vec::<&str>::new());
        let workstation = underpass_resources::kind("Workstation").unwrap();
        assert_eq!(stands_in_front(workstation, &objects), ["InterceptRequest"]);
    }
}
