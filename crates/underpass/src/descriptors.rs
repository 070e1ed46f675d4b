//! Files that are open: whose they are, and how many there may be.

use std::fs;
use std::os::fd::BorrowedFd;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Resource, getrlimit, setrlimit};
use tracing::warn;

/// What whoever started us left open, beside the three that everybody has, stays with us: our children live longer than we do, and would
/// hold a lock, or the pipe that somebody reads to its end. What we open ourselves is never passed on.
///
/// To be called before there is another thread.
#[expect(
    unsafe_code,
    reason = "descriptors that were inherited have no owner in this program, and are known by number only"
)]
pub(crate) fn keep_from_children() {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<i32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // SAFETY: it is borrowed for one call, in which it is not closed: there is no other thread. The one by which the folder was
        // read is closed by now; the call fails on it, and that is all.
        let inherited = unsafe { BorrowedFd::borrow_raw(number) };
        let _ = fcntl_setfd(inherited, FdFlags::CLOEXEC);
    }
}

/// Every connection takes two descriptors, and the usual soft limit of 1024 is for programs that use select.
pub(crate) fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(errno) = setrlimit(Resource::Nofile, limit) {
        warn!(%errno, "the limit of open files cannot be raised");
    }
}
