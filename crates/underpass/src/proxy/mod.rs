//! What `underpass proxy` and `underpass explain route` share: a file of objects, checked entry by entry, as the table of a relay.

mod backends;
mod changes;
mod check;
mod cluster;
mod crossing;
mod feed;
mod objects;
mod pod;
mod source;
mod watch;

pub(crate) use changes::log_changes;
pub(crate) use feed::{Feed, News};
pub(crate) use pod::{Pod, Reporter, Told};
pub(crate) use source::Source;

use underpass_tables::Reject;

/// What was refused, below a sentence that says what came of it.
pub(crate) fn listed(rejects: &[Reject]) -> String {
    rejects.iter().map(|reject| format!("\n  {reject}")).collect()
}
