//! Flows of datagrams, where servers are.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::debug;
use underpass_protocols::stream_header::{LENGTH, StreamHeader};

use super::reach;
use crate::datagrams::{self, Sink, Source};
use crate::messages::ServerSeen;

/// Where the datagrams of tunnels go.
pub(super) struct Flows {
    servers: Mutex<HashMap<u32, Entry>>,
    news: Arc<Notify>,
}

/// Its flows end with it: unlike streams they have no end of their own as long as somebody speaks, and would lead to the old server for ever.
struct Entry {
    server: Server,
    _flows: DropGuard,
}

#[derive(Clone)]
struct Server {
    address: SocketAddr,
    seen: Arc<FlowsSeen>,
    /// Told when something else is known of a server.
    news: Arc<Notify>,
    over: CancellationToken,
}

/// A server and the socket that is connected to it.
struct Ends<'a> {
    server: &'a Server,
    socket: &'a UdpSocket,
}

/// What became of the flows of a tunnel.
#[derive(Default)]
pub(super) struct FlowsSeen {
    pub(super) active: AtomicU32,
    pub(super) total: AtomicU64,
    pub(super) bytes_sent: AtomicU64,
    pub(super) bytes_received: AtomicU64,
    pub(super) failures: AtomicU64,
    trouble: Mutex<Option<String>>,
}

impl Flows {
    pub(super) fn new(news: Arc<Notify>) -> Self {
        Self { servers: Mutex::default(), news }
    }

    /// From now on these and no others. Flows to servers that stay go on.
    pub(super) fn keep(&self, wanted: &BTreeMap<u32, SocketAddr>) {
        let mut servers = self.servers.lock();
        servers.retain(|tunnel, entry| wanted.get(tunnel) == Some(&entry.server.address));
        for (tunnel, address) in wanted {
            servers.entry(*tunnel).or_insert_with(|| Entry::new(*address, self.news.clone()));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.servers.lock().is_empty()
    }

    pub(super) fn seen(&self, tunnel: u32) -> Option<Arc<FlowsSeen>> {
        self.servers.lock().get(&tunnel).map(|entry| entry.server.seen.clone())
    }

    /// Waits until the connection is used, and carries its flow. `taken` is told when it no longer stands ready.
    pub(super) async fn carry(&self, mut stream: TcpStream, taken: impl FnOnce(), idle: Duration) {
        let mut header = [0; LENGTH];
        let read = stream.read_exact(&mut header).await;
        taken();
        let Some(header) = read.ok().and_then(|_| StreamHeader::decode(&header).ok()) else { return };
        let server = self.servers.lock().get(&header.tunnel).map(|entry| entry.server.clone());
        let Some(server) = server else { return };
        server.seen.total.fetch_add(1, Relaxed);
        server.seen.active.fetch_add(1, Relaxed);
        if let Some(Err(error)) = server.over.run_until_cancelled(server.flow(stream, idle)).await {
            debug!(tunnel = header.tunnel, source = %header.source, %error, "a flow broke");
        }
        server.seen.active.fetch_sub(1, Relaxed);
    }
}

impl Entry {
    fn new(address: SocketAddr, news: Arc<Notify>) -> Self {
        let over = CancellationToken::new();
        let _flows = over.clone().drop_guard();
        Self { server: Server { address, seen: Arc::default(), news, over }, _flows }
    }
}

impl FlowsSeen {
    /// Nobody has to answer a datagram: silence says nothing.
    pub(super) fn server(&self) -> ServerSeen {
        match &*self.trouble.lock() {
            Some(why) => ServerSeen::Unreachable(why.clone()),
            None if self.bytes_received.load(Relaxed) > 0 => ServerSeen::Reachable,
            None => ServerSeen::Unknown,
        }
    }
}

impl Server {
    async fn flow(&self, stream: TcpStream, idle: Duration) -> io::Result<()> {
        let any: IpAddr =
            if self.address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0)).await?;
        socket.connect(self.address).await.inspect_err(|error| self.failed(error))?;
        let socket = &socket;
        datagrams::carry(stream, Ends { server: self, socket }, Ends { server: self, socket }, idle).await
    }

    fn failed(&self, error: &io::Error) {
        self.seen.failures.fetch_add(1, Relaxed);
        let before = self.seen.trouble.lock().replace(in_words(self.address, error));
        if before.is_none() {
            self.news.notify_one();
        }
    }

    fn answered(&self, length: usize) {
        let bytes = self.seen.bytes_received.fetch_add(length as u64, Relaxed);
        let trouble = self.seen.trouble.lock().take();
        if bytes == 0 || trouble.is_some() {
            self.news.notify_one();
        }
    }
}

fn in_words(address: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("{address}: a datagram was refused, nothing listens there"),
        _ => reach::in_words(address, error),
    }
}

impl Source for Ends<'_> {
    async fn next(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.socket.recv(buffer).await {
                Ok(length) => {
                    self.server.answered(length);
                    return Ok(length);
                }
                // Nobody is there, yet: the next datagram may find somebody.
                Err(error) => self.server.failed(&error),
            }
        }
    }
}

impl Sink for Ends<'_> {
    async fn deliver(&mut self, datagram: &[u8]) {
        self.server.seen.bytes_sent.fetch_add(datagram.len() as u64, Relaxed);
        if let Err(error) = self.socket.send(datagram).await {
            self.server.failed(&error);
        }
    }
}
