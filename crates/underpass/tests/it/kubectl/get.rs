//! Reading: formats, selectors, pages, watches.

use std::fmt::Write;

use super::{assert_contains, config_map, network, rows};
use crate::server::Own;
use crate::{apiserver, up};

#[test]
fn kinds_of_ours_have_short_names_and_a_category() {
    let server = up();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", &network("net"));
    assert_eq!(
        kubectl.ok("get ctrnet,cntp,ireq,dhcp,dnssrv,proxy,egw,gwc,ws -o name"),
        "containernetwork.underpass.dev/net\n"
    );
    assert_eq!(kubectl.ok("get underpass -A -o name"), "containernetwork.underpass.dev/net\n");
    kubectl.ok("wait --for=condition=Ready=False ctrnet/net --timeout=60s");
    let table = kubectl.ok("get ctrnet");
    assert_eq!(rows(&table)[0], ["NAME", "STATE", "NETWORK", "READY", "REASON", "AGE"]);
    assert_eq!(rows(&table)[1][..4], ["net", "Pending", "False", "NoContainerEngine"]);
}

#[test]
fn every_output_format_shows_the_object() {
    let server = apiserver();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", &config_map("a", "k", "v w"));
    assert_eq!(rows(&kubectl.ok("get cm a -o wide"))[0], ["NAME", "DATA", "AGE"]);
    assert_eq!(rows(&kubectl.ok("get cm a --show-labels"))[1].last(), Some(&"app=a"));
    assert_eq!(kubectl.ok("get cm a -o name"), "configmap/a\n");
    assert_eq!(kubectl.ok("get cm a -o jsonpath='{.data.k}'"), "v w");
    assert_eq!(kubectl.ok("get cm a -o go-template='{{.data.k}}'"), "v w");
    let columns = kubectl.ok("get cm a -o custom-columns=NAME:.metadata.name,VALUE:.data.k,NONE:.spec");
    assert_eq!(rows(&columns), [vec!["NAME", "VALUE", "NONE"], vec!["a", "v", "w", "<none>"]]);
    assert_contains(&kubectl.ok("get cm a -o yaml"), &["kind: ConfigMap\n", "  k: v w\n", "  resourceVersion: \""]);
    let object = kubectl.json("get cm a");
    assert_eq!((&object["kind"], &object["data"]["k"]), (&"ConfigMap".into(), &"v w".into()));
    let list = kubectl.json("get cm");
    assert_eq!((&list["kind"], list["items"].as_array().unwrap().len()), (&"List".into(), 2));
}

#[test]
fn selectors_and_sorting_choose_and_order() {
    let server = apiserver();
    let kubectl = server.kubectl();
    kubectl.ok_with("create -f -", &["c", "a", "b"].map(|name| config_map(name, "k", name)).join("---\n"));
    assert_eq!(kubectl.ok("get cm -l app -o name"), "configmap/a\nconfigmap/b\nconfigmap/c\n");
    assert_eq!(kubectl.ok("get cm -l 'app notin (a,c),app' -o name"), "configmap/b\n");
    assert_eq!(kubectl.ok("get cm --field-selector=metadata.name!=b -l app -o name"), "configmap/a\nconfigmap/c\n");
    let sorted = kubectl.ok("get cm -l app --sort-by=.metadata.resourceVersion -o name");
    assert_eq!(sorted, "configmap/c\nconfigmap/a\nconfigmap/b\n");
    let refused = kubectl.fails("get cm --field-selector=data.k=a");
    assert_contains(&refused, &["(BadRequest)", "\"data.k\" is not a known field selector"]);
}

