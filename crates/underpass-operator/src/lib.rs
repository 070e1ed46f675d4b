//! The one reconcile loop: observe, plan, apply.
//!
//! [`drive`] turns keys into passes: observe everything that the decision needs (`observe/`), let the pure planner of `underpass-plan`
//! decide, and carry the plan out with the one writer ([`Applier`]). A key only says where to look; a pass trusts nothing but what it
//! reads itself, so that a lost, doubled or late signal costs time and never correctness.
//!
//! [`run`] starts the loops of all kinds in the one process that [`leadership`] chooses. [`teardown`] is the way out: our objects, deleted in dependency order.

mod answer;
mod apply;
mod backoff;
mod drive;
pub mod kinds;
pub mod leadership;
mod metrics;
mod observe;
mod reach;
mod reconcile;
mod run;
mod teardown;
mod triggers;

pub use answer::Answer;
pub use apply::{Applied, Applier, ApplyError, FIELD_MANAGER};
pub use backoff::Backoff;
pub use drive::{Pace, drive};
pub use metrics::Metrics;
pub use observe::{ContainerNetworks, Unbuilt};
pub use reach::{Unreachable, check, explain};
pub use reconcile::{Key, ObserveError, Reconcile};
pub use run::{RunError, Settings, run};
pub use teardown::{FinalizerHeld, Held, Left, Progress, TeardownError, teardown};
