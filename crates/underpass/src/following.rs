//! A client that follows its kubeconfig: an embedded API server that starts again listens on another port and writes a new one.
//!
//! Whenever the server does not answer, or does not know the credentials, the file is read again; if it says something else, the next
//! request goes there. The failed request fails: who made it knows whether to repeat it, and controllers repeat everything.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use http::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use tracing::info;
use underpass_operator::Answer;

use crate::server::{self, Server};

pub(crate) async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let server = server::from_file(kubeconfig).await?;
    let namespace = server.client.default_namespace().to_owned();
    let following = Arc::new(Following { path: kubeconfig.to_owned(), server: Mutex::new(Arc::new(server)) });
    Ok(Client::new(
        tower::service_fn(move |request| {
            let following = Arc::clone(&following);
            async move { following.send(request).await }
        }),
        namespace,
    ))
}

struct Following {
    path: PathBuf,
    server: Mutex<Arc<Server>>,
}

/// No source: whoever looks for the deepest cause shall find the address with it.
#[derive(Debug, thiserror::Error)]
#[error("{url} does not answer: {why}")]
struct Unanswered {
    url: String,
    why: Answer,
}

impl Following {
    async fn send(&self, request: Request<Body>) -> Result<Response<Body>, Unanswered> {
        let server = Arc::clone(&self.server.lock().unwrap_or_else(PoisonError::into_inner));
        let answer = server.client.send(request).await;
        if answer.as_ref().map_or(true, |response| response.status() == StatusCode::UNAUTHORIZED) {
            self.look_again(&server).await;
        }
        answer.map_err(|error| Unanswered { url: server.url.clone(), why: error.into() })
    }

    async fn look_again(&self, failed: &Arc<Server>) {
        // Gone or half written: what was there may be right again in a moment.
        let Ok(found) = server::from_file(&self.path).await else { return };
        if found.text == failed.text {
            return;
        }
        let (kubeconfig, before, now) = (self.path.display(), failed.url.clone(), found.url.clone());
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&server, failed) {
            *server = Arc::new(found);
            drop(server);
            info!("the API server has moved from {before} to {now}, says {kubeconfig}");
        }
    }
}
