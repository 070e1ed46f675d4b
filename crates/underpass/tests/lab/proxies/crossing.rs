//! Who gets which connection.

use serde_json::json;
use underpass_testbed::{HostedControlPlane, HostedService, Lab};

use super::{Plane, Site, backend};

/// Two hosted clusters behind one address; who answers is known by its certificate, which nobody on the way has the key of.
pub(super) fn by_name_by_port_and_by_default(lab: &Lab, plane: Plane, subnet: u8) {
    let site = Site::new(lab, plane, subnet);
    let (one, other) = (lab.namespace("one"), lab.namespace("other"));
    let api = |names: &[&'static str]| HostedService::tls("kube-apiserver", 6443, names).replicas(2);
    let one_plane = HostedControlPlane::start(
        lab,
        &one,
        &[
            api(&["api.one.example.com"]),
            HostedService::tls("router", 6443, &["www.apps.one.example.com"]),
            HostedService::plain("echo", 6443),
        ],
    );
    let other_plane =
        HostedControlPlane::start(lab, &other, &[api(&["api.other.example.com", "api-int.other.example.com"])]);
    let mut second = backend("api-other", "api.other.example.com", 6443, "kube-apiserver", &other);
    second["alternateHostnames"] = json!(["api-int.other.example.com"]);
    let mut apps = backend("apps", "*.apps.one.example.com", 443, "router", &one);
    apps["protocol"] = json!("TLS");
    let backends = [
        backend("api-one", "api.one.example.com", 6443, "kube-apiserver", &one),
        second,
        apps,
        backend("plain", "echo.one.example.com", 7000, "echo", &one),
    ];
    site.apply(&site.proxy("edge", &backends));
    site.is_ready("edge");
    what_the_object_says(&site);

    let (vm, at) = (lab.machine(&format!("192.168.{subnet}.50/24")), site.server_ip());
    let who = |url: &str, plane: &HostedControlPlane<'_>| {
        let answer = vm.fetch(url, &at, &plane.authority()).ok();
        answer.split(' ').next().unwrap_or_default().to_owned()
    };
    assert_eq!(who("https://api.one.example.com:6443/", &one_plane), one_plane.name_of("kube-apiserver"));
    assert_eq!(who("https://api.other.example.com:6443/", &other_plane), other_plane.name_of("kube-apiserver"));
    assert_eq!(who("https://api-int.other.example.com:6443/", &other_plane), other_plane.name_of("kube-apiserver"));
    assert_eq!(who("https://www.apps.one.example.com:443/", &one_plane), one_plane.name_of("router"));
    assert!(vm.run(&format!("curl -sS --max-time 5 http://{at}:7000/")).ok().starts_with(&one_plane.name_of("echo")));
    // Without a name: the first API server of the port. Its certificate is for a name, which curl then does not ask for.
    let unnamed = vm.run(&format!("curl -sSk --max-time 5 https://{at}:6443/")).ok();
    assert!(unnamed.starts_with(&one_plane.name_of("kube-apiserver")), "{unnamed}");
    nobody_else_is_let_in(&vm, &at);
    pages_are_not_for_the_tenant(&vm, &at, &pod_address(&site));
}

/// An unknown name, TLS without a name where only names count, and bytes that are not TLS where names decide.
fn nobody_else_is_let_in(vm: &underpass_testbed::Machine, at: &str) {
    for (what, code) in [
        (format!("curl -sSk --max-time 5 --connect-to ::{at}: https://stranger.example.com:6443/"), "35"),
        (format!("curl -sSk --max-time 5 https://{at}:443/"), "35"),
        (format!("curl -fsS --max-time 5 http://{at}:443/"), "22 or 52 or 56"),
        (format!("curl -sS --max-time 5 http://{at}:9901/stats"), "7"),
        (format!("curl -sS --max-time 5 http://{at}:9902/ready"), "7"),
        (format!("curl -sS --max-time 5 http://{at}:18000/"), "7"),
    ] {
        let ended = vm.run(&what);
        let found = ended.code.map(|code| code.to_string()).unwrap_or_default();
        assert!(code.split(" or ").any(|code| code == found), "{what}: {ended}");
    }
}