#[test]
fn a_long_list_comes_in_pages_and_whole() {
    const COUNT: usize = 1_200;
    let server = apiserver();
    let kubectl = server.kubectl();
    let mut items = String::new();
    for number in 0..COUNT {
        writeln!(
            items,
            "- {{apiVersion: v1, kind: ConfigMap, metadata: {{name: cm-{number:04}, labels: {{many: 'yes'}}}}}}"
        )
        .unwrap();
    }
    kubectl.ok_with("create --validate=false -f -", &format!("apiVersion: v1\nkind: List\nitems:\n{items}"));
    let expected: String = (0..COUNT).fold(String::new(), |text, number| text + &format!("configmap/cm-{number:04}\n"));
    for size in [0, 1, 500, 1_199] {
        // A page per object is a request per object: a few pages show the same.
        let selector = if size == 1 { "--field-selector=metadata.name=cm-0700" } else { "-l many=yes" };
        let names = kubectl.ok(&format!("get cm {selector} --chunk-size={size} -o name"));
        assert!(if size == 1 { names == "configmap/cm-0700\n" } else { names == expected }, "pages of {size}");
    }
    let log = kubectl.run("get cm -l many=yes --chunk-size=500 -o name -v=6").stderr;
    assert_eq!(log.matches("configmaps?").count(), 3, "{log}");
    assert_eq!(log.matches("continue=").count(), 2, "{log}");
    assert_eq!(kubectl.ok("delete cm -l many=yes --wait=false").lines().count(), COUNT);
    assert_eq!(kubectl.ok("get cm -l many=yes -o name"), "");
}

#[test]
fn a_watch_shows_what_is_there_and_every_change() {
    let server = apiserver();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", &config_map("w", "k", "1"));
    let mut watch = kubectl.start("get cm w -w --output-watch-events -o custom-columns=TYPE:.type,K:.object.data.k");
    let seen = |text: &str, wanted: &[&[&str]]| (rows(text).iter().skip(1).eq(wanted.iter())).then_some(());
    watch.wait_for_stdout("the object as it is", |text| seen(text, &[&["ADDED", "1"]]));
    kubectl.ok_with("apply -f -", &config_map("w", "k", "2"));
    watch.wait_for_stdout("the change", |text| seen(text, &[&["ADDED", "1"], &["MODIFIED", "2"]]));
    kubectl.ok("delete cm w");
    watch.wait_for_stdout("the end", |text| seen(text, &[&["ADDED", "1"], &["MODIFIED", "2"], &["DELETED", "2"]]));
}

#[test]
fn a_watch_of_a_table_goes_on_after_the_list() {
    let server = apiserver();
    let kubectl = server.kubectl();
    let mut watch = kubectl.start("get ctrnet -w");
    // Until its list is done, the watch may still miss nothing; the first object tells that it works.
    kubectl.ok_with("apply -f -", &network("first"));
    watch.wait_for_stdout("the first", |text| text.contains("first").then_some(()));
    kubectl.ok_with("apply -f -", &network("second"));
    watch.wait_for_stdout("the second", |text| text.contains("second").then_some(()));
    assert_eq!(watch.stdout().matches("NAME").count(), 1, "{}", watch.stdout());
}

#[test]
fn a_watch_resumes_where_another_ended() {
    let server = apiserver();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", &config_map("w", "k", "1"));
    let version = kubectl.ok("get cm w -o jsonpath='{.metadata.resourceVersion}'");
    kubectl.ok_with("apply -f -", &config_map("w", "k", "2"));
    kubectl.ok("delete cm w");
    let path = "/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Dw";
    let events = kubectl.ok(&format!("get --raw {path}&resourceVersion={version}"));
    let events: Vec<serde_json::Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<_> =
        events.iter().map(|event| (event["type"].as_str(), event["object"]["data"]["k"].as_str())).collect();
    assert_eq!(seen, [(Some("MODIFIED"), Some("2")), (Some("DELETED"), Some("2"))]);
}

#[test]
fn raw_paths_answer() {
    let server = apiserver();
    let kubectl = server.kubectl();
    assert_eq!(kubectl.ok("get --raw /readyz"), "ok");
    assert_eq!(kubectl.ok("get --raw /livez"), "ok");
    assert_contains(&kubectl.ok("get --raw /version"), &["  \"gitVersion\": \"v1."]);
    assert_contains(
        &kubectl.ok("get --raw /metrics"),
        &["# TYPE ", if Own::OpenMetrics.holds() { "# EOF" } else { "" }],
    );
    assert_contains(&kubectl.fails("get --raw /nowhere"), &["(NotFound)"]);
}
