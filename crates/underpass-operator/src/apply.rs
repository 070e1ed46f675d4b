//! The one writer: carries a plan out, step by step, without choices.
//!
//! Every write to the API is a server-side apply by the same field manager, bound to the uid that was observed: a plan for an object
//! that was deleted and made again meets a conflict instead of the new object, and applying to a name that is gone creates nothing.

use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::response::Status;
use kube::{Api, Client};
use serde_json::{Value, json};
use tracing::{info, warn};
use underpass_plan::{Action, Event, Finalizer, Plan, Severity, Subject};

use crate::act::{ActionError, Outcome, Outside, remove_endpoints};
use crate::answer::Answer;
use crate::events::Recorder;
use crate::kinds;
use crate::metrics::{Metrics, WriteTarget};
use crate::objects;

/// Who owns the fields that we write.
pub const FIELD_MANAGER: &str = "underpass";

/// Longer than any healthy API server needs for one write.
const WRITE_DEADLINE: Duration = Duration::from_secs(30);

pub struct Applier {
    client: Client,
    /// `None` where there is no machine to work on.
    outside: Option<Outside>,
    recorder: Recorder,
    metrics: Metrics,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    Done,
    /// The object went away meanwhile; there is nothing left to write to.
    Gone,
}

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("cannot write the {what} of {subject}")]
    Write {
        what: &'static str,
        subject: Box<Subject>,
        #[source]
        source: Answer,
    },
    #[error("the API server did not answer within {} seconds", WRITE_DEADLINE.as_secs())]
    TooSlow,
    #[error("the kind {0} is not one of ours")]
    UnknownKind(String),
    #[error("to {0} needs a machine, and these controllers have none, which is a defect of underpass")]
    NoMachine(String),
    #[error("an action failed")]
    Action(#[source] ActionError),
}

impl ApplyError {
    /// Somebody else wrote first. A later pass, with what is there then, will do.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Write { source, .. } if source.status().is_some_and(Status::is_conflict))
    }

    fn is_gone(&self) -> bool {
        matches!(self, Self::Write { source, .. } if source.status().is_some_and(Status::is_not_found))
    }
}

