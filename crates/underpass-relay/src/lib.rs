//! The relay: accept, inspect, route, connect, copy, record. One engine for every crossing.
//!
//! A worker is a thread with its own epoll, its own sockets on every address (SO_REUSEPORT) and its own connections; workers share nothing
//! but counters. A connection is a state machine of a few hundred bytes that an event moves as far as it can go without waiting. Tables
//! come whole, by message, and are swapped between two events.
//!
//! An async runtime was rejected for this path (docs/decisions/0006): its tasks, timers and wakers cost more per event than the
//! work itself, and memory per idle connection that nobody uses. The control side (admin port, health checks, files) is async.

mod access_log;
mod admin;
mod connect;
mod connection;
mod context;
mod copy;
mod datagram;
mod flow;
pub mod handover;
mod health;
mod inspect;
mod listen;
mod live;
mod outbox;
mod pipes;
pub mod port;
mod proxy_header;
mod rate;
mod record;
mod relay;
mod slab;
mod stats;
mod stock;
mod token;
mod wheel;
mod worker;

pub use admin::{Admin, AdminState, RefusedSource, shown_page};
pub use health::{HealthChecks, any_certificate};
pub use listen::BindError;
pub use live::{Endpoint, Live, LiveListener, LiveRoute};
pub use record::End;
pub use relay::{Relay, RelayError, Settings, Socket};
pub use stats::{ListenerStats, RouteStats, prometheus};
pub use stock::Stock;
