//! Envoy, told by underpass: the same file as our own proxy has, and an Envoy that asks for what it says.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::routing::Routing;
use super::{Place, WORKERS, underpass};
use crate::envoy;

const BOOTSTRAP: &str = "bootstrap.json";

pub(super) fn write(place: &Place, routing: &Routing) -> Instant {
    underpass::write(place, routing)
}

/// What tells, and who is told: the latter starts when the former has written what it starts with.
pub(super) fn commands(program: &Path, place: &Place) -> Vec<Command> {
    let mut manager = underpass::command(program, place);
    manager.args(["--xds-port", "0", "--envoy-bootstrap"]).arg(place.path(BOOTSTRAP));
    let mut waiting = Command::new("/bin/sh");
    let script = r#"until [ -s "$1" ]; do sleep 0.02; done; exec "$0" -c "$1" --concurrency "$2" --disable-hot-restart --log-level error"#;
    waiting.arg("-c").arg(script).arg(envoy::program()).arg(place.path(BOOTSTRAP)).arg(WORKERS.to_string());
    vec![manager, waiting]
}
