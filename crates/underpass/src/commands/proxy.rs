//! `underpass proxy`: the native data plane, or with --xds-port what feeds an Envoy instead.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use serde_json::json;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tracing::{info, warn};
use underpass_relay::handover::{self, Offer};
use underpass_relay::port::{LOOPBACK, Port};
use underpass_relay::{
    Admin, AdminState, HealthChecks, LiveListener, RefusedSource, Relay, RelayError, Settings, Socket, shown_page,
};
use underpass_tables::{RelayTable, Transport};
use underpass_xds::Translator;

use crate::args::{Proxy, TextOrJson};
use crate::commands::proxy_manager;
use crate::descriptors;
use crate::exit::Ended;
use crate::logging;
use crate::output;
use crate::proxy::{Feed, News, Reporter, Told, listed, log_changes};
use crate::signals::Signals;

/// How often a listener that could not be opened is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(3);
/// How long cutting connections off may take.
const CUT_TIME: Duration = Duration::from_secs(2);

pub(crate) fn run(args: Proxy) -> anyhow::Result<Ended> {
    // An error means that somebody has chosen a provider already, and any will do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    descriptors::raise_limit();
    // Connections have threads of their own; one is enough for what is around them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    let result = match args.xds_port {
        None => runtime.block_on(proxy(args)),
        Some(port) => runtime.block_on(proxy_manager::feed_envoy(&args, port)),
    };
    // A forced end does not wait for connections.
    runtime.shutdown_background();
    result
}

async fn proxy(args: Proxy) -> anyhow::Result<Ended> {
    let mut signals = Signals::listen()?;
    let mut running = tokio::select! {
        running = Running::start(&args) => running?,
        () = signals.next() => return Ok(Ended::Well),
    };
    running.show(&args)?;
    let mut successor = running.offer(args.handover.as_deref())?;
    running.announce(args.output)?;
    loop {
        tokio::select! {
            () = signals.next() => break,
            () = successor.serves() => {
                info!("another process has taken over");
                break;
            }
            () = tokio::time::sleep(TRY_AGAIN), if running.lacks_listeners() => running.try_again()?,
            news = running.feed.next() => {
                running.hear(news)?;
                running.report();
            }
        }
    }
    let relay = running.relay.clone();
    let mut drained = pin!(running.drain(successor.end()));
    tokio::select! {
        ended = &mut drained => return ended,
        () = signals.next() => relay.cut(),
    }
    // Their lines are still written.
    let _ = tokio::time::timeout(CUT_TIME, drained).await;
    output::tell("underpass: ended by a second signal; connections were cut");
    Ok(Ended::Forced)
}

/// The proxy at work.
struct Running {
    relay: Arc<Relay>,
    feed: Feed,
    /// The newest that the file asked for; more than is in force while listeners cannot be opened.
    wanted: RelayTable,
    /// Whether it was refused because nothing in it could be listened on.
    wanted_is_refused: bool,
    checks: HealthChecks,
    state: Arc<AdminState>,
    admin: Socket,
    /// The task that answers on the admin port.
    answering: JoinHandle<()>,
    /// Whoever tells the cluster what became of it.
    told: watch::Sender<Option<Told>>,
    translator: Translator,
}

impl Running {
    async fn start(args: &Proxy) -> anyhow::Result<Self> {
        let (feed, table) = Feed::open(args).await?;
        let access_log = access_log(&args.access_log)?;
        let inherited = args.handover.as_deref().map(handover::take).transpose().context("cannot take over")?.flatten();
        let sockets = inherited.as_ref().map(|inherited| inherited.sockets.clone()).unwrap_or_default();
        let admin = match sockets.iter().find(|socket| socket.address == args.admin) {
            Some(socket) => Admin::adopt(socket),
            None if args.in_pod().is_some() && args.admin.ip().is_loopback() => {
                Admin::bind_on_device(args.admin, LOOPBACK)
            }
            None => Admin::bind(args.admin).await,
        }
        .context("choose another with --admin")?;
        let settings = Settings {
            workers: workers(args),
            access_log,
            inherited: sockets,
            io_uring: !args.no_io_uring,
            // A pod is one's own: from its loopback come our proofs, and nobody else.
            spares_own: args.in_pod().is_some(),
            ..Settings::default()
        };
        let relay = Arc::new(Relay::start(settings)?);
        let state = AdminState::new(relay.clone());
        let socket = admin.socket()?;
        let answering = tokio::spawn(admin.serve(state.clone()));
        let mut running = Self {
            relay,
            feed,
            wanted: table.clone(),
            wanted_is_refused: false,
            checks: HealthChecks::default(),
            state,
            admin: socket,
            answering,
            told: watch::Sender::new(None),
            translator: Translator::default(),
        };
        if let Err(error) = running.apply(table) {
            return Err(unusable(error));
        }
        running.report();
        if let Some(inherited) = inherited {
            inherited.serving().context("the process that was to be replaced is gone")?;
            info!("took over from another process");
        }
        Ok(running)
    }

