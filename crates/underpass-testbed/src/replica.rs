//! A running `underpass operator`, as one of several, and what it says of itself.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::http;
use crate::process::Process;
use crate::underpass::Launch;
use crate::wait::{PATIENCE, wait_until};

/// An operator that has said where its pages are.
pub struct Replica {
    pub process: Process,
    pages: SocketAddr,
    _home: TempDir,
}

impl Replica {
    /// One that calls itself `name`, and shares a lease in `namespace`.
    #[track_caller]
    pub fn start(binary: &str, kubeconfig: &Path, namespace: &str, name: &str) -> Self {
        let launch = Launch::command(binary, "operator").arg("--kubeconfig").arg(kubeconfig);
        Self::launch(launch.env("POD_NAMESPACE", namespace).env("POD_NAME", name))
    }

    /// One that was told everything but where to listen.
    #[track_caller]
    pub fn launch(launch: Launch) -> Self {
        Self::listening(launch, "127.0.0.1:0")
    }

    /// One that has its pages there, on a port of the system's choice.
    #[track_caller]
    pub fn listening(launch: Launch, address: &str) -> Self {
        let (mut process, home) = launch.args(["--listen", address]).spawn();
        let pages = process.wait_for_stderr("where its pages are", |text| {
            let line: Value = text.lines().find(|line| line.contains("operator started"))?.parse().ok()?;
            line["fields"]["listen"].as_str()?.parse().ok()
        });
        Self { process, pages, _home: home }
    }

    /// Waits until it has the lease; it may not have seen anything yet.
    #[track_caller]
    pub fn leading(mut self) -> Self {
        self.process.wait_until_told(&["controllers started"]);
        self
    }

    /// Waits until it works.
    #[track_caller]
    pub fn working(mut self) -> Self {
        self.process.wait_for_stderr("work", |text| text.contains("controllers started").then_some(()));
        self.ready("working\n");
        self
    }

    /// Waits until it waits for another.
    #[track_caller]
    pub fn waiting(mut self) -> Self {
        self.process.wait_for_stderr("waiting", |text| text.contains("this one waits").then_some(()));
        self
    }

    /// Waits until it is ready, and says so in these words.
    #[track_caller]
    pub fn ready(&self, said: &str) {
        let ready = || (self.get("/readyz") == (200, said.to_owned())).then_some(());
        wait_until(&format!("/readyz with {said:?}"), PATIENCE, ready);
    }

    /// Status and text of one of its pages.
    #[track_caller]
    pub fn get(&self, path: &str) -> (u16, String) {
        self.get_by(self.pages.ip(), path)
    }

    /// The same, by another of its addresses than the one that it names.
    #[track_caller]
    pub fn get_by(&self, ip: IpAddr, path: &str) -> (u16, String) {
        let address = SocketAddr::from((ip, self.pages.port()));
        http::get(address, path).unwrap_or_else(|error| panic!("{path} of {address}: {error}"))
    }

    /// One number of /metrics, if there is one and it comes in time.
    pub fn number(&self, series: &str) -> Option<f64> {
        let (_, page) = http::get(self.pages, "/metrics").ok()?;
        page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }

    /// Ends it at once, as a crash would.
    #[track_caller]
    pub fn kill(self) {
        self.process.signal(Signal::KILL);
        self.process.wait();
    }

    /// Ends it in order, and looks at what it has logged.
    #[track_caller]
    pub fn ends_well(self) {
        self.process.signal(Signal::TERM);
        let ended = self.process.wait();
        assert_eq!(ended.code, Some(0), "{ended}");
        for line in ended.stderr.lines() {
            assert!(line.parse::<Value>().is_ok_and(|line| line["level"].is_string()), "not a line of JSON: {line}");
        }
    }
}
