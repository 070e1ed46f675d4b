//! The socket of an engine that this machine does not have: what it answers is the test's.

use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use underpass_engines::labels::Maker;
use underpass_engines::{Candidate, LocalEngine};

pub(crate) struct FakeEngine {
    folder: TempDir,
    serving: JoinHandle<()>,
}

impl FakeEngine {
    /// Status and body for a path with its query; `None` leaves the question open for ever.
    pub(crate) fn start(answer: impl Fn(&str) -> Option<(u16, Value)> + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("engine.sock")).unwrap();
        let answer = Arc::new(answer);
        let serving = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let answer = Arc::clone(&answer);
                tokio::spawn(async move { serve(stream, &*answer).await });
            }
        });
        Self { folder, serving }
    }

    pub(crate) fn engine(&self) -> LocalEngine {
        let address = format!("unix://{}/engine.sock", self.folder.path().display());
        LocalEngine::new(vec![Candidate::new("test", address)], None, Maker::this_process("x").unwrap())
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// One question without a body, one answer.
async fn serve(mut stream: UnixStream, answer: &(dyn Fn(&str) -> Option<(u16, Value)> + Send + Sync)) {
    let mut question = Vec::new();
    while !question.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut question).await.unwrap_or_default() == 0 {
            return;
        }
    }
    let question = String::from_utf8_lossy(&question);
    let path = question.split(' ').nth(1).unwrap_or_default();
    let Some((status, body)) = answer(path) else { return std::future::pending().await };
    let body = body.to_string();
    let head = format!("HTTP/1.1 {status} -\r\nConnection: close\r\nContent-Type: application/json\r\n");
    let said = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    // Whoever does not listen any more has asked for something else by now.
    let _ = stream.write_all(said.as_bytes()).await;
}
