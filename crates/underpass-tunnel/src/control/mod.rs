//! Control connections: TLS, both ends verified, lines of JSON.

mod door;
mod link;

pub(crate) use door::{Answers, Door};
pub(crate) use link::{AskError, Hear, Link};
