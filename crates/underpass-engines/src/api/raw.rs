//! A question whose answer is read as it is: bollard's types refuse a whole answer for one word that Docker does not use, and Podman's
//! containers have states of their own. It names no version of the API, as bollard's do not.

use bollard::errors::Error;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::{ASK, Connection};
use crate::engine::EngineError;

impl Connection {
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, EngineError> {
        self.within(ASK, async {
            let (code, body) = match self.place.path() {
                Some(socket) => exchange(UnixStream::connect(socket).await?, path).await?,
                None => exchange(TcpStream::connect(self.place.authority()).await?, path).await?,
            };
            if code == 200 {
                return Ok(serde_json::from_slice(&body)?);
            }
            let words: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
            let message = words["message"].as_str().unwrap_or("it gave no reason").to_owned();
            Err(Error::DockerResponseServerError { status_code: code, message })
        })
        .await
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    path: &str,
) -> Result<(u16, Bytes), Error> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let serving = tokio::spawn(connection);
    let request = hyper::Request::get(path).header("host", "engine").body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await?.to_bytes();
    serving.abort();
    Ok((code, body))
}
