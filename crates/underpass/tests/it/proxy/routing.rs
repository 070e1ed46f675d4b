//! Who gets a connection.

use std::io::{Read, Write};

use serde_json::json;

use super::site::UNKNOWN_NAME;
use super::{Backend, Proxy, Site, assert_contains, connect, who};

#[test]
fn exact_before_wildcard_before_default_and_unknown_names_are_refused() {
    let (api, apps, console) = (Backend::start("api"), Backend::start("apps"), Backend::start("console"));
    let site = Site::new()
        .with("apps", "*.apps.example.com", &apps)
        .with_options(
            "console",
            "console.apps.example.com",
            &console,
            &json!({ "alternateHostnames": ["c.example.com"] }),
        )
        .with_options("api", "api.example.com", &api, &json!({ "default": true }));
    site.write();
    let proxy = Proxy::start(&site);
    let door = site.door();
    assert_eq!(proxy.listeners, [door]);
    for (name, expected) in [
        ("api.example.com", Ok("api")),
        ("API.Example.COM", Ok("api")),
        ("console.apps.example.com", Ok("console")),
        ("c.example.com", Ok("console")),
        ("x.apps.example.com", Ok("apps")),
        ("x.y.apps.example.com", Ok("apps")),
        ("192.0.2.1", Ok("api")),
        ("apps.example.com", Err(UNKNOWN_NAME)),
        ("example.com", Err(UNKNOWN_NAME)),
    ] {
        assert_eq!(who(door, name), expected.map(str::to_owned), "{name}");
    }
    assert_contains(
        &proxy.page("/stats/prometheus"),
        &["underpass_connections_refused_total{listener=\"edge-listener-10443\"} 2\n"],
    );
}

#[test]
fn without_a_default_the_api_server_gets_what_has_no_name() {
    let (api, web) = (Backend::start("api"), Backend::start("web"));
    let site = Site::new().with("web", "web.example.com", &web).with_options(
        "kube-apiserver",
        "api.example.com",
        &api,
        &json!({ "protocol": "TCP" }),
    );
    site.write();
    let _proxy = Proxy::start(&site);
    assert_eq!(who(site.door(), "192.0.2.1"), Ok("api".into()));
}

#[test]
fn bytes_that_are_not_tls_go_only_to_a_single_tcp_backend() {
    let (alone, one, two) = (Backend::start("alone"), Backend::start("one"), Backend::start("two"));
    let site = Site::new()
        .with_options("alone", "alone.example.com", &alone, &json!({ "protocol": "TCP", "port": 10_022 }))
        .with_options("one", "one.example.com", &one, &json!({ "protocol": "TCP" }))
        .with("two", "two.example.com", &two);
    site.write();
    let _proxy = Proxy::start(&site);
    let say = |port: u16| {
        let mut client = connect((site.address, port).into()).unwrap();
        client.write_all(b"SSH-2.0-client\r\n").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // A refusal may come as a reset.
        let _ = client.read_to_end(&mut answer);
        answer
    };
    assert_eq!(say(10_022), b"alone");
    assert_eq!(say(super::site::PORT), b"");
}

#[test]
fn a_connection_leaves_one_line_in_the_access_log() {
    let api = Backend::start("api");
    let site = Site::new().with("api", "api.example.com", &api);
    site.write();
    let log = site.folder().join("access.log");
    let proxy = Proxy::start_with(&site, &["--access-log", log.to_str().unwrap()]);
    assert_eq!(who(site.door(), "api.example.com"), Ok("api".into()));
    proxy.process.signal(underpass_testbed::Signal::TERM);
    let ended = proxy.process.wait();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_eq!(ended.stdout.lines().count(), 1, "only the ready line: {ended}");
    let line: serde_json::Value = serde_json::from_str(std::fs::read_to_string(log).unwrap().trim()).unwrap();
    assert_eq!((&line["route"], &line["server_name"]), (&"edge-api".into(), &"api.example.com".into()));
}
