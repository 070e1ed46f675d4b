//! A tunnel for datagrams, where clients are. There are so many flows and no more, and no neighbour can keep others out: when it is full,
//! the one of the source that has the most has to go which has been silent longest. Nobody tells when a flow of datagrams is over, so
//! whoever asks from a new port each time would else lock itself out, too.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;
use underpass_protocols::stream_header::StreamHeader;

use super::shelf::Shelf;
use crate::capacity::Places;
use crate::datagrams::{self, LARGEST, Sink, Source};
use crate::refusals::{Refusals, Why};

/// Flows of a tunnel that does not say how many it may have.
const MOST_FLOWS: usize = 1024;
/// Datagrams of a flow that wait for its connection; more are lost, as datagrams are.
const QUEUE: usize = 64;
/// Bytes of a tunnel's datagrams that wait so. The first of a flow counts, but is never lost for it: else a few flows would silence all.
const MOST_WAITING: usize = 16 << 20;

static FLOWS: AtomicU64 = AtomicU64::new(0);

/// A port that datagrams come in at.
pub(super) struct Flows {
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// What flows of all tunnels stand on.
#[derive(Clone)]
pub(super) struct Ground {
    pub(super) shelf: Arc<Shelf>,
    pub(super) refusals: Arc<Refusals>,
    /// How long a flow may be silent.
    pub(super) idle: Duration,
}

struct Door {
    number: u32,
    socket: Arc<UdpSocket>,
    /// None: what the pair has room for.
    most: Option<u32>,
    places: Arc<Places>,
    ground: Ground,
    waiting: Arc<AtomicUsize>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// One client's, as the door knows it.
struct Flow {
    queue: mpsc::Sender<Waiting>,
    /// The number of its last datagram, of all that came in at the door.
    last: u64,
    task: AbortHandle,
}

/// What a client has sent.
struct Queue(mpsc::Receiver<Waiting>);

/// A datagram that counts as long as it waits.
struct Waiting {
    bytes: Vec<u8>,
    count: Arc<AtomicUsize>,
}

/// Is given back however a flow ends.
struct Place(Arc<Places>);

/// Where a client is.
struct Client {
    socket: Arc<UdpSocket>,
    address: SocketAddr,
}

impl Flows {
    pub(super) fn start(
        number: u32,
        socket: UdpSocket,
        most: Option<u32>,
        places: Arc<Places>,
        ground: Ground,
    ) -> Self {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let (socket, waiting, door_stop) = (Arc::new(socket), Arc::default(), stop.clone());
        let (door_tasks, stop_of_flows) = (tasks.clone(), stop.clone());
        let door = Door { number, socket, most, places, ground, waiting, stop: stop_of_flows, tasks: door_tasks };
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
        let mut flows: HashMap<SocketAddr, Flow> = HashMap::new();
        let mut buffer = vec![0; LARGEST];
        let mut count = 0;
        loop {
            // An error here is one of an earlier datagram that was sent.
            let Ok((length, source)) = self.socket.recv_from(&mut buffer).await else { continue };
            let datagram = &buffer[..length];
            count += 1;
            if let Some(flow) = flows.get_mut(&source).filter(|flow| !flow.queue.is_closed()) {
                flow.last = count;
                self.pass_on(&flow.queue, datagram);
                continue;
            }
            flows.retain(|_, flow| !flow.queue.is_closed());
            if self.makes_room(&mut flows, source.ip()) {
                flows.insert(source, self.begin(source, datagram, count));
            }
        }
    }

    fn makes_room(&self, flows: &mut HashMap<SocketAddr, Flow>, newcomer: IpAddr) -> bool {
        if flows.len() < self.most() && !self.places.are_taken() {
            return true;
        }
        let Some(flow) = to_go(flows, newcomer).and_then(|address| flows.remove(&address)) else {
            // Those of other tunnels have all places.
            self.ground.refusals.note(Why::Full, newcomer.to_canonical());
            return false;
        };
        flow.task.abort();
        true
    }

    fn most(&self) -> usize {
        let most = || (self.places.most() / 2).clamp(1, MOST_FLOWS);
        self.most.map_or_else(most, |most| most as usize)
    }