impl Applier {
    pub fn new(client: Client, outside: Option<Outside>, metrics: Metrics) -> Self {
        Self { recorder: Recorder::new(client.clone()), client, outside, metrics }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Finalizer first, then the status (what was observed), events, actions, and at last the end of the finalizer.
    pub async fn apply(&self, plan: &Plan) -> Result<Applied, ApplyError> {
        match self.carry_out(plan).await {
            Err(error) if error.is_gone() => Ok(Applied::Gone),
            Err(error) => Err(error),
            Ok(()) => Ok(Applied::Done),
        }
    }

    async fn carry_out(&self, plan: &Plan) -> Result<(), ApplyError> {
        let subject = &plan.subject;
        if let Finalizer::Add(name) = plan.finalizer {
            self.write_finalizers(subject, &[name]).await?;
        }
        if let Some(status) = &plan.status {
            self.write_status(subject, status).await?;
        }
        for event in &plan.events {
            self.publish(subject, event).await;
        }
        self.act_on_all(plan).await?;
        if let Finalizer::Remove(_) = plan.finalizer {
            self.write_finalizers(subject, &[]).await?;
        }
        Ok(())
    }

    /// Applies the whole set of finalizers that we own; those of others are not touched.
    async fn write_finalizers(&self, subject: &Subject, finalizers: &[&str]) -> Result<(), ApplyError> {
        let mut body = skeleton(subject);
        if !finalizers.is_empty() {
            body["metadata"]["finalizers"] = json!(finalizers);
        }
        let api = self.api(subject)?;
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(&body);
        let write = api.patch(&subject.name, &params, &patch);
        let outcome = within_deadline("finalizers", subject, write).await;
        self.metrics.wrote(WriteTarget::Finalizer, &outcome);
        outcome
    }

    async fn write_status(&self, subject: &Subject, status: &Value) -> Result<(), ApplyError> {
        let mut body = skeleton(subject);
        body["status"] = status.clone();
        let api = self.api(subject)?;
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(&body);
        let write = api.patch_status(&subject.name, &params, &patch);
        let outcome = within_deadline("status", subject, write).await;
        self.metrics.wrote(WriteTarget::Status, &outcome);
        outcome
    }

    /// An event that cannot be stored is lost and counted: it must not hold up the work that it tells of.
    async fn publish(&self, subject: &Subject, event: &Event) {
        match event.severity {
            Severity::Normal => info!(reason = event.reason, "{}", event.note),
            Severity::Warning => warn!(reason = event.reason, "{}", event.note),
        }
        let outcome = self.recorder.publish(subject, event, Timestamp::now()).await;
        self.metrics.wrote(WriteTarget::Event, &outcome);
        if let Err(error) = outcome {
            warn!(reason = event.reason, error = %Answer::from(error), "event lost");
        }
    }

    /// In their order, but of tunnels that are prepared none waits for another. One that fails, or is refused, stops only those that build on
    /// it; the first failure is told.
    async fn act_on_all(&self, plan: &Plan) -> Result<(), ApplyError> {
        let prepares = |action: &Action| matches!(action, Action::PrepareTunnel(_));
        let mut undone: Vec<&Action> = Vec::new();
        let mut first = Ok(());
        for together in plan.actions.chunk_by(|one, next| prepares(one) && prepares(next)) {
            let (left, begun): (Vec<_>, Vec<_>) =
                together.iter().partition(|action| undone.iter().any(|undone| action.builds_on(undone)));
            undone.extend(left);
            let acted = begun.iter().map(|action| self.act(&plan.subject, action));
            for (action, outcome) in begun.iter().zip(join_all(acted).await) {
                match outcome {
                    Ok(Outcome::Done) => continue,
                    Ok(Outcome::Refused(_)) => {}
                    Err(error) => first = first.and(Err(error)),
                }
                undone.push(action);
            }
        }
        first
    }

    async fn act(&self, subject: &Subject, action: &Action) -> Result<Outcome, ApplyError> {
        let outcome = match (&self.outside, action) {
            (Some(outside), _) => outside.act(&self.client, subject, action).await,
            (None, Action::RemoveEndpoints { namespace, name }) => {
                remove_endpoints(&self.client, namespace, name).await.map(|()| Outcome::Done)
            }
            (None, Action::ApplyObject { .. } | Action::DeleteObject { .. } | Action::ForgetReport { .. }) => {
                objects::act(&self.client, subject, action).await.map(|()| Outcome::Done)
            }
            (None, _) => return Err(ApplyError::NoMachine(action.to_string())),
        };
        let target = if objects::concerns(action) { WriteTarget::Object } else { WriteTarget::Engine };
        self.metrics.wrote(target, &outcome);
        let refusal = outcome.as_ref().ok().and_then(Outcome::refusal);
        let succeeded = outcome.is_ok() && refusal.is_none();
        info!(%subject, %action, succeeded, refusal, "acted");
        outcome.map_err(ApplyError::Action)
    }

    fn api(&self, subject: &Subject) -> Result<Api<DynamicObject>, ApplyError> {
        let kind =
            underpass_resources::kind(&subject.kind).ok_or_else(|| ApplyError::UnknownKind(subject.kind.clone()))?;
        Ok(kinds::api(&self.client, kind, subject.namespace.as_deref()))
    }
}

async fn within_deadline(
    what: &'static str,
    subject: &Subject,
    write: impl Future<Output = kube::Result<DynamicObject>>,
) -> Result<(), ApplyError> {
    match tokio::time::timeout(WRITE_DEADLINE, write).await {
        Err(_) => Err(ApplyError::TooSlow),
        Ok(Ok(_)) => Ok(()),
        Ok(Err(source)) => Err(ApplyError::Write { what, subject: Box::new(subject.clone()), source: source.into() }),
    }
}

fn skeleton(subject: &Subject) -> Value {
    let mut metadata = json!({ "name": subject.name, "uid": subject.uid });
    if let Some(namespace) = &subject.namespace {
        metadata["namespace"] = json!(namespace);
    }
    json!({ "apiVersion": subject.api_version, "kind": subject.kind, "metadata": metadata })
}
