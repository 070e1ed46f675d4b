//! Files of objects: read, parsed, and applied to a server.

mod apply;
mod parse;
mod read;

pub(crate) use apply::{apply_all, order};
pub(crate) use parse::{Document, split};
pub(crate) use read::read_all;
