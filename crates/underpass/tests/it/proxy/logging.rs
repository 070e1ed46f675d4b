//! How much is logged: as much as the file says, unless the command line does.

use serde_json::json;

use underpass_testbed::Signal;

use super::{Backend, PATIENCE, Proxy, Site, assert_contains, open, wait_until};

fn site(level: &str) -> Site {
    let mut site = Site::new().with("api", "api.example.com", &Backend::start("api"));
    site.spec["logLevel"] = json!(level);
    site.write();
    site
}

/// Lines come in order: what should have stood before this one is not coming any more.
fn wait_for(proxy: &mut Proxy, text: &str) {
    proxy.process.wait_for_stderr(text, |said| said.contains(text).then_some(()));
}

#[test]
fn the_level_in_the_file_is_obeyed_and_a_change_of_it_too() {
    let mut site = site("error");
    let mut proxy = Proxy::start(&site);
    site.spec["logLevel"] = json!("info");
    site.write();
    wait_for(&mut proxy, "configuration applied generation=2");
    assert!(!proxy.process.stderr().contains("configuration applied generation=1"), "{}", proxy.process.stderr());

    site.spec["logLevel"] = json!("warning");
    site.add("bad", "Not A Name", &Backend::start("bad"), &json!({}));
    site.write();
    wait_for(&mut proxy, "invalid configuration: ProxyServer cp/edge, backend bad");
    site.spec["logLevel"] = json!("debug");
    site.write();
    wait_for(&mut proxy, "configuration applied generation=4");
    assert!(!proxy.process.stderr().contains("configuration applied generation=3"), "{}", proxy.process.stderr());
}

#[test]
fn the_command_line_wins() {
    let mut site = site("error");
    let mut proxy = Proxy::start_with(&site, &["--log-level", "info"]);
    wait_for(&mut proxy, "configuration applied generation=1");
    site.spec["drainSeconds"] = json!(5);
    site.write();
    wait_for(&mut proxy, "configuration applied generation=2");
}

#[test]
fn lines_can_be_json() {
    let site = site("info");
    let mut proxy = Proxy::start_with(&site, &["--log-format", "json"]);
    wait_for(&mut proxy, "configuration applied");
    let said = proxy.process.stderr();
    let line = said.lines().find(|line| line.contains("configuration applied")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["fields"]["generation"], 1);
    assert_contains(&line["level"].to_string(), &["INFO"]);
}

#[test]
fn an_access_log_that_nobody_reads_delays_neither_the_start_nor_the_end() {
    let site = site("info");
    let fifo = site.folder().join("access.fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
    let proxy = Proxy::start_with(&site, &["--access-log", &fifo.display().to_string()]);
    drop(open(site.door(), "api.example.com", "api"));
    proxy.process.signal(Signal::TERM);
    let ended = proxy.process.wait();
    assert_eq!(ended.code, Some(0), "{ended}");
}

#[test]
fn an_access_log_that_cannot_be_written_is_told_once_and_counted() {
    let site = site("info");
    let mut proxy = Proxy::start_with(&site, &["--access-log", "/dev/full"]);
    for count in 1..3 {
        drop(open(site.door(), "api.example.com", "api"));
        wait_until("it is counted", PATIENCE, || {
            let counted = format!("underpass_access_log_lost_total {count}\n");
            proxy.page("/stats/prometheus").contains(&counted).then_some(())
        });
    }
    proxy.process.wait_until_told(&["the access log cannot be written"]);
    assert_eq!(proxy.process.stderr().matches("the access log cannot be written").count(), 1);
}
