//! What plans do outside of their own object: to the engine, to pairs of proxies, to EndpointSlices.

use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use underpass_engines::{ContainerEngine, EngineError};
use underpass_plan::tunnel_proxy::manifest;
use underpass_plan::{Action, Cause, ClientEndpoints, Place, Subject};

use crate::answer::Answer;
use crate::apply::FIELD_MANAGER;
use crate::images::Images;
use crate::objects;
use crate::pairs::{PairError, Pairs};
use crate::reconcile::Key;

/// All that actions reach.
#[derive(Clone)]
pub struct Outside {
    pub engine: Arc<dyn ContainerEngine>,
    pub images: Arc<Images>,
    pub pairs: Arc<Pairs>,
}

/// What came of an action that could be carried out.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// Somebody said no, or nothing: that is one tunnel's trouble, and the next observation tells of it.
    Refused(String),
}

/// The text reaches the object's status.
#[derive(Debug, thiserror::Error)]
pub enum ActionError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("the container {name} cannot be removed: {source}")]
    Remove { name: String, source: EngineError },
    #[error(transparent)]
    Pair(#[from] PairError),
    #[error("the EndpointSlice {place} cannot be removed: {source}")]
    Endpoints { place: String, source: Answer },
    #[error("{place} cannot be written: {source}")]
    Object { place: Place, source: Answer },
    #[error("{place} cannot be deleted: {source}")]
    Delete { place: Place, source: Answer },
    #[error("what pod {pod} said cannot be taken back: {source}")]
    Report { pod: String, source: Answer },
}

impl Outcome {
    pub(crate) fn no_pair() -> Self {
        Self::Refused("there is no server proxy that could be told".to_owned())
    }

    pub(crate) fn refusal(&self) -> Option<&str> {
        match self {
            Self::Done => None,
            Self::Refused(why) => Some(why),
        }
    }
}

impl ActionError {
    pub fn cause(&self) -> Cause {
        match self {
            Self::Engine(error) => error.cause(),
            Self::Remove { source: EngineError::Unavailable(_), .. } => Cause::NoContainerEngine,
            Self::Remove { .. } => Cause::NotRemoved,
            Self::Pair(error) => error.cause(),
            Self::Object { .. } | Self::Report { .. } => Cause::NotWritten,
            Self::Endpoints { .. } | Self::Delete { .. } => Cause::NotRemoved,
        }
    }
}

impl Outside {
    pub(crate) async fn act(
        &self,
        client: &Client,
        subject: &Subject,
        action: &Action,
    ) -> Result<Outcome, ActionError> {
        let uid = &subject.uid;
        match action {
            Action::CreateNetwork(request) => self.engine.create_network(request).await?,
            Action::RemoveNetwork { id, .. } => self.engine.remove_network(id).await?,
            Action::EnsureImage { base } => self.images.ensure(base.as_deref(), &key(subject)),
            Action::StartClient(request) => {
                let started = self.pairs.start_client(subject, request).await;
                if let Err(PairError::ImageGone(image)) = &started {
                    self.images.forget(image);
                }
                started?;
            }
            Action::StartServer(request) => self.pairs.start_server(subject, request).await?,
            Action::PrepareTunnel(request) => return Ok(self.pairs.prepare(uid, request).await),
            Action::DeleteTunnel { number } => return Ok(self.pairs.delete(uid, *number).await),
            Action::RemoveContainer { id, name } => {
                let removed = self.engine.remove_container(id).await;
                removed.map_err(|source| ActionError::Remove { name: name.clone(), source })?;
            }
            Action::StopServer { pid } => self.pairs.stop_server(uid, *pid).await?,
            Action::RemovePairFolder => self.pairs.remove_folder(uid).await?,
            Action::WriteEndpoints(endpoints) => {
                let refused = write(client, endpoints).await.err();
                self.pairs.note_endpoints(uid, endpoints, refused.clone());
                return Ok(refused.map_or(Outcome::Done, Outcome::Refused));
            }
            Action::RemoveEndpoints { namespace, name } => remove_endpoints(client, namespace, name).await?,
            Action::ApplyObject { .. } | Action::DeleteObject { .. } | Action::ForgetReport { .. } => {
                objects::act(client, subject, action).await?;
            }
        }
        Ok(Outcome::Done)
    }
}

/// An error is why not, as the tunnel's status tells it.
async fn write(client: &Client, endpoints: &ClientEndpoints) -> Result<(), String> {
    let ClientEndpoints { namespace, name, .. } = endpoints;
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let written = slices.patch(name, &params, &Patch::Apply(manifest(endpoints))).await;
    written
        .map(drop)
        .map_err(|source| format!("the EndpointSlice {namespace}/{name} cannot be written: {}", Answer::from(source)))
}

pub(crate) async fn remove_endpoints(client: &Client, namespace: &str, name: &str) -> Result<(), ActionError> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    match slices.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(source) => Err(ActionError::Endpoints { place: format!("{namespace}/{name}"), source: source.into() }),
    }
}

fn key(subject: &Subject) -> Key {
    Key { namespace: subject.namespace.clone(), name: subject.name.clone() }
}
