//! Data connections that stand ready for flows of datagrams. Those for streams are in the relay's own stock.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long a flow waits for one.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Shelf {
    state: Mutex<State>,
    wanted: Box<dyn Fn(usize) + Send + Sync>,
}

#[derive(Default)]
struct State {
    idle: VecDeque<TcpStream>,
    waiting: VecDeque<oneshot::Sender<TcpStream>>,
}

impl Shelf {
    /// `wanted` is told how many wait.
    pub(super) fn new(wanted: impl Fn(usize) + Send + Sync + 'static) -> Self {
        Self { state: Mutex::default(), wanted: Box::new(wanted) }
    }

    pub(super) fn put(&self, mut stream: TcpStream) {
        let mut state = self.state.lock();
        while let Some(first) = state.waiting.pop_front() {
            match first.send(stream) {
                Ok(()) => return,
                // That one has given up.
                Err(back) => stream = back,
            }
        }
        state.idle.push_back(stream);
    }

    /// None when there was none for too long.
    pub(super) async fn take(&self) -> Option<TcpStream> {
        let (stream_tx, stream_rx) = oneshot::channel();
        let waiting = {
            let mut state = self.state.lock();
            while let Some(stream) = state.idle.pop_front() {
                if is_open(&stream) {
                    return Some(stream);
                }
            }
            state.waiting.retain(|waiting| !waiting.is_closed());
            state.waiting.push_back(stream_tx);
            state.waiting.len()
        };
        (self.wanted)(waiting);
        timeout(PATIENCE, stream_rx).await.ok()?.ok()
    }
}

/// Nobody speaks on it before we do, so anything that can be read is its end.
fn is_open(stream: &TcpStream) -> bool {
    stream.try_read(&mut [0; 1]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}
