//! `underpass explain route`: the same answer that the proxy gives.

use serde_json::{Value, json};
use underpass_testbed::{Ended, Launch};

use super::{Backend, Site, assert_contains};
use crate::BINARY;

fn explain(site: &Site, line: &str) -> Ended {
    let launch = Launch::command(BINARY, "explain").arg("route").file(&site.file());
    line.split_whitespace().fold(launch, Launch::arg).run()
}

fn site() -> Site {
    let api = Backend::start("api");
    let sources = json!({ "protocol": "TCP", "sourceCIDRs": ["192.168.100.0/24"] });
    let mut site = Site::new().with_options("kube-apiserver", "api.example.com", &api, &sources).with(
        "apps",
        "*.apps.example.com",
        &api,
    );
    site.add("bad", "api.example.com", &api, &json!({}));
    site.write();
    site
}

#[test]
fn the_rule_that_decides_is_named_with_those_before() {
    let site = site();
    let ended = explain(&site, "--port 10443 --sni A.b.apps.example.com.");
    assert_contains(
        &ended.stdout,
        &[
            "exact name a.b.apps.example.com: no backend\n",
            "wildcard name *.b.apps.example.com: no backend\n",
            "wildcard name *.apps.example.com: leads to edge-apps\n",
            "decides    wildcard name\n",
            "backend    edge-apps\n",
            "service    cp/apps:443\n",
            "endpoint   127.0.0.1:",
        ],
    );
    assert_contains(&ended.stderr, &["refused: ProxyServer cp/edge, backend bad: api.example.com"]);
    assert_eq!(ended.code, Some(0));
}

#[test]
fn a_refusal_is_an_answer() {
    let site = site();
    let unknown = explain(&site, "--port 10443 --sni nowhere.example.com");
    assert_contains(&unknown.stdout, &["refused    unknown_name"]);
    assert_eq!(unknown.code, Some(0));
    assert_contains(&explain(&site, "--port 10443 --plain").stdout, &["refused    not_tls"]);
    let unnamed = "--port 10443 --source";
    assert_contains(
        &explain(&site, &format!("{unnamed} 192.168.100.9")).stdout,
        &["the API server's backend", "edge-kube-apiserver"],
    );
    assert_contains(&explain(&site, &format!("{unnamed} 10.0.0.9")).stdout, &["refused    source_not_allowed"]);
}

#[test]
fn programs_get_json() {
    let text = explain(&site(), "--port 10443 --sni api.example.com -o json").ok();
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["listeners"][0]["way"]["connect"]["route"], "edge-kube-apiserver");
    assert_eq!(answer["listeners"][0]["way"]["connect"]["rule"], "ExactName");
}

#[test]
fn that_nothing_listens_is_an_answer() {
    let site = site();
    let ended = explain(&site, "--port 1");
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "nothing listens on port 1\n"), "{ended}");
    assert_contains(&ended.stderr, &["refused: ProxyServer cp/edge, backend bad"]);
    let answer: Value = serde_json::from_str(&explain(&site, "--port 1 -o json").ok()).unwrap();
    assert_eq!(answer, json!({ "listeners": [] }));
}

#[test]
fn a_question_that_makes_no_sense_is_a_wrong_command_line() {
    let site = site();
    for (line, reason) in [
        ("--port 10443 --sni not_a/name", "not a host name"),
        ("--port 0", "0 is not in 1..=65535"),
        ("--port 10443 --source nowhere", "invalid IP address"),
    ] {
        let ended = explain(&site, line);
        assert_eq!(ended.code, Some(2), "{ended}");
        assert_contains(&ended.stderr, &[reason]);
    }
    let missing =
        Launch::command(BINARY, "explain").arg("route").arg("-f").arg("/nowhere").arg("--port").arg("1").run();
    assert_eq!(missing.code, Some(1), "{missing}");
}
