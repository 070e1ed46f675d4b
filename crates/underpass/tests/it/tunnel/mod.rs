//! Tunnels on real Podman and real Docker: `underpass up`, servers on this host's 127.0.0.1, clients in containers.
//!
//! Each test has objects, networks and containers of its own, and asks at its end whether anything is left on the engine.

mod both;
mod end_to_end;
mod engines;
mod failing;
mod guest;
mod life;
mod load;
mod processes;
mod rig;
mod servers;
mod starting;
mod strangers;
mod tunnels;

use both::on_both;
use rig::Rig;
