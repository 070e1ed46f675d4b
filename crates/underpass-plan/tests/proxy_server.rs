//! Every file in `tables/` is one case: ProxyServers, Services and EndpointSlices (YAML documents), of a cluster if one of them says
//! which names it resolves, a line of dashes, and the table as a person reads it. `UPDATE=1 cargo test -p underpass-plan` rewrites the tables; read the difference before you commit it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod snapshots;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use proptest::prelude::*;
use serde_json::{Value, json};
use underpass_plan::proxy_server::{
    Cluster, Observed, Proofs, Question, Way, backends, crossings, explain, relay_table,
};
use underpass_resources::ProxyServer;
use underpass_tables::{Endpoint, Expects, Listener, Opening, RelayTable, Route, Transport};

#[derive(Clone, Default)]
struct Objects {
    proxies: Vec<ProxyServer>,
    services: Vec<Service>,
    slices: Vec<EndpointSlice>,
    cluster: Option<Cluster>,
}

/// What a case says of the cluster that its objects are in, where they are not in a file.
fn cluster(document: &Value) -> Cluster {
    let read = |(name, addresses): (&String, &Value)| {
        let addresses: Vec<IpAddr> = serde_json::from_value(addresses.clone()).unwrap();
        (name.clone(), Ok(addresses))
    };
    let names = document["names"].as_object().into_iter().flatten().map(read).collect();
    let pod_ip = serde_json::from_value(document["podIP"].clone()).unwrap();
    Cluster { names, pod_ip, ..Cluster::default() }
}

impl Objects {
    fn read(documents: &[Value]) -> Self {
        let mut objects = Self::default();
        for document in documents.iter().filter(|document| !document.is_null()) {
            match document["kind"].as_str().unwrap() {
                "ProxyServer" => objects.proxies.push(serde_json::from_value(document.clone()).unwrap()),
                "Service" => objects.services.push(serde_json::from_value(document.clone()).unwrap()),
                "EndpointSlice" => objects.slices.push(serde_json::from_value(document.clone()).unwrap()),
                "Cluster" => objects.cluster = Some(cluster(document)),
                kind => panic!("{kind} has nothing to do with proxies"),
            }
        }
        objects
    }

    fn observed(&self) -> Observed<'_> {
        Observed {
            proxies: self.proxies.iter().collect(),
            services: self.services.iter().collect(),
            slices: self.slices.iter().collect(),
            cluster: self.cluster.as_ref(),
        }
    }

    fn table(&self) -> RelayTable {
        relay_table(7, &self.observed())
    }
}

/// A proof is of the backends that there were when it was made.
#[test]
fn a_backend_that_is_new_is_not_ready_before_it_was_tried() {
    let text = include_str!("tables/hosted-cluster.txt").split("\n---- table\n").next().unwrap();
    let objects = Objects::read(&serde_saphyr::from_multiple(text).unwrap());
    let (proxy, table) = (&objects.proxies[0], objects.table());
    let mut before = all_crossed(&objects);
    let new = before.pop_first().unwrap();
    let status = |proofs| {
        let all = backends(proxy, &table, proofs, &BTreeMap::new());
        all.into_iter().find(|status| status.name == new.0.backend).unwrap()
    };
    assert_eq!((status(Some(&before)).ready, status(Some(&before)).reason.as_deref()), (false, Some("NotTried")));
    let now = Proofs::from([new.clone()]);
    assert!(status(Some(&now)).ready);
    assert_eq!(status(None).reason.as_deref(), Some("NotTried"));
}

