//! Names that no other test has.

use std::sync::atomic::{AtomicUsize, Ordering};

/// `what`, told apart from that of other tests and other processes.
pub(crate) fn unique(what: &str) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
