//! A tunnel for datagrams, where clients are.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;
use underpass_protocols::stream_header::StreamHeader;

use super::shelf::Shelf;
use crate::datagrams::{self, LARGEST, Sink, Source};

/// Flows of a tunnel that does not say how many it may have.
const MOST_FLOWS: usize = 1024;
/// Datagrams of a flow that wait for its connection; more are lost, as datagrams are.
const QUEUE: usize = 64;

static FLOWS: AtomicU64 = AtomicU64::new(0);

/// A port that datagrams come in at.
pub(super) struct Flows {
    stop: CancellationToken,
    tasks: TaskTracker,
}

struct Door {
    number: u32,
    socket: Arc<UdpSocket>,
    shelf: Arc<Shelf>,
    most: usize,
    idle: Duration,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// What a client has sent.
struct Queue(mpsc::Receiver<Vec<u8>>);

/// Where a client is.
struct Client {
    socket: Arc<UdpSocket>,
    address: SocketAddr,
}

impl Flows {
    pub(super) fn start(number: u32, socket: UdpSocket, shelf: Arc<Shelf>, most: Option<u32>, idle: Duration) -> Self {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let most = most.map_or(MOST_FLOWS, |most| most as usize);
        let (socket, door_stop) = (Arc::new(socket), stop.clone());
        let door = Door { number, socket, shelf, most, idle, stop: door_stop.clone(), tasks: tasks.clone() };
        tasks.spawn(async move { door_stop.run_until_cancelled(door.serve()).await });
        Self { stop, tasks }
    }

    /// Ends all flows: they answer from the port that is to be free. Comes back when it is.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Door {
    async fn serve(self) {
        let mut flows: HashMap<SocketAddr, mpsc::Sender<Vec<u8>>> = HashMap::new();
        let mut buffer = vec![0; LARGEST];
        loop {
            // An error here is one of an earlier datagram that was sent.
            let Ok((length, source)) = self.socket.recv_from(&mut buffer).await else { continue };
            let datagram = buffer[..length].to_vec();
            if let Some(flow) = flows.get(&source).filter(|flow| !flow.is_closed()) {
                // A full queue loses it.
                let _ = flow.try_send(datagram);
                continue;
            }
            flows.retain(|_, flow| !flow.is_closed());
            if flows.len() < self.most {
                flows.insert(source, self.begin(source, datagram));
            }
        }
    }

    fn begin(&self, source: SocketAddr, first: Vec<u8>) -> mpsc::Sender<Vec<u8>> {
        let (datagrams_tx, datagrams_rx) = mpsc::channel(QUEUE);
        // There is room in a new queue.
        let _ = datagrams_tx.try_send(first);
        let (number, idle) = (self.number, self.idle);
        let client = Client { socket: self.socket.clone(), address: source };
        let (shelf, stop) = (self.shelf.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            let flow = flow(number, client, &shelf, datagrams_rx, idle);
            if let Some(Err(error)) = stop.run_until_cancelled(flow).await {
                debug!(tunnel = number, %source, %error, "a flow broke");
            }
        });
        datagrams_tx
    }
}

async fn flow(
    tunnel: u32,
    client: Client,
    shelf: &Shelf,
    datagrams: mpsc::Receiver<Vec<u8>>,
    idle: Duration,
) -> io::Result<()> {
    let mut stream = shelf.take().await.ok_or(io::ErrorKind::TimedOut)?;
    let source = SocketAddr::new(client.address.ip().to_canonical(), client.address.port());
    let header = StreamHeader { tunnel, stream: FLOWS.fetch_add(1, Relaxed), source };
    stream.write_all(&header.encode()).await?;
    datagrams::carry(stream, Queue(datagrams), client, idle).await
}

impl Source for Queue {
    async fn next(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let datagram = self.0.recv().await.ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer[..datagram.len()].copy_from_slice(&datagram);
        Ok(datagram.len())
    }
}

impl Sink for Client {
    async fn deliver(&mut self, datagram: &[u8]) {
        // It may be gone; that is no news to whoever sends datagrams.
        let _ = self.socket.send_to(datagram, self.address).await;
    }
}
