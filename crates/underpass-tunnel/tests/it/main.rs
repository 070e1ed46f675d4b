//! Both halves in this process, on real sockets.
//!
//! - `reach`: whether servers are there.
//! - `orders`: prepare, delete, list, probe, and what is refused.
//! - `streams`: bytes, ends, crowds, servers that are dead or slow.
//! - `breaks`: control connections that are cut, halves that go and come back.
//! - `flows`: datagrams.
//! - `strangers`: whoever is not of the pair.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod breaks;
mod flows;
mod orders;
mod reach;
mod rig;
mod strangers;
mod streams;
