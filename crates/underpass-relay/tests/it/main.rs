//! The engine on real sockets.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod admin;
mod carrying;
mod connecting;
mod crowds;
mod datagrams;
mod handover;
mod health;
mod opening;
mod rig;
mod tables;
mod tunnels;