/// What is Ready for a new generation was proven for it. What comes and goes behind the same Service is nothing new.
#[test]
fn a_backend_that_was_changed_is_not_ready_before_it_was_tried_again() {
    let before = json!({
        "name": "b", "hostname": "b.example.com", "port": 443,
        "targetService": "web", "targetNamespace": "n", "targetPort": 443,
    });
    let [mut web, mut slice] = service("web");
    web["spec"]["ports"] = json!([{ "name": "p", "port": 443 }, { "name": "q", "port": 8443 }]);
    slice["ports"] = web["spec"]["ports"].clone();
    let other = service("other");
    let read = |backend: &Value, slice: &Value| {
        Objects::read(
            &[&[proxy("edge", "192.0.2.4", std::slice::from_ref(backend)), web.clone(), slice.clone()], &other[..]]
                .concat(),
        )
    };
    let proofs = all_crossed(&read(&before, &slice));
    let reason = |objects: &Objects| {
        backends(&objects.proxies[0], &objects.table(), Some(&proofs), &BTreeMap::new()).remove(0).reason
    };
    assert_eq!(reason(&read(&before, &slice)), None);
    for (field, value) in [
        ("targetPort", json!(8443)),
        ("targetService", json!("other")),
        ("port", json!(6443)),
        ("hostname", json!("c.example.com")),
        ("protocol", json!("TLS")),
        ("maxConnections", json!(1)),
        ("proxyProtocol", json!({ "accept": true })),
        ("proxyProtocol", json!({ "send": "V2" })),
    ] {
        let mut now = before.clone();
        now[field] = value;
        assert_eq!(reason(&read(&now, &slice)).as_deref(), Some("NotTried"), "{now}");
    }
    slice["endpoints"] = json!([{ "addresses": ["10.0.0.7"] }]);
    assert_eq!(reason(&read(&before, &slice)), None);
}

/// The proofs of when everything worked.
fn all_crossed(objects: &Objects) -> Proofs {
    let tried = crossings(&objects.proxies[0], &objects.table());
    tried.into_iter().map(|crossing| (crossing.passage, Ok(()))).collect()
}

/// Whoever may write a Service says where a name leads to. It must not be the proxy's own pages, nor what a node keeps for itself.
#[test]
fn a_name_opens_no_door_into_the_pod_or_its_node() {
    let to = |address: &str, port: u16| {
        let proxy = json!({
            "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer",
            "metadata": { "name": "edge", "namespace": "n" },
            "spec": {
                "networkConfig": { "serverIP": "192.0.2.4/24" },
                "backends": [{ "name": "b", "hostname": "b.example.com", "port": 6443, "targetService": "s", "targetNamespace": "n", "targetPort": port }],
            },
        });
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "s", "namespace": "n" },
            "spec": { "type": "ExternalName", "externalName": "elsewhere.example.com" },
        });
        let cluster = json!({ "kind": "Cluster", "names": { "elsewhere.example.com": [address] } });
        let objects = Objects::read(&[proxy, service, cluster]);
        let table = objects.table();
        let route = &table.routes[0];
        (route.endpoints.len(), route.trouble.clone())
    };
    let own = "service n/s leads to 127.0.0.1:9901: there listens the proxy itself";
    assert_eq!(to("127.0.0.1", 9901), (0, Some(own.to_owned())));
    for (address, port) in [("127.0.0.9", 9902), ("::1", 9903), ("::ffff:127.0.0.1", 18000), ("127.0.0.1", 6443)] {
        let (endpoints, trouble) = to(address, port);
        assert_eq!(endpoints, 0, "{address}:{port}");
        assert!(trouble.unwrap().ends_with(": there listens the proxy itself"), "{address}:{port}");
    }
    for address in ["169.254.169.254", "fe80::1", "::ffff:169.254.169.254", "0.0.0.0", "::", "224.0.0.1", "ff02::1"] {
        let (endpoints, trouble) = to(address, 80);
        assert_eq!(endpoints, 0, "{address}");
        assert!(trouble.unwrap().ends_with(": no service has such an address"), "{address}");
    }
    for (address, port) in [("192.0.2.9", 9901), ("2001:db8::9", 443), ("127.0.0.1", 8080)] {
        assert_eq!(to(address, port), (1, None), "{address}:{port}");
    }
}

