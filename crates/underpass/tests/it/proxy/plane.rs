//! One file, carried by our own data plane, or by an Envoy that is told by us.

use std::net::SocketAddr;

use serde_json::Value;
use tempfile::TempDir;
use underpass_testbed::{Envoy, PATIENCE, Process, wait_until};

use super::{Proxy, Site, answer, get, launch};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Plane {
    Native,
    Envoy,
}

/// What carries the file of a site.
pub(super) enum Carrier {
    Native(Proxy),
    Envoy { manager: Process, envoy: Envoy, _home: TempDir },
}

impl Carrier {
    #[track_caller]
    pub(super) fn start(plane: Plane, site: &Site) -> Self {
        if plane == Plane::Native {
            return Self::Native(Proxy::start(site));
        }
        let bootstrap = site.folder().join("bootstrap.json");
        let launch = launch(site).args(["--output", "json", "--xds-port", "0", "--envoy-bootstrap"]);
        let (mut manager, home) = launch.arg(&bootstrap).spawn();
        manager.wait_for_stdout("the ready line", |text| text.lines().next().map(str::to_owned));
        // As its pod does it.
        let drain = site.spec["drainSeconds"].as_u64().unwrap_or(30).max(1).to_string();
        Self::Envoy { envoy: Envoy::start_with(&bootstrap, &["--drain-time-s", &drain]), manager, _home: home }
    }

    /// What reads the file.
    pub(super) fn reader(&mut self) -> &mut Process {
        match self {
            Self::Native(proxy) => &mut proxy.process,
            Self::Envoy { manager, .. } => manager,
        }
    }

    /// What it says about an endpoint of a backend.
    pub(super) fn endpoint(&self, backend: &str, address: SocketAddr) -> Option<Value> {
        let clusters: Value = match self {
            Self::Native(proxy) => serde_json::from_str(&get(proxy.admin, "/clusters?format=json").unwrap().1).unwrap(),
            Self::Envoy { envoy, .. } => envoy.json("/clusters?format=json"),
        };
        let name = format!("edge-{backend}");
        let cluster =
            clusters["cluster_statuses"].as_array()?.iter().find(|cluster| cluster["name"] == name.as_str())?;
        let is_it = |host: &&Value| {
            let socket = &host["address"]["socket_address"];
            socket["address"] == address.ip().to_string() && socket["port_value"] == address.port()
        };
        cluster["host_statuses"].as_array()?.iter().find(is_it).cloned()
    }
}

/// Waits until a name is answered by this one alone: an Envoy's threads learn of a change one after the other.
#[track_caller]
pub(super) fn becomes_only(door: SocketAddr, name: &str, expected: &str) {
    wait_until(&format!("{expected} alone for {name}"), PATIENCE, || {
        (0..20).all(|_| answer(door, name).as_deref() == Some(expected)).then_some(())
    });
}