/// A machine that has a route to the pod network over its own link names the pod's address there: it gets to the backends, and no further.
fn pages_are_not_for_the_tenant(vm: &underpass_testbed::Machine, at: &str, pod: &str) {
    vm.run(&format!("ip route add {pod} via {at}")).ok();
    vm.run(&format!("curl -sSk --max-time 5 https://{pod}:6443/")).ok();
    for page in ["9901/ready", "9902/ready", "9903/healthz", "18000/"] {
        let ended = vm.run(&format!("curl -sS --max-time 5 http://{pod}:{page}"));
        assert_eq!(ended.code, Some(7), "{ended}");
    }
}

fn pod_address(site: &Site<'_>) -> String {
    site.kubectl().ok(&format!("get pod {} -o jsonpath={{.status.podIP}}", site.pod("edge")))
}

fn what_the_object_says(site: &Site<'_>) {
    let says = |condition: &str, status: &str, reason: &str| {
        // Ready was seen; the others may come a moment later.
        site.becomes("edge", condition, status, reason)
    };
    let valid = says("ConfigurationValid", "True", "ConfigApplied");
    assert_eq!(
        valid,
        if site.plane == Plane::Native {
            "Configuration applied successfully"
        } else {
            "Envoy configuration applied successfully"
        }
    );
    says("BackendsResolved", "True", "AllResolved");
    says("NetworkReady", "True", "Attached");
    says("Progressing", "False", "RolledOut");
    says("Degraded", "False", "AsExpected");
    let object = site.kubectl().json("get proxyserver edge");
    let status = &object["status"];
    assert_eq!((&status["backendCount"], &status["readyReplicas"]), (&json!(4), &json!(1)), "{status:#}");
    assert_eq!(status["deploymentName"], "proxy-server-edge");
    assert_eq!(status["backends"][0]["name"], "api-one");
    assert_eq!((&status["backends"][0]["endpoints"], &status["backends"][0]["healthy"]), (&json!(2), &json!(2)));
    assert_eq!(status["activePod"], site.pod("edge"));
    let network = site.kubectl().ok(&format!(
        "get pod {} -o jsonpath={{.metadata.annotations.k8s\\.v1\\.cni\\.cncf\\.io/network-status}}",
        site.pod("edge")
    ));
    assert!(network.contains(&site.server_ip()), "{network}");
    pods_are_confined(site);
    metrics_are_shown_to_the_cluster(site);
}

/// Nobody is root, and Envoy has nothing that it could ask the API server with.
fn pods_are_confined(site: &Site<'_>) {
    let pod = site.kubectl().json(&format!("get pod {}", site.pod("edge")));
    for container in pod["spec"]["containers"].as_array().unwrap() {
        let mounts = container["volumeMounts"].to_string();
        assert_eq!(container["name"] == "manager", mounts.contains("serviceaccount"), "{mounts}");
        let context = &container["securityContext"];
        assert_eq!(context["capabilities"], json!({ "add": ["NET_BIND_SERVICE"], "drop": ["ALL"] }));
        assert_eq!(
            (&context["readOnlyRootFilesystem"], &context["allowPrivilegeEscalation"]),
            (&json!(true), &json!(false))
        );
    }
    assert_eq!(pod["spec"]["securityContext"]["runAsNonRoot"], true);
}

fn metrics_are_shown_to_the_cluster(site: &Site<'_>) {
    let page = site.metrics("edge");
    for metric in [
        "envoy_cluster_upstream_cx_active",
        "envoy_cluster_upstream_cx_total",
        "envoy_listener_downstream_cx_active",
        "envoy_listener_downstream_cx_total",
    ] {
        assert!(page.contains(metric), "{metric} is missing");
    }
}