/// Every connection would come back to the port by which it came, with the same name, and so without end. One look at the backend begins it.
#[test]
fn a_service_that_leads_to_the_proxy_itself_is_not_served() {
    let read = |others: &[&str], address: &str, number: u16, outside: bool, attached: bool, cluster: Option<&Value>| {
        let mut proxy = proxy(
            "edge",
            "192.0.2.4/24",
            &[json!({
                "name": "b", "hostname": "b.example.com", "port": 6443,
                "targetService": "s", "targetNamespace": "n", "targetPort": if outside { number } else { 443 },
            })],
        );
        let [mut service, mut slice] = service("s");
        let all = others.iter().chain([&address]).map(|address| json!({ "addresses": [address] }));
        slice["endpoints"] = all.collect();
        slice["ports"][0]["port"] = json!(number);
        proxy["spec"]["networkConfig"]["networkAttachmentName"] = if attached { json!("vlan") } else { Value::Null };
        if outside {
            service["spec"] = json!({ "type": "ExternalName", "externalName": "b.example.com" });
        }
        let mut documents = vec![proxy, service, slice];
        if let Some(cluster) = cluster {
            let mut cluster = cluster.clone();
            cluster["names"] = json!({ "b.example.com": [address] });
            documents.push(cluster);
        }
        Objects::read(&documents).table()
    };
    let cluster = json!({ "kind": "Cluster", "podIP": "10.0.0.4" });
    let table =
        |address: &str, port, outside, cluster: Option<&Value>| read(&[], address, port, outside, true, cluster);
    for outside in [false, true] {
        for (address, port) in [("192.0.2.4", 6443), ("::ffff:192.0.2.4", 6443), ("10.0.0.4", 6443), ("10.0.0.4", 9902)]
        {
            let route = table(address, port, outside, Some(&cluster)).routes.remove(0);
            let itself = std::net::SocketAddr::new(address.parse().unwrap(), port);
            let trouble = format!("service n/s leads to {itself}: there listens the proxy itself");
            assert_eq!((route.endpoints.len(), route.trouble.as_ref()), (0, Some(&trouble)), "{address}:{port}");
        }
        for (address, port) in [("192.0.2.4", 443), ("10.0.0.4", 443), ("192.0.2.5", 6443), ("10.0.0.5", 6443)] {
            let route = table(address, port, outside, Some(&cluster)).routes.remove(0);
            assert_eq!(route.trouble, None, "{address}:{port}");
        }
    }
    let nobodys = json!({ "kind": "Cluster" });
    assert_eq!(table("10.0.0.4", 6443, false, Some(&nobodys)).routes[0].trouble, None, "in no pod");
    assert_eq!(table("192.0.2.4", 6443, false, None).routes[0].trouble, None, "in a file");
    let alone = read(&[], "192.0.2.4", 6443, false, false, Some(&cluster));
    assert_eq!(alone.routes[0].trouble, None, "no pod has it without a network of its own");
    let among = read(&["10.0.0.9"], "10.0.0.4", 6443, false, true, Some(&cluster)).routes.remove(0);
    assert_eq!(
        (among.open().collect::<Vec<_>>(), among.trouble.as_ref()),
        (vec!["10.0.0.9:6443".parse().unwrap()], None)
    );
}

#[test]
fn servers_may_speak_anything_where_a_port_has_one_tcp_backend() {
    let text = include_str!("tables/plain-only-for-a-single-tcp-backend.txt").split("\n---- table\n").next().unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let objects = Objects::read(&documents);
    let tried = crossings(&objects.proxies[0], &objects.table());
    let plain = tried.iter().map(|tried| &tried.passage).filter(|passage| passage.plain);
    let plain: Vec<&str> = plain.map(|passage| passage.backend.as_str()).collect();
    assert_eq!(plain, ["ssh"]);
    assert!(tried.len() > plain.len(), "{tried:?}");
}

