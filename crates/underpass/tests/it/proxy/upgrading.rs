//! One process takes over from another: under load, nobody is refused.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;

use underpass_testbed::Signal;

use super::{Backend, PATIENCE, Proxy, Site, assert_carries, assert_contains, get, open, wait_until};

#[test]
fn a_newer_process_takes_the_ports_over_and_nobody_is_refused() {
    let api = Backend::start("api");
    let mut site = Site::new().with("api", "api.example.com", &api);
    site.spec["drainSeconds"] = 600.into();
    site.write();
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("handover");
    let handover = ["--handover", path.to_str().unwrap()];
    let old = Proxy::start_with(&site, &handover);
    let mut long = open(site.door(), "api.example.com", "api");

    let load = Load::start(site.door());
    load.go_on("the old one serves");
    let new = Proxy::start_at(&site, &old.admin.to_string(), &handover);
    load.go_on("somebody serves");
    assert_eq!(get(old.admin, "/ready").unwrap().0, 200, "the admin port is the new one's");
    drop(load);
    assert_carries(&mut long);
    drop(long);
    let ended = old.process.wait();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_contains(&ended.stderr, &["another process has taken over", "drained"]);

    open(site.door(), "api.example.com", "api");
    new.process.signal(Signal::TERM);
    assert_eq!(new.process.wait().code, Some(0));
    assert!(!path.exists(), "the last one leaves no socket behind");
}

/// Connections, one after the other, until it is dropped; each of them has to be answered.
struct Load {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    fn start(door: SocketAddr) -> Self {
        let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counter) = (stop.clone(), served.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Relaxed) {
                open(door, "api.example.com", "api");
                counter.fetch_add(1, Relaxed);
            }
        });
        Self { stop, served, thread: Some(thread) }
    }

    fn go_on(&self, what: &str) {
        let before = self.served.load(Relaxed);
        wait_until(what, PATIENCE, || (self.served.load(Relaxed) > before + 50).then_some(()));
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking(), "a connection was not served");
    }
}

#[test]
fn a_path_that_cannot_be_used_is_told() {
    let api = Backend::start("api");
    let site = Site::new().with("api", "api.example.com", &api);
    site.write();
    let (process, _home) = super::launch(&site).arg("--handover").arg("/proc/nowhere/handover").spawn();
    let ended = process.wait();
    assert_eq!(ended.code, Some(1), "{ended}");
    assert_contains(&ended.stderr, &["/proc/nowhere/handover"]);
}
