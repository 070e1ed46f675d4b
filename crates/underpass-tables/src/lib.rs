//! What a data plane is told. A table is whole: it replaces the one before, carries a generation, and answers its question without
//! I/O, clock or state of its own, so that the proxy, `underpass explain` and the tests get the same answer from the same function.
//!
//! Sending single changes was rejected: a data plane that missed one would be wrong for ever, and nobody could see it.

mod listener;
mod relay;
mod route;

pub use listener::{Decision, Expects, Facts, Listener, Opening, Refusal, Rule, Rules, Transport, Unnamed};
pub use relay::{LogLevel, Reject, RelayTable, RouteId};
pub use route::{Balance, CheckKind, Endpoint, HealthCheck, Limits, ProxyHeader, Route};
