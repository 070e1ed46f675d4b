//! All connected clients, in this process: what they cost is the same for everybody.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::client::{Client, Desk, Sign};
use crate::wire::Dialect;

/// Long enough for everything; nobody waits it out unless something is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// They hang up when this value goes.
pub(crate) struct Clients<'a> {
    runtime: &'a Runtime,
    orders: Vec<mpsc::UnboundedSender<Vec<Sign>>>,
    done: mpsc::UnboundedReceiver<anyhow::Result<Instant>>,
    received: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl<'a> Clients<'a> {
    /// Connects so many, and waits until each has seen these signs.
    pub(crate) fn connect(
        runtime: &'a Runtime,
        server: SocketAddr,
        (dialect, count): (Dialect, usize),
        node: impl Fn(usize) -> String,
        signs: &[Sign],
    ) -> anyhow::Result<Self> {
        let (tell, done) = mpsc::unbounded_channel();
        let received = Arc::new(AtomicU64::new(0));
        let (mut orders, mut tasks) = (Vec::new(), JoinSet::new());
        for number in 0..count {
            let (order, taken) = mpsc::unbounded_channel();
            orders.push(order);
            let desk = Desk { orders: taken, done: tell.clone(), received: received.clone() };
            tasks.spawn_on(Client::run(dialect, node(number), server, desk), runtime.handle());
        }
        let mut clients = Self { runtime, orders, done, received, _tasks: tasks };
        clients.expect(signs)?;
        clients.wait()?;
        Ok(clients)
    }

    /// Says what is waited for, before it can come.
    pub(crate) fn expect(&self, signs: &[Sign]) -> anyhow::Result<()> {
        self.orders.iter().try_for_each(|order| order.send(signs.to_vec()).context("a client is gone"))
    }

    /// When the last client has seen and acknowledged everything.
    pub(crate) fn wait(&mut self) -> anyhow::Result<Instant> {
        let count = self.orders.len();
        let done = &mut self.done;
        self.runtime.block_on(async {
            let mut last = Instant::now();
            for number in 0..count {
                let next = tokio::time::timeout(PATIENCE, done.recv()).await;
                let next = next.with_context(|| format!("{number} of {count} clients have what they wait for"))?;
                let at = next.context("all clients are gone")??;
                last = if number == 0 { at } else { last.max(at) };
            }
            Ok(last)
        })
    }

    /// Bytes of all messages to all clients until now.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}
