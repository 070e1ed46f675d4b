//! Files that may be open at a time.

use rustix::process::{Resource, getrlimit, setrlimit};
use tracing::warn;

/// Every connection takes two descriptors, and the usual soft limit of 1024 is for programs that use select.
pub(crate) fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(errno) = setrlimit(Resource::Nofile, limit) {
        warn!(%errno, "the limit of open files cannot be raised");
    }
}