/// Whoever reads only that word looks in the right place.
#[test]
fn what_is_left_out_says_whether_it_is_a_duplicate() {
    let backend = |name: &str, port: u16, more: Value| {
        let mut backend = json!({
            "name": name, "hostname": format!("{name}.example.com"), "port": port,
            "targetService": "web", "targetNamespace": "n", "targetPort": 443,
        });
        backend.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        backend
    };
    let all = [
        backend("first", 443, json!({ "default": true })),
        backend("name", 443, json!({ "hostname": "first.example.com" })),
        backend("default", 443, json!({ "default": true })),
        backend("header", 443, json!({ "proxyProtocol": { "accept": true } })),
        backend("datagrams", 53, json!({ "protocol": "UDP" })),
        backend("more-datagrams", 53, json!({ "protocol": "UDP" })),
        backend("own-port", 9901, json!({})),
    ];
    let objects = Objects::read(&[&[proxy("edge", "192.0.2.4", &all)], &service("web")[..]].concat());
    let told = backends(&objects.proxies[0], &objects.table(), None, &BTreeMap::new());
    let left_out = |reason: &str| {
        let these = told.iter().filter(|backend| backend.reason.as_deref() == Some(reason));
        these.map(|backend| backend.name.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(left_out("DuplicateMatch"), ["default", "more-datagrams", "name"]);
    assert_eq!(left_out("Excluded"), ["header", "own-port"]);
}

/// By its own proofs a proxy turns no client away.
#[test]
fn proofs_take_no_place_of_a_backend_that_takes_only_so_many() {
    let backend = |name: &str| {
        json!({
            "name": name, "hostname": format!("{name}.example.com"), "port": 443,
            "targetService": "web", "targetNamespace": "n", "targetPort": 443,
        })
    };
    let [mut few, many] = ["few", "many"].map(backend);
    few["maxConnections"] = json!(1);
    let objects = Objects::read(&[&[proxy("edge", "192.0.2.4", &[few, many])], &service("web")[..]].concat());
    let tried = crossings(&objects.proxies[0], &objects.table());
    let tried = tried.iter().map(|tried| &tried.passage);
    let careful: Vec<(&str, bool)> = tried.map(|passage| (passage.backend.as_str(), passage.takes_a_place)).collect();
    assert_eq!(careful, [("few", true), ("many", false)]);
}

#[test]
fn every_case_gives_its_table() {
    snapshots::check("tables", "\n---- table\n", |name, input| {
        let read = |part| serde_saphyr::from_str(part).unwrap_or_else(|error| panic!("{name}: {error}"));
        let documents: Vec<Value> = input.split("\n---\n").map(read).collect();
        show(&Objects::read(&documents).table())
    });
}

fn show(table: &RelayTable) -> String {
    let mut text = String::new();
    for listener in &table.listeners {
        show_listener(&mut text, table, listener);
    }
    for route in &table.routes {
        show_route(&mut text, route);
    }
    if table.limits != Default::default() {
        writeln!(text, "limits {:?}", table.limits).unwrap();
    }
    writeln!(text, "drain {:?}", table.drain).unwrap();
    if table.log_level != Default::default() {
        writeln!(text, "log {}", table.log_level.as_str()).unwrap();
    }
    for reject in &table.rejects {
        writeln!(text, "reject {}: {}", reject.entry, reject.reason).unwrap();
    }
    text
}

fn show_listener(text: &mut String, table: &RelayTable, listener: &Listener) {
    let Listener { name, address, transport, proxy_header, expects, rules } = listener;
    assert_eq!(*expects, Expects::Hello);
    let header = if *proxy_header { " after a PROXY header" } else { "" };
    writeln!(text, "listener {name} {address} {transport:?}{header}").unwrap();
    let name = |route: underpass_tables::RouteId| &table.routes[route.0].name;
    for (pattern, route) in rules.names() {
        writeln!(text, "  {pattern} -> {}", name(route)).unwrap();
    }
    if let Some(unnamed) = rules.unnamed {
        writeln!(text, "  ({}) -> {}", unnamed.rule.as_str(), name(unnamed.route)).unwrap();
    }
    if let Some(route) = rules.plain {
        let what = if *transport == Transport::Datagram { "datagrams" } else { "not TLS" };
        writeln!(text, "  ({what}) -> {}", name(route)).unwrap();
    }
}

/// What a backend has when it does not say otherwise is not shown.
fn show_route(text: &mut String, route: &Route) {
    writeln!(text, "route {} -> {}", route.name, route.target).unwrap();
    let [usual, fields] = [&Route::new("", "", Vec::new()), route].map(|route| serde_json::to_value(route).unwrap());
    let shown = ["name", "target", "endpoints", "trouble"];
    for (field, value) in fields.as_object().unwrap() {
        if !shown.contains(&field.as_str()) && *value != usual[field] {
            writeln!(text, "  {field}: {value}").unwrap();
        }
    }
    for Endpoint { address, zone, draining } in &route.endpoints {
        let zone = zone.as_ref().map(|zone| format!(" in {zone}")).unwrap_or_default();
        let draining = if *draining { ", draining" } else { "" };
        writeln!(text, "  endpoint {address}{zone}{draining}").unwrap();
    }
    if let Some(trouble) = &route.trouble {
        writeln!(text, "  trouble: {trouble}").unwrap();
    }
}

fn proxy(name: &str, address: &str, backends: &[Value]) -> Value {
    json!({
        "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer",
        "metadata": { "name": name, "namespace": "n" },
        "spec": { "networkConfig": { "serverIP": address }, "backends": backends },
    })
}

fn service(name: &str) -> [Value; 2] {
    let port = json!([{ "name": "p", "port": 443 }]);
    [
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": "n" }, "spec": { "ports": port } }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": { "name": name, "namespace": "n", "labels": { "kubernetes.io/service-name": name } },
            "ports": port, "endpoints": [{ "addresses": ["10.0.0.9"] }, { "addresses": ["10.0.0.8"] }],
        }),
    ]
}

