//! Files of objects: read, and applied to a server.

mod apply;
mod read;

pub(crate) use apply::{apply_all, order};
pub(crate) use read::{Document, read_all, split};
