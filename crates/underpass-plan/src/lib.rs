//! What should exist, decided from what was observed.
//!
//! Every kind has one module with an `Observed` (all that the decision may look at, the time included) and
//! `plan(&Observed) -> Plan`. A plan leaves its executor no choice and carries the reasons for what it says, so that the same function
//! serves the controllers, `underpass plan` and the tests, which are readable text files in `tests/plans/`.
//!
//! Nothing here does I/O, reads a clock or draws a random number: equal observations give equal plans. Letting each controller decide
//! between its API calls was rejected: such a decision can only be tested with a server, and cannot be shown before it happens.

pub mod container_network;
pub mod infra;
mod made;
mod place;
mod plan;
mod preview;
pub mod proxy_deployment;
pub mod proxy_server;
mod ready;
mod render;
pub mod tunnel_proxy;
pub mod unbuilt;

pub use made::{OWNER_ANNOTATION, OWNER_LABEL};
pub use place::{ObjectKind, Place};
pub use plan::{
    Action, Cause, ClientEndpoints, ClientPort, ClientRequest, Event, Failure, Finalizer, NetworkRequest, Plan,
    ServerRequest, Severity, Subject, TunnelRequest,
};
pub use preview::{PreviewError, preview};
