//! What keeps a proxy from starting, and what does not.

use std::net::TcpListener;

use serde_json::json;

use super::{Backend, Proxy, Site, assert_contains, becomes, launch, who};

#[test]
fn people_are_told_where_it_listens() {
    let api = Backend::start("api");
    let site = Site::new().with("api", "api.example.com", &api);
    site.write();
    let (mut process, _home) = launch(&site).spawn();
    let text = process.wait_for_stdout("the ready block", |text| text.contains("pid").then(|| text.to_owned()));
    let (door, pid) = (site.door(), process.pid());
    assert_contains(
        &text,
        &["underpass proxy is ready\n", &format!("  listener  {door}\n"), &format!("  pid       {pid}\n")],
    );
}

#[test]
fn a_port_that_is_taken_is_named() {
    let api = Backend::start("api");
    let site = Site::new().with("api", "api.example.com", &api);
    site.write();
    let _taken = TcpListener::bind(site.door()).unwrap();
    let ended = launch(&site).run();
    assert_eq!(ended.code, Some(1), "{ended}");
    assert_contains(&ended.stderr, &["underpass: nothing can be listened on", &site.door().to_string()]);
}

#[test]
fn one_port_that_is_taken_does_not_keep_the_others_from_serving() {
    let api = Backend::start("api");
    let mut site = Site::new().with("api", "api.example.com", &api);
    site.add("other", "other.example.com", &api, &json!({ "port": 10_444 }));
    site.write();
    let taken = TcpListener::bind((site.address, 10_444)).unwrap();
    let proxy = Proxy::start(&site);
    assert_eq!(who(site.door(), "api.example.com"), Ok("api".into()));
    assert_contains(&proxy.config()["rejects"].to_string(), &["edge-listener-10444"]);
    drop(taken);
    // Nothing else has to change for it to be tried again.
    let door = (site.address, 10_444).into();
    proxy.wait_for_listener(door);
    becomes(door, "other.example.com", Ok("api"));
}

#[test]
fn an_admin_port_that_is_taken_is_named() {
    let api = Backend::start("api");
    let site = Site::new().with("api", "api.example.com", &api);
    site.write();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = taken.local_addr().unwrap().to_string();
    let file = site.file();
    let launch = underpass_testbed::Launch::command(crate::BINARY, "proxy").file(&file);
    let ended = launch.arg("--admin").arg(&admin).run();
    assert_eq!(ended.code, Some(1), "{ended}");
    assert_contains(&ended.stderr, &[&format!("the port {admin} cannot be opened"), "--admin"]);
}

#[test]
fn a_file_that_cannot_be_used_ends_the_start() {
    let api = Backend::start("api");
    let site = Site::new().with("api", "Not A Name", &api);
    let missing = launch(&site).run();
    assert_eq!(missing.code, Some(1), "{missing}");
    assert_contains(&missing.stderr, &["underpass: cannot read", "proxy.yaml"]);
    site.write();
    let nothing = launch(&site).run();
    assert_eq!(nothing.code, Some(1), "{nothing}");
    assert_contains(&nothing.stderr, &["nothing can be listened on", "backend api: spec.backends[0].hostname"]);
}
