//! The load of benchmarks: services that are reached, and clients that reach them through whatever is measured.
//!
//! Both are threads of the program that measures, and speak over plain sockets: what they cost themselves is the same for everybody.

mod backend;
pub mod client;
pub mod cost;

pub use backend::Backend;
