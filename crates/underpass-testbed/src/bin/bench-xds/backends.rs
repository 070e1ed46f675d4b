//! The backends that everybody serves, as the tables of a relay: without a change, and with one.

use std::net::SocketAddr;
use std::sync::Arc;

use underpass_tables::{Expects, Listener, RelayTable, Route, RouteId, Rules, Transport};

/// A listener holds the chains of all its names, so that its size is what a backend that comes or goes costs. A ProxyServer has at most
/// 256 backends on an API server.
pub(crate) const PER_LISTENER: usize = 100;
const ENDPOINTS: u8 = 3;
const FIRST_PORT: usize = 10_000;

/// What is told to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Change {
    /// One backend has another endpoint, and at the next change again the one before.
    Endpoint,
    /// One backend more, and at the next change one less.
    Backend,
}

impl Change {
    pub(crate) const ALL: [Self; 2] = [Self::Endpoint, Self::Backend];

    /// As the processes are told.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Endpoint => "endpoint",
            Self::Backend => "backend",
        }
    }
}

/// All tables that are served in turn. What is the same in two of them is one value.
pub(crate) struct Tables {
    pub(crate) plain: RelayTable,
    pub(crate) other_endpoint: RelayTable,
    pub(crate) one_more: RelayTable,
}

impl Tables {
    pub(crate) fn new(backends: usize) -> Self {
        let routes: Vec<Arc<Route>> = (0..backends).map(|number| Arc::new(route(&name(number), 0))).collect();
        let changed = backends / 2;
        let mut others = routes.clone();
        others[changed] = Arc::new(route(&name(changed), 1));
        let mut more = routes.clone();
        more.insert(changed + 1, Arc::new(route(&format!("{}-more", name(changed)), 0)));
        // The one that comes is in the listener of its neighbour, in the midst of the others.
        Self {
            plain: table(routes, None),
            other_endpoint: table(others, None),
            one_more: table(more, Some(changed + 1)),
        }
    }

    pub(crate) fn after(&self, change: Change) -> &RelayTable {
        match change {
            Change::Endpoint => &self.other_endpoint,
            Change::Backend => &self.one_more,
        }
    }
}

/// Of one length, so that what is sent can be compared.
fn name(number: usize) -> String {
    format!("backend-{number:05}")
}

fn route(name: &str, first_host: u8) -> Route {
    let endpoint = |host| SocketAddr::from(([192, 0, 2, 10 + host], 8443));
    Route::new(name, format!("tenants/{name}:443"), (first_host..first_host + ENDPOINTS).map(endpoint).collect())
}

fn table(routes: Vec<Arc<Route>>, added: Option<usize>) -> RelayTable {
    let place = |number: usize| match added {
        Some(added) if number >= added => (number - 1) / PER_LISTENER,
        _ => number / PER_LISTENER,
    };
    let mut listeners: Vec<Listener> = Vec::new();
    for (number, route) in routes.iter().enumerate() {
        if listeners.len() == place(number) {
            listeners.push(listener(listeners.len()));
        }
        let rules = &mut listeners[place(number)].rules;
        rules.add_name(&format!("{}.example.com", route.name), RouteId(number)).expect("names are unique");
    }
    RelayTable { routes, listeners, ..RelayTable::default() }
}

fn listener(number: usize) -> Listener {
    let port = FIRST_PORT + number;
    Listener {
        name: format!("edge-listener-{port}"),
        address: SocketAddr::from(([0, 0, 0, 0], u16::try_from(port).expect("there are fewer listeners than ports"))),
        transport: Transport::Stream,
        proxy_header: false,
        expects: Expects::Hello,
        rules: Rules::default(),
    }
}
