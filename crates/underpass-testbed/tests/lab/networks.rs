use underpass_testbed::{Lab, PATIENCE, wait_until};

const POD: &str = "192.168.100.4";

fn tenant_network(bridge: &str) -> String {
    format!(
        r#"
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {{name: tenant}}
spec:
  config: '{{"cniVersion": "1.0.0", "type": "bridge", "bridge": "{bridge}", "capabilities": {{"ips": true}}, "ipam": {{"type": "static"}}}}'
---
apiVersion: v1
kind: Pod
metadata:
  name: inside
  annotations:
    k8s.v1.cni.cncf.io/networks: '[{{"name": "tenant", "ips": ["{POD}/24"]}}]'
spec:
  nodeName: node-0
  terminationGracePeriodSeconds: 0
  containers:
    - name: web
      image: {image}
      command: [/busybox, sh, -c, 'echo from the tenant network >/tmp/index.html; exec /busybox httpd -f -p 8080 -h /tmp']
"#,
        image = Lab::BUSYBOX
    )
}

/// Another machine on a bridge of node-0. It goes with this value.
struct Neighbour<'a> {
    lab: &'a Lab,
    name: String,
}

impl<'a> Neighbour<'a> {
    fn on(lab: &'a Lab, bridge: &str, address: &str) -> Self {
        let name = format!("vm-{bridge}");
        lab.on(
            "node-0",
            &format!(
                "ip netns add {name}
                 ip link add {bridge}-vm type veth peer name eth0 netns {name}
                 ip link set {bridge}-vm master {bridge} up
                 ip -n {name} address add {address} dev eth0
                 ip -n {name} link set eth0 up"
            ),
        )
        .ok();
        Self { lab, name }
    }

    fn fetch(&self, url: &str) -> Option<String> {
        let ended = self.lab.on("node-0", &format!("ip netns exec {} curl -fsS --max-time 2 {url}", self.name));
        (ended.code == Some(0)).then_some(ended.stdout)
    }
}

impl Drop for Neighbour<'_> {
    fn drop(&mut self) {
        self.lab.on("node-0", &format!("ip netns delete {}", self.name));
    }
}

#[test]
fn a_pod_with_an_address_on_a_tenant_network_is_reached_from_there() {
    let lab = Lab::running();
    let namespace = lab.namespace("tenant");
    let bridge = format!("t{}", std::process::id());
    namespace.kubectl.ok_with("apply -f -", &tenant_network(&bridge));
    namespace.kubectl.ok("wait pod/inside --for condition=Ready --timeout 60s");
    let links = namespace.kubectl.ok("exec inside -- /busybox ip -o -4 address show net1");
    assert!(links.contains(&format!("{POD}/24")), "{links}");
    let neighbour = Neighbour::on(&lab, &bridge, "192.168.100.9/24");
    let page =
        wait_until("an answer on the tenant network", PATIENCE, || neighbour.fetch(&format!("http://{POD}:8080/")));
    assert_eq!(page, "from the tenant network\n");
}