    fn begin(&self, source: SocketAddr, first: &[u8], count: u64) -> Flow {
        let (datagrams_tx, datagrams_rx) = mpsc::channel(QUEUE);
        self.pass_on(&datagrams_tx, first);
        let client = Client { socket: self.socket.clone(), address: source };
        let (number, ground, stop) = (self.number, self.ground.clone(), self.stop.clone());
        let place = Place::take(&self.places);
        let task = self.tasks.spawn(async move {
            let _place = place;
            let flow = flow(number, client, &ground, datagrams_rx);
            if let Some(Err(error)) = stop.run_until_cancelled(flow).await {
                debug!(tunnel = number, %source, %error, "a flow broke");
            }
        });
        Flow { queue: datagrams_tx, last: count, task: task.abort_handle() }
    }

    /// A full queue loses it.
    fn pass_on(&self, queue: &mpsc::Sender<Waiting>, datagram: &[u8]) {
        let is_first = queue.capacity() == QUEUE;
        if is_first || self.waiting.load(Relaxed) + datagram.len() <= MOST_WAITING {
            let _ = queue.try_send(Waiting::new(datagram, &self.waiting));
        }
    }
}

/// The flow that has been silent longest, of the source that would have the most.
fn to_go(flows: &HashMap<SocketAddr, Flow>, newcomer: IpAddr) -> Option<SocketAddr> {
    let mut of_source = HashMap::from([(newcomer, 1)]);
    for address in flows.keys() {
        *of_source.entry(address.ip()).or_insert(0) += 1;
    }
    let rank = |(address, flow): &(&SocketAddr, &Flow)| (of_source[&address.ip()], Reverse(flow.last));
    flows.iter().max_by_key(rank).map(|(address, _)| *address)
}

async fn flow(tunnel: u32, client: Client, ground: &Ground, datagrams: mpsc::Receiver<Waiting>) -> io::Result<()> {
    let mut stream = ground.shelf.take().await.ok_or(io::ErrorKind::TimedOut)?;
    let source = SocketAddr::new(client.address.ip().to_canonical(), client.address.port());
    let header = StreamHeader { tunnel, stream: FLOWS.fetch_add(1, Relaxed), source };
    stream.write_all(&header.encode()).await?;
    datagrams::carry(stream, Queue(datagrams), client, ground.idle).await
}

impl Waiting {
    fn new(datagram: &[u8], count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(datagram.len(), Relaxed);
        Self { bytes: datagram.to_vec(), count: count.clone() }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.count.fetch_sub(self.bytes.len(), Relaxed);
    }
}

impl Place {
    fn take(places: &Arc<Places>) -> Self {
        places.take();
        Self(places.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

impl Source for Queue {
    async fn next(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let datagram = self.0.recv().await.ok_or(io::ErrorKind::UnexpectedEof)?;
        let length = datagram.bytes.len();
        buffer[..length].copy_from_slice(&datagram.bytes);
        Ok(length)
    }
}

impl Sink for Client {
    async fn deliver(&mut self, datagram: &[u8]) {
        // It may be gone; that is no news to whoever sends datagrams.
        let _ = self.socket.send_to(datagram, self.address).await;
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn what_waits_is_bounded_and_nobodys_first_datagram_is_lost_for_it() {
        let socket = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap());
        // No connection ever comes.
        let ground =
            Ground { shelf: Arc::new(Shelf::new(drop)), refusals: Arc::default(), idle: Duration::from_secs(60) };
        let (places, waiting) = (Arc::new(Places::new(1000)), Arc::new(AtomicUsize::new(0)));
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let count = waiting.clone();
        let door =
            Door { number: 1, socket, most: None, places, ground, waiting, stop: stop.clone(), tasks: tasks.clone() };
        let datagram = vec![7; LARGEST];
        let source = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let greedy: Vec<Flow> = (1..100).map(|port| door.begin(source(port), &datagram, 0)).collect();
        for flow in greedy.iter().cycle().take(100 * QUEUE) {
            door.pass_on(&flow.queue, &datagram);
        }
        let waits = count.load(Relaxed);
        assert!((MOST_WAITING - LARGEST..=MOST_WAITING).contains(&waits), "{waits}");
        let late = door.begin(source(100), &datagram, 0);
        assert_eq!(count.load(Relaxed), waits + LARGEST);
        stop.cancel();
        tasks.close();
        tasks.wait().await;
        drop((greedy, late));
        assert_eq!(count.load(Relaxed), 0, "what is gone does not count");
    }
}
