//! Kubernetes' API over a store: discovery, reading, the four patches, watches, definitions at run time, garbage collection.
//!
//! A request goes `listen` (TLS, limits, who is it) -> `serve` (what is asked) -> `request`, `registry` (of which resource) ->
//! `read` | `watch` | `write` | `patch` | `delete` (do it) -> `api::commit` (the one way into the store). Beside it run the
//! parts that Kubernetes' controller manager has and an API server alone would lack: `definitions`, `namespaces`, `collector`.

mod accept;
mod api;
mod audit;
mod auth;
mod body;
mod collector;
mod decode;
mod definitions;
mod delete;
mod discovery;
mod dormant;
mod identity;
mod intake;
mod jsonpath;
pub mod kubeconfig;
mod limits;
mod listen;
mod metadata;
mod metrics;
mod namespaces;
mod object;
mod openapi;
mod own_writes;
mod patch;
mod private_file;
mod protobuf;
mod read;
mod registry;
mod request;
mod reviews;
mod scale;
mod selector;
mod serve;
mod server;
mod status;
mod store_metrics;
mod table;
mod watch;
mod write;
mod writers;

pub use dormant::Dormant;
pub use metrics::{CONTENT_TYPE as METRICS_CONTENT_TYPE, Process as ProcessMetrics};
pub use server::{Config, RunError, Server, StartError};
