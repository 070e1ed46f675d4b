//! The table of the relay: every place to listen, every route, and what was refused on the way here.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::listener::{Decision, Facts, Listener, Refusal};
use crate::route::{Limits, Route};

/// All that a relay is told.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RelayTable {
    /// Grows with every table; a data plane refuses an older one.
    pub generation: u64,
    /// Sorted by name; no two share an address and a transport.
    pub listeners: Vec<Listener>,
    /// Sorted by name. Listeners point into these.
    pub routes: Vec<Arc<Route>>,
    /// For all listeners together.
    pub limits: Limits,
    /// How long connections of a removed route may go on.
    pub drain: Duration,
    /// How much the data plane logs.
    pub log_level: LogLevel,
    /// What was asked for and is not in this table.
    pub rejects: Vec<Reject>,
}

/// From the most silent to the most talkative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

/// One entry that was refused; the others are served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reject {
    /// Which entry, as its author would find it: `ProxyServer clusters/edge, backend oauth`.
    pub entry: String,
    /// What is wrong with it and what to do.
    pub reason: String,
}

/// Where a route stands in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RouteId(pub usize);

impl LogLevel {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.entry, self.reason)
    }
}

impl RelayTable {
    /// Where a connection to one of this table's listeners goes. Pure.
    pub fn decide(&self, listener: &Listener, facts: &Facts<'_>) -> Decision {
        match listener.rules.choose(facts.opening) {
            Ok((route, rule)) if self.routes[route.0].admits(facts.source) => Decision::Connect { route, rule },
            Ok(_) => Decision::Refuse(Refusal::SourceNotAllowed),
            Err(refusal) => Decision::Refuse(refusal),
        }
    }
}
