//! When this process or this machine has nothing left to make connections with.

use std::io::{Read, Write};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use super::{Backend, PATIENCE, Proxy, Site, assert_contains, connect, hello, open, wait_until};

/// The limit under which a process can open so many descriptors more.
fn limit_for_more(pid: u32, more: usize) -> u64 {
    let numbers = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let used: Vec<u64> = numbers.map(|entry| entry.unwrap().file_name().to_string_lossy().parse().unwrap()).collect();
    (0..).filter(|number| !used.contains(number)).nth(more).unwrap()
}

#[test]
fn what_we_lack_is_not_held_against_an_endpoint() {
    let site = Site::new().with("api", "api.example.com", &Backend::start("api"));
    site.write();
    let proxy = Proxy::start(&site);
    let Rlimit { current: before, maximum } = getrlimit(Resource::Nofile);
    let limit = |current| {
        let pid = Pid::from_raw(proxy.process.pid().try_into().unwrap());
        prlimit(pid, Resource::Nofile, Rlimit { current, maximum }).unwrap();
    };
    // Enough to accept, not enough to dial.
    limit(Some(limit_for_more(proxy.process.pid(), 1)));
    wait_until("it lacks descriptors", PATIENCE, || {
        let mut client = connect(site.door()).unwrap();
        client.write_all(&hello("api.example.com")).unwrap();
        let _ = client.read(&mut [0]);
        proxy.process.stdout().contains("\"end\":\"out_of_resources\"").then_some(())
    });
    limit(before);
    assert_contains(&proxy.page("/clusters"), &["::cx_connect_fail::0\n"]);
    let _served = open(site.door(), "api.example.com", "api");
}