/// A backend out of few names and ports, so that they get in each other's way.
fn backend() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec!["a", "b", "c", "d", "e"]);
    let host = prop::sample::select(vec!["a.x", "b.x", "*.x", "c.y", "*.y", "d.z"]);
    let other = prop::option::of(prop::sample::select(vec!["e.z", "a.x", "f.z"]));
    let target = prop::sample::select(vec!["kube-apiserver", "konnectivity-server", "web", "missing"]);
    let protocol = prop::sample::select(vec!["TCP", "TLS", "UDP"]);
    (name, host, other, prop::sample::select(vec![443, 6443, 9901]), target, protocol, prop::bool::weighted(0.3), prop::bool::weighted(0.1))
        .prop_map(|(name, host, other, port, target, protocol, default, accept)| {
            json!({
                "name": name, "hostname": host, "alternateHostnames": other.into_iter().collect::<Vec<_>>(), "port": port,
                "targetService": target, "targetNamespace": "n", "targetPort": 443, "protocol": protocol, "default": default,
                "proxyProtocol": { "accept": accept },
            })
        })
}

fn documents(first: &[Value], second: &[Value]) -> Vec<Value> {
    let mut documents =
        vec![proxy("one", "10.0.0.1", first), proxy("two", "10.0.0.1", second), proxy("three", "10.0.0.3", second)];
    documents.extend(["kube-apiserver", "konnectivity-server", "web"].iter().flat_map(|name| service(name)));
    documents
}

fn carried(table: &RelayTable) -> String {
    serde_json::to_string(&(&table.listeners, &table.routes, &table.limits)).unwrap()
}

