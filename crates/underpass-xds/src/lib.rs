//! Envoy as a data plane: a relay's table becomes Envoy's resources (`envoy`), by a `detour` where the straight way would lead connections
//! astray (`publisher`). Their newest state (`Snapshot`) is handed out by xDS
//! (`serve`), each stream in its own order and at its client's pace (`stream`); what the clients say to it is kept (`reports`).

mod conversation;
mod detour;
mod dialect;
mod envoy;
mod publisher;
mod reports;
mod resources;
mod serve;
mod snapshot;
mod stream;

pub use envoy::Translator;
pub use publisher::Publisher;
pub use reports::{Outcome, Rejection, Report, Reports};
pub use resources::{Resource, Resources};
pub use serve::{Nodes, Server};
pub use snapshot::{Kind, Newest, Snapshot};