    /// In a pod: shows others what they may see, and tells the cluster what became of its ProxyServer.
    fn show(&self, args: &Proxy) -> anyhow::Result<()> {
        let (Some(pod), Some((_, client))) = (args.in_pod(), self.feed.of_cluster()) else { return Ok(()) };
        let (port, state) = (Port::bind_on_device(pod.metrics(), &pod.device()?)?, self.state.clone());
        tokio::spawn(port.serve(move |request| shown_page(request.uri().path(), &state)));
        let reporter = Reporter::new(client, &args.namespace, &pod, self.admin.address, self.told.subscribe());
        tokio::spawn(reporter.run());
        Ok(())
    }

    /// The version is what it would be for an Envoy: the same table has the same, whoever carries it.
    fn report(&mut self) {
        let Some((proxy, _)) = self.feed.of_cluster() else { return };
        let table = Arc::new(self.relay.live().table.clone());
        let version = Some(self.translator.snapshot(&table).version());
        let refusal = self.refusal(&table);
        self.told.send_replace(Some(Told { proxy, table, version, refusal }));
    }

    /// Lets a successor ask for the sockets, from now on.
    fn offer(&self, path: Option<&Path>) -> anyhow::Result<Successor> {
        let Some(path) = path else { return Ok(Successor::default()) };
        let failed = || format!("cannot offer the listeners at {}", path.display());
        let offer = Offer::bind(path).with_context(failed)?;
        let (serves_tx, serves_rx) = oneshot::channel();
        let (relay, admin) = (self.relay.clone(), self.admin.clone());
        let sockets = move || relay.sockets().into_iter().chain([admin.clone()]).collect();
        std::thread::Builder::new().name("handover".into()).spawn(move || {
            let told = |error| warn!("a successor could not take over: {:#}", anyhow::Error::new(error));
            match offer.wait(sockets, told) {
                Ok(()) => drop(serves_tx.send(())),
                Err(error) => warn!("no successor can take over any more: {:#}", anyhow::Error::new(error)),
            }
        })?;
        Ok(Successor { path: Some(path.to_owned()), serves: Some(serves_rx), has_taken_over: false })
    }

    /// Tells on stdout that connections are accepted: one line of JSON, or a block for people.
    fn announce(&self, format: TextOrJson) -> anyhow::Result<()> {
        let (pid, admin, live) = (std::process::id(), self.admin.address, self.relay.live());
        let text = match format {
            TextOrJson::Json => {
                let listeners = live.listeners.iter().map(|listener| listener.address).collect::<Vec<_>>();
                format!("{}\n", json!({ "pid": pid, "admin": admin, "listeners": listeners }))
            }
            TextOrJson::Text => {
                let kind = |transport| if transport == Transport::Datagram { " (UDP)" } else { "" };
                let line = |it: &Arc<LiveListener>| format!("  listener  {}{}\n", it.address, kind(it.transport));
                let listeners: String = live.listeners.iter().map(line).collect();
                format!("underpass proxy is ready\n{listeners}  admin     http://{admin}\n  pid       {pid}\n")
            }
        };
        output::print(&text)
    }

    /// What cannot be is told and changes nothing. Connections do not wait for this thread.
    fn hear(&mut self, news: News) -> anyhow::Result<()> {
        match news {
            News::Same if self.wanted_is_refused => self.take(self.wanted.clone()),
            News::Same => {
                self.state.set_refused(None);
                Ok(())
            }
            News::Table(table) => self.take(table),
            News::Refused(reason) => {
                self.refuse(reason);
                Ok(())
            }
        }
    }

    /// Puts a table into force, unless that would leave nothing to listen on.
    fn take(&mut self, table: RelayTable) -> anyhow::Result<()> {
        self.wanted = table.clone();
        let applied = self.apply(table);
        self.wanted_is_refused = matches!(applied, Err(RelayError::NothingListens { .. }));
        match applied {
            Err(RelayError::NothingListens { rejects }) => {
                let reasons: Vec<String> = rejects.iter().map(ToString::to_string).collect();
                self.refuse(format!("nothing can be listened on: {}", reasons.join("; ")));
            }
            applied => {
                applied?;
                self.state.set_refused(None);
            }
        }
        Ok(())
    }

    fn refuse(&self, reason: String) {
        warn!("invalid configuration: {reason}; the one before stays in force");
        self.state.set_refused(Some(RefusedSource { source: self.feed.name(), reason }));
    }

