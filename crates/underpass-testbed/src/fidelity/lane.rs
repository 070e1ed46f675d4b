//! What one case has for itself: a port of the proxy, and the backends behind it.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Settings;
use super::conn::{Conn, Outcome, PATIENCE, SILENCE};
use crate::hello::Hello;
use crate::proxies::{Feature, Kind, Port, ProxyHeader, Route, Running, unused_address};

/// The name of the backend that most cases talk to.
pub(super) const OWN: &str = "own.example.test";
/// Another one on the same port.
pub(super) const OTHER: &str = "other.example.test";
/// All names below this one have a backend; it itself has none.
pub(super) const PARENT: &str = "apps.example.test";

const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// How the port of a case is routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setup {
    /// `OWN`, `OTHER` and everything below `PARENT`; nothing for connections without a name.
    Named,
    /// The same, and a backend for connections without a name.
    Unnamed,
    /// As `Named`; the case asks how many were refused.
    Counted,
    /// `OWN` has two endpoints, and the first refuses connections.
    FirstDead,
    /// Nobody listens for `OWN`.
    AllDead,
    /// One backend that gets everything.
    Plain,
    /// Clients begin with a PROXY header.
    HeaderIn,
    /// `OWN` is sent a PROXY header.
    HeaderOut(ProxyHeader),
    /// Both.
    HeaderThrough,
}

/// The backends of a case, which listen.
pub(super) struct Backends {
    setup: Setup,
    port: u16,
    own: TcpListener,
    other: TcpListener,
    below: TcpListener,
    unnamed: TcpListener,
}

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Own,
    Other,
    Below,
    Unnamed,
}

/// All that a case needs.
pub(super) struct Lane<'a> {
    pub(super) running: &'a Running,
    pub(super) settings: Settings,
    backends: Backends,
    next_mark: AtomicU64,
}

impl Setup {
    pub(super) fn needs(self) -> &'static [Feature] {
        match self {
            Self::Named | Self::Unnamed | Self::AllDead => &[],
            Self::Counted => &[Feature::CountRefusals],
            Self::FirstDead => &[Feature::SeveralEndpoints],
            Self::Plain => &[Feature::PlainTcp],
            Self::HeaderIn => &[Feature::AcceptProxyHeader],
            Self::HeaderOut(ProxyHeader::V1) => &[Feature::SendProxyV1],
            Self::HeaderOut(ProxyHeader::V2) => &[Feature::SendProxyV2],
            Self::HeaderThrough => &[Feature::AcceptProxyHeader, Feature::SendProxyV2],
        }
    }

    fn sends(self) -> Option<ProxyHeader> {
        match self {
            Self::HeaderOut(version) => Some(version),
            Self::HeaderThrough => Some(ProxyHeader::V2),
            _ => None,
        }
    }
}

impl Backends {
    pub(super) fn open(port: u16, setup: Setup) -> Self {
        // An address of our own: on 127.0.0.1 somebody else's client may look for a server that had the same port before.
        let address = unused_address();
        let listen = || {
            let listener = TcpListener::bind((address, 0)).expect("a port is free");
            listener.set_nonblocking(true).expect("a listener can be asked without waiting");
            listener
        };
        Self { setup, port, own: listen(), other: listen(), below: listen(), unnamed: listen() }
    }

    /// What the proxy is told.
    pub(super) fn port(&self) -> Port {
        let name = |what: &str| format!("{what}-{}", self.port);
        let mut own = Route::new(&name("own"), OWN, address(&self.own));
        own.sends = self.setup.sends();
        match self.setup {
            Setup::FirstDead => own.targets.insert(0, dead_address()),
            Setup::AllDead => own.targets = vec![dead_address()],
            _ => {}
        }
        if self.setup == Setup::Plain {
            return Port::plain(self.port, own);
        }
        let mut routes = vec![
            own,
            Route::new(&name("other"), OTHER, address(&self.other)),
            Route::new(&name("below"), &format!("*.{PARENT}"), address(&self.below)),
        ];
        if self.setup == Setup::Unnamed {
            let route = Route::new(&name("unnamed"), "unnamed.example.test", address(&self.unnamed));
            routes.push(Route { default: true, ..route });
        }
        let accepts_proxy_header = matches!(self.setup, Setup::HeaderIn | Setup::HeaderThrough);
        Port { number: self.port, kind: Kind::Tls, accepts_proxy_header, routes }
    }

