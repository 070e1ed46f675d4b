//! The way out: our objects, deleted stage by stage in dependency order, each waited for until its finalizers are done.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kube::api::{DeleteParams, DynamicObject, ListParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt};
use tokio::time::Instant;
use underpass_resources::{KINDS, Kind};

use crate::answer::Answer;
use crate::kinds;
use crate::reconcile::Key;

/// Something that happened on the way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    Deleting { kind: &'static str, key: Key },
    Deleted { kind: &'static str, key: Key },
}

/// An object that was still there when the time was over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    pub kind: &'static str,
    pub key: Key,
    /// What holds it back.
    pub finalizers: Vec<String>,
    /// What its `Ready` condition says.
    pub message: String,
}

#[derive(Debug, thiserror::Error)]
pub enum TeardownError {
    #[error("cannot list {0}")]
    List(&'static str, #[source] Answer),
    #[error("cannot delete {0} {1}")]
    Delete(&'static str, Key, #[source] Answer),
    #[error("cannot watch {0} {1} go")]
    Wait(&'static str, Key, #[source] Box<kube::runtime::wait::Error>),
}

/// Deletes every object of our kinds, a stage when the one before is gone. Returns what was left when `patience` was over: later stages
/// are then not touched, because what is left may still need them.
pub async fn teardown(
    client: &Client,
    patience: Duration,
    mut progress: impl FnMut(Progress),
) -> Result<Vec<Left>, TeardownError> {
    let deadline = Instant::now() + patience;
    for stage in stages() {
        let emptied = tokio::time::timeout_at(deadline, empty(client, &stage, &mut progress)).await;
        match emptied {
            Ok(done) => done?,
            Err(_) => return left(client).await,
        }
    }
    Ok(Vec::new())
}

/// Kinds that can go at the same time, in the order in which they can. A kind's stage is one after the last that it waits for; the
/// table lists those first.
fn stages() -> Vec<Vec<&'static Kind>> {
    let mut stages: Vec<Vec<&'static Kind>> = Vec::new();
    for kind in KINDS {
        let waits_for = |stage: &Vec<&Kind>| stage.iter().any(|earlier| kind.deleted_after.contains(&earlier.kind));
        let number = stages.iter().rposition(waits_for).map_or(0, |last| last + 1);
        if number == stages.len() {
            stages.push(Vec::new());
        }
        stages[number].push(kind);
    }
    stages
}

/// Until a look finds nothing: somebody may have made a new object while the old ones went.
async fn empty(
    client: &Client,
    stage: &[&'static Kind],
    progress: &mut impl FnMut(Progress),
) -> Result<(), TeardownError> {
    loop {
        let objects = list(client, stage).await?;
        if objects.is_empty() {
            return Ok(());
        }
        for (kind, object) in &objects {
            delete(client, kind, object).await?;
            progress(Progress::Deleting { kind: kind.kind, key: key(object) });
        }
        let mut going: FuturesUnordered<_> = objects.iter().map(|(kind, object)| gone(client, kind, object)).collect();
        while let Some((kind, key)) = going.next().await.transpose()? {
            progress(Progress::Deleted { kind, key });
        }
    }
}

async fn list(client: &Client, stage: &[&'static Kind]) -> Result<Vec<(&'static Kind, DynamicObject)>, TeardownError> {
    let mut objects = Vec::new();
    for &kind in stage {
        match kinds::api(client, kind, None).list(&ListParams::default()).await {
            Ok(page) => objects.extend(page.items.into_iter().map(|object| (kind, object))),
            // The CRD is gone, and its objects with it.
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(TeardownError::List(kind.plural, error.into())),
        }
    }
    Ok(objects)
}

async fn delete(client: &Client, kind: &'static Kind, object: &DynamicObject) -> Result<(), TeardownError> {
    let api = kinds::api(client, kind, object.namespace().as_deref());
    match api.delete(&object.name_any(), &DeleteParams::background()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(TeardownError::Delete(kind.kind, key(object), error.into())),
    }
}

async fn gone(
    client: &Client,
    kind: &'static Kind,
    object: &DynamicObject,
) -> Result<(&'static str, Key), TeardownError> {
    let api = kinds::api(client, kind, object.namespace().as_deref());
    let uid = object.uid().unwrap_or_default();
    await_condition(api, &object.name_any(), conditions::is_deleted(&uid))
        .await
        .map_err(|error| TeardownError::Wait(kind.kind, key(object), Box::new(error)))?;
    Ok((kind.kind, key(object)))
}

async fn left(client: &Client) -> Result<Vec<Left>, TeardownError> {
    let all: Vec<&'static Kind> = KINDS.iter().collect();
    let objects = list(client, &all).await?;
    Ok(objects.into_iter().map(|(kind, object)| describe(kind, &object)).collect())
}

fn describe(kind: &'static Kind, object: &DynamicObject) -> Left {
    let conditions = object.data["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready");
    Left {
        kind: kind.kind,
        key: key(object),
        finalizers: object.finalizers().to_vec(),
        message: ready.and_then(|ready| ready["message"].as_str()).unwrap_or_default().to_owned(),
    }
}

fn key(object: &DynamicObject) -> Key {
    Key { namespace: object.namespace(), name: object.name_any() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_goes_after_all_that_stand_on_it() {
        let stages = stages();
        assert_eq!(stages.iter().map(Vec::len).sum::<usize>(), KINDS.len());
        let stage_of = |name: &str| stages.iter().position(|stage| stage.iter().any(|kind| kind.kind == name)).unwrap();
        for kind in KINDS {
            for earlier in kind.deleted_after {
                assert!(stage_of(earlier) < stage_of(kind.kind), "{earlier} before {}", kind.kind);
            }
        }
        assert!(stages.len() > 1);
    }
}