    fn lacks_listeners(&self) -> bool {
        self.wanted_is_refused || self.wanted.listeners.len() > self.relay.live().listeners.len()
    }

    /// A port that was in use may be free by now.
    fn try_again(&mut self) -> anyhow::Result<()> {
        if !self.relay.could_listen_more(&self.wanted) {
            return Ok(());
        }
        if self.wanted_is_refused {
            self.take(self.wanted.clone())?;
        } else {
            self.apply(self.wanted.clone())?;
        }
        self.report();
        Ok(())
    }

    /// Of what is wanted, what is not in force: the whole of it, or listeners that cannot be opened.
    fn refusal(&self, live: &RelayTable) -> Option<String> {
        if let Some(refused) = self.state.refused() {
            return Some(refused.reason);
        }
        let unopened = live.rejects.iter().filter(|reject| !self.wanted.rejects.contains(reject));
        let unopened: Vec<String> = unopened.map(ToString::to_string).collect();
        (!unopened.is_empty()).then(|| unopened.join("; "))
    }

    fn apply(&mut self, table: RelayTable) -> Result<(), RelayError> {
        let (before, level) = (self.relay.live(), table.log_level);
        self.relay.apply_to_listen(table)?;
        logging::follow(level);
        let live = self.relay.live();
        log_changes(&before.table, &live.table);
        let (generation, rejects) = (live.table.generation, live.table.rejects.len());
        info!(
            generation,
            listeners = live.listeners.len(),
            routes = live.routes.len(),
            rejects,
            "configuration applied"
        );
        self.checks.follow(&live);
        Ok(())
    }

    /// None in a pod whose address another pod gets as soon as this one is to end: nothing that is sent to it comes here any more.
    fn drain_time(&self) -> Duration {
        let (of_cluster, usual) = (self.feed.of_cluster(), self.relay.live().table.drain);
        let network = of_cluster.and_then(|(proxy, _)| {
            let namespace = proxy.metadata.namespace.as_deref().unwrap_or_default();
            proxy.spec.network_config.attachment.resolve(namespace)
        });
        if network.is_some() { Duration::ZERO } else { usual }
    }

    async fn drain(self, taken_over: bool) -> anyhow::Result<Ended> {
        if taken_over {
            // Its port belongs to the successor now; two would answer by turns.
            self.answering.abort();
        }
        let (relay, time) = (self.relay.clone(), self.drain_time());
        info!(connections = relay.connections(), seconds = time.as_secs(), "draining");
        tokio::task::spawn_blocking(move || relay.drain(time)).await?;
        info!("drained");
        Ok(Ended::Well)
    }
}

/// Whoever may take over.
#[derive(Default)]
struct Successor {
    /// Where it asks for the sockets.
    path: Option<PathBuf>,
    serves: Option<oneshot::Receiver<()>>,
    has_taken_over: bool,
}

impl Successor {
    /// Comes back when one has taken over; never, as long as none has.
    async fn serves(&mut self) {
        if let Some(serves) = &mut self.serves
            && serves.await.is_ok()
        {
            self.has_taken_over = true;
            return;
        }
        self.serves = None;
        std::future::pending::<()>().await;
    }

    /// Nobody can take over any more. Whether somebody has.
    fn end(self) -> bool {
        // Whoever comes next would be told the same by a socket that nobody answers. After a hand-over it is the successor's.
        if let Some(path) = self.path.filter(|_| !self.has_taken_over) {
            let _ = std::fs::remove_file(path);
        }
        self.has_taken_over
    }
}

fn workers(args: &Proxy) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    args.workers.map_or_else(cores, usize::from)
}

fn access_log(path: &Path) -> anyhow::Result<Option<Box<dyn Write + Send>>> {
    if path == Path::new("off") {
        return Ok(None);
    }
    let file = if path == Path::new("-") { own_stdout() } else { open_log(path) };
    Ok(Some(Box::new(file.with_context(|| format!("cannot write the access log to {}", path.display()))?)))
}

/// Not the one that others print on: whoever writes to it may have to wait for its reader, and would keep them waiting too.
fn own_stdout() -> std::io::Result<File> {
    Ok(std::io::stdout().as_fd().try_clone_to_owned()?.into())
}

/// A FIFO is opened for reading too: to open it only for writing would wait for its reader, and writing without one would fail.
fn open_log(path: &Path) -> std::io::Result<File> {
    let is_fifo = std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo());
    OpenOptions::new().create(true).append(true).read(is_fifo).open(path)
}

/// Why the first table cannot be put into force.
fn unusable(error: RelayError) -> anyhow::Error {
    match error {
        RelayError::NothingListens { rejects } => anyhow!("nothing can be listened on{}", listed(&rejects)),
        error => error.into(),
    }
}