proptest! {
    #[test]
    fn any_order_of_documents_gives_the_same_table(
        first in prop::collection::vec(backend(), 1..8),
        second in prop::collection::vec(backend(), 1..5),
        seed in any::<prop::sample::Index>(),
    ) {
        let documents = documents(&first, &second);
        let mut turned = documents.clone();
        turned.rotate_left(seed.index(documents.len()));
        let mut reversed = turned.clone();
        reversed.reverse();
        let expected = serde_json::to_string(&Objects::read(&documents).table()).unwrap();
        for other in [turned, reversed] {
            prop_assert_eq!(&serde_json::to_string(&Objects::read(&other).table()).unwrap(), &expected);
        }
    }

    /// The table is the one that their author would have got without writing the entries that were refused.
    #[test]
    fn a_refused_entry_changes_nothing_for_the_others(
        first in prop::collection::vec(backend(), 1..10),
        second in prop::collection::vec(backend(), 1..5),
    ) {
        // Of two with one name it could not be seen from the table which is served.
        let mut objects = Objects::read(&documents(&each_with_its_name(first), &each_with_its_name(second)));
        let offered: usize = objects.proxies.iter().map(|proxy| proxy.spec.backends.len()).sum();
        let table = objects.table();
        prop_assert_eq!(table.routes.len() + table.rejects.len(), offered);
        for proxy in &mut objects.proxies {
            let name = proxy.metadata.name.clone().unwrap();
            let served = |backend: &str| table.routes.iter().any(|route| route.name == format!("{name}-{backend}"));
            proxy.spec.backends.retain(|backend| served(&backend.name));
        }
        let without = objects.table();
        prop_assert_eq!(&without.rejects, &[]);
        prop_assert_eq!(carried(&without), carried(&table));
    }

    /// An explanation says what the table does, and its last rule is the one that decides.
    #[test]
    fn explanations_agree_with_the_table(
        first in prop::collection::vec(backend(), 1..8),
        name in prop::option::of(prop::sample::select(vec!["a.x", "x", "q.x", "q.r.y", "d.z", "nowhere"])),
        port in prop::sample::select(vec![443_u16, 6443]),
    ) {
        let table = Objects::read(&documents(&first, &[])).table();
        let opening = name.map_or(Opening::Unnamed, Opening::Named);
        let explanation = explain(&table, &Question { port, source: None, opening });
        for answer in explanation.listeners {
            let listener = table.listeners.iter().find(|listener| listener.name == answer.listener).unwrap();
            let last = &answer.steps.last().unwrap().finding;
            match (listener.rules.choose(opening), answer.way) {
                (Ok((id, _)), Way::Connect { route, .. }) => {
                    prop_assert_eq!(&table.routes[id.0].name, &route);
                    prop_assert_eq!(last, &format!("leads to {route}"));
                }
                (Err(refusal), Way::Refuse { refusal: told, .. }) => {
                    prop_assert_eq!(refusal.as_str(), told);
                    prop_assert_eq!(last, "no backend");
                }
                (chosen, way) => prop_assert!(false, "{chosen:?} but {way:?}"),
            }
        }
    }
}

fn each_with_its_name(mut backends: Vec<Value>) -> Vec<Value> {
    for (number, backend) in backends.iter_mut().enumerate() {
        backend["name"] = format!("b{number}").into();
    }
    backends
}

#[test]
fn ten_thousand_backends_are_rendered_in_no_time() {
    let backends: Vec<Value> = (0..10_000)
        .map(|number| {
            json!({
                "name": format!("b{number}"), "hostname": format!("b{number}.example.com"), "port": 443,
                "targetService": format!("s{number}"), "targetNamespace": "n", "targetPort": 443, "protocol": "TLS",
            })
        })
        .collect();
    let mut all = vec![proxy("one", "10.0.0.1", &backends)];
    all.extend((0..10_000).flat_map(|number| service(&format!("s{number}"))));
    let objects = Objects::read(&all);
    let begun = std::time::Instant::now();
    let table = objects.table();
    let took = begun.elapsed();
    assert_eq!((table.routes.len(), table.rejects.len()), (10_000, 0));
    // An optimised build needs a twentieth of this; what grows with the square of the number needs far more.
    assert!(took.as_secs() < 2, "{took:?}");
}