    fn listener(&self, which: Which) -> &TcpListener {
        match which {
            Which::Own => &self.own,
            Which::Other => &self.other,
            Which::Below => &self.below,
            Which::Unnamed => &self.unnamed,
        }
    }
}

impl<'a> Lane<'a> {
    pub(super) fn new(running: &'a Running, backends: Backends, settings: Settings) -> Self {
        Self { running, settings, backends, next_mark: AtomicU64::new(1) }
    }

    /// Where the proxy listens for this case.
    pub(super) fn address(&self) -> SocketAddr {
        self.running.address(self.backends.port)
    }

    pub(super) fn connect(&self) -> Outcome<Conn> {
        Conn::to(self.address())
    }

    /// A hello for `OWN` that differs from every other of this case.
    pub(super) fn hello(&self) -> Hello {
        self.hello_to(OWN)
    }

    pub(super) fn hello_to(&self, name: &str) -> Hello {
        Hello::to(name).marked(self.next_mark.fetch_add(1, Ordering::Relaxed))
    }

    /// The next connection that the proxy makes to a backend.
    pub(super) fn accept(&self, which: Which) -> Outcome<Conn> {
        self.accept_within(which, PATIENCE)?.ok_or_else(|| format!("no connection reached the backend ({which:?})"))
    }

    /// The next connection to a backend, which must begin with these bytes.
    pub(super) fn accept_with(&self, which: Which, bytes: &[u8]) -> Outcome<Conn> {
        let mut backend = self.accept(which)?;
        backend.expect(bytes)?;
        Ok(backend)
    }

    /// A client and the backend `OWN` that it talks to, after the hello.
    pub(super) fn open(&self) -> Outcome<(Conn, Conn)> {
        let hello = self.hello().bytes();
        let mut client = self.connect()?;
        client.send(&hello)?;
        let backend = self.accept_with(Which::Own, &hello)?;
        Ok((client, backend))
    }

    /// Whole round trip, to see that the proxy goes on.
    pub(super) fn still_works(&self) -> Outcome {
        let (mut client, mut backend) = self.open().map_err(|seen| format!("afterwards: {seen}"))?;
        backend.send(b"still here")?;
        client.expect(b"still here")
    }

    /// Sends bytes that must be refused: the client is closed, and no backend hears of it.
    pub(super) fn expect_refused(&self, bytes: &[u8]) -> Outcome {
        self.expect_refused_within(bytes, PATIENCE)
    }

    pub(super) fn expect_refused_within(&self, bytes: &[u8], within: Duration) -> Outcome {
        let mut client = self.connect()?;
        client.send(bytes)?;
        let refused = client.expect_refusal(within);
        self.expect_no_backend()?;
        refused
    }

    /// No connection reaches any backend.
    pub(super) fn expect_no_backend(&self) -> Outcome {
        for which in [Which::Own, Which::Other, Which::Below, Which::Unnamed] {
            let patience = if which == Which::Own { SILENCE } else { Duration::ZERO };
            if self.accept_within(which, patience)?.is_some() {
                return Err(format!("a backend got it ({which:?})"));
            }
        }
        Ok(())
    }

    fn accept_within(&self, which: Which, patience: Duration) -> Outcome<Option<Conn>> {
        let deadline = Instant::now() + patience;
        loop {
            match self.backends.listener(which).accept() {
                Ok((stream, _)) => return Ok(Some(Conn::of(stream, "backend"))),
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error.to_string()),
                Err(_) if Instant::now() >= deadline => return Ok(None),
                Err(_) => std::thread::sleep(LOOK_AGAIN),
            }
        }
    }
}

fn address(listener: &TcpListener) -> SocketAddr {
    listener.local_addr().expect("a listener has an address")
}

/// A place where nobody listens: low ports of this address belong to nobody, and none is given out by itself.
fn dead_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 2))
}
