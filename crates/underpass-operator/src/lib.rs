//! The one reconcile loop: observe, plan, apply.
//!
//! [`drive`] turns keys into passes: observe everything that the decision needs (`observe/`), let the pure planner of `underpass-plan`
//! decide, and carry the plan out with the one writer ([`Applier`]). A key only says where to look; a pass trusts nothing but what it
//! reads itself, so that a lost, doubled or late signal costs time and never correctness.
//!
//! [`run`] starts the loops of all kinds in the one process that [`leadership`] chooses. [`teardown`] is the way out: our objects, deleted in dependency order.

mod abandon;
mod act;
mod answer;
mod apply;
mod backoff;
mod drive;
mod events;
mod first_look;
mod health;
mod host;
mod images;
mod interests;
pub mod kinds;
mod last_words;
pub mod leadership;
mod metrics;
mod objects;
mod observe;
mod pairs;
mod queue;
mod reach;
mod reconcile;
mod run;
mod sweep;
mod teardown;
mod triggers;
pub mod turn;
pub mod watchdog;

pub use abandon::{AbandonError, abandon};
pub use act::{ActionError, Outside};
pub use answer::Answer;
pub use apply::{Applied, Applier, ApplyError, FIELD_MANAGER};
pub use backoff::Backoff;
pub use drive::{Pace, drive};
pub use first_look::FirstLook;
pub use health::Health;
pub use host::host;
pub use images::Images;
pub use interests::{Interest, Interests};
pub use metrics::Metrics;
pub use observe::{ContainerNetworks, ProxyServers, TunnelProxies, Unbuilt};
pub use pairs::{PairError, Pairs, Process, start_of};
pub use reach::{Unreachable, check, explain, identity, is_not_served, usable, watch};
pub use reconcile::{Key, ObserveError, Reconcile};
pub use run::{Machine, RunError, Settings, run};
pub use sweep::{Leftover, Sweep};
pub use teardown::{FinalizerHeld, Held, Left, Progress, TeardownError, is_our_finalizer, teardown};
