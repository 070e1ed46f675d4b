use std::net::TcpStream;

use underpass_testbed::{Ended, Lab, LabNamespace, Machine, PATIENCE, wait_until};

/// As people have them who know nothing of capabilities.
const MACVLAN: &str =
    r#"{"cniVersion": "0.3.1", "type": "macvlan", "master": "eth1", "mode": "bridge", "ipam": {"type": "static"}}"#;
const BRIDGE: &str = r#"{"cniVersion": "0.3.1", "type": "bridge", "bridge": "tenant", "ipam": {"type": "static"}}"#;

/// A network of tenants, and a pod on it that serves a page; with the address said both to those plugins that are given it as a capability and to
/// those that are given arguments.
fn pod(namespace: &str, network: &str, node: &str, address: &str) -> String {
    format!(
        r#"
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {{name: tenant-vlan-100}}
spec: {{config: '{network}'}}
---
apiVersion: v1
kind: Pod
metadata:
  name: inside
  annotations:
    k8s.v1.cni.cncf.io/networks: '[{{"name": "tenant-vlan-100", "namespace": "{namespace}", "ips": ["{address}/24"], "cni-args": {{"ips": ["{address}/24"]}}}}]'
spec:
  nodeName: {node}
  terminationGracePeriodSeconds: 0
  containers:
    - name: web
      image: {image}
      command: [/busybox, sh, -c, 'echo from the tenant network >/tmp/index.html; exec /busybox httpd -f -p 8080 -h /tmp']
"#,
        image = Lab::BUSYBOX
    )
}

fn started(lab: &Lab, network: &str, node: &str, address: &str) -> LabNamespace {
    let namespace = lab.namespace("tenant");
    namespace.kubectl.ok_with("apply -f -", &pod(&namespace.name, network, node, address));
    namespace.kubectl.ok("wait pod/inside --for condition=Ready --timeout 60s");
    namespace
}

/// The addresses of its second link.
fn addresses(namespace: &LabNamespace) -> Vec<String> {
    let links = namespace.kubectl.ok("exec inside -- /busybox ip -o -4 address show net1");
    links.lines().map(|line| line.split_whitespace().nth(3).unwrap().to_owned()).collect()
}

/// Whatever is answered there counts as an answer.
fn asked(machine: &Machine, address: &str) -> Ended {
    machine.run(&format!("curl -sS --max-time 1 --noproxy '*' http://{address}/"))
}

fn answers(machine: &Machine, address: &str) -> String {
    wait_until("an answer on the tenant network", PATIENCE, || {
        Some(asked(machine, address)).filter(|ended| ended.code == Some(0)).map(|ended| ended.stdout)
    })
}

fn last_node(lab: &Lab) -> String {
    let nodes = lab.kubectl().ok("get nodes -o jsonpath={.items[*].metadata.name}");
    nodes.split(' ').next_back().unwrap().to_owned()
}

#[test]
fn a_pod_on_the_tenant_network_is_reached_from_there_and_nothing_else_is() {
    let lab = Lab::running();
    let namespace = started(&lab, MACVLAN, &last_node(&lab), "192.168.100.4");
    assert_eq!(addresses(&namespace), ["192.168.100.4/24"]);
    let machine = lab.machine("192.168.100.50/24");
    assert_eq!(answers(&machine, "192.168.100.4:8080"), "from the tenant network\n");
    // Nobody there has these addresses, or says that he has.
    machine.run("ip route add default dev eth0").ok();
    for (what, port) in [
        ("get pods -n kube-system -l k8s-app=kube-dns -o jsonpath={.items[0].status.podIP}", 8080),
        ("get node node-0 -o jsonpath={.status.addresses[0].address}", 10250),
        ("get service -n default kubernetes -o jsonpath={.spec.clusterIP}", 443),
    ] {
        let address = lab.kubectl().ok(what);
        assert!(TcpStream::connect((address.as_str(), port)).is_ok(), "{address} can be reached from elsewhere");
        asked(&machine, &format!("{address}:{port}")).failed();
    }
}

#[test]
fn networks_of_both_sorts_are_the_same_segment() {
    let lab = Lab::running();
    let (bridge, macvlan) = (
        started(&lab, BRIDGE, &last_node(&lab), "192.168.101.4"),
        started(
            &lab,
            &MACVLAN.replace(r#""ipam""#, r#""capabilities": {"ips": true}, "ipam""#),
            "node-0",
            "192.168.101.5",
        ),
    );
    assert_eq!(addresses(&bridge), ["192.168.101.4/24"]);
    assert_eq!(addresses(&macvlan), ["192.168.101.5/24"], "once, though it was said twice");
    let machine = lab.machine("192.168.101.50/24");
    for address in ["192.168.101.4:8080", "192.168.101.5:8080"] {
        assert_eq!(answers(&machine, address), "from the tenant network\n");
    }
}

#[test]
fn a_machine_goes_with_its_value_whatever_runs_on_it() {
    let lab = Lab::running();
    let machine = lab.machine("192.168.102.50/24");
    let other_end = machine.run("ip -o link show eth0 | sed 's/.*eth0@if\\([0-9]*\\).*/\\1/'").ok();
    let is_there = || lab.on("node-0", "ip -o link").ok().contains(&format!("\n{}: vm-", other_end.trim()));
    assert!(is_there(), "{other_end}");
    let _runs = machine.start("exec sleep 1000");
    drop(machine);
    assert!(!is_there(), "{other_end}");
}
