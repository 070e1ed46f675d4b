use underpass_testbed::{HostedControlPlane, HostedService, Lab, LabNamespace};

/// The least that lets machines reach a Service: a pod on both networks which copies bytes.
fn crossing(namespace: &LabNamespace, service: &str, port: u16, address: &str) {
    let target = namespace.kubectl.ok(&format!("get service {service} -o jsonpath={{.spec.clusterIP}}"));
    let manifest = format!(
        r#"
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {{name: tenant}}
spec: {{config: '{{"cniVersion": "0.3.1", "type": "macvlan", "master": "eth1", "mode": "bridge", "ipam": {{"type": "static"}}}}'}}
---
apiVersion: v1
kind: Pod
metadata:
  name: to-{service}
  annotations: {{k8s.v1.cni.cncf.io/networks: '[{{"name": "tenant", "ips": ["{address}/24"]}}]'}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: copy
      image: {image}
      command: [/busybox, nc, -ll, -p, '{port}', -e, /busybox, nc, {target}, '{port}']
      readinessProbe: {{tcpSocket: {{port: {port}}}, periodSeconds: 1}}
"#,
        image = Lab::BUSYBOX
    );
    namespace.kubectl.ok_with("apply -f -", &manifest);
    namespace.kubectl.ok(&format!("wait pod/to-{service} --for condition=Ready --timeout 60s"));
}

#[test]
fn two_hosted_api_servers_prove_to_a_machine_who_they_are() {
    let lab = Lab::running();
    let namespaces = [lab.namespace("blue"), lab.namespace("green")];
    let services = [
        HostedService::tls("kube-apiserver", 6443, &["api.example.com", "api-int.example.com"]),
        HostedService::plain("konnectivity-server", 8090),
    ];
    let [blue, green] = namespaces.each_ref().map(|namespace| HostedControlPlane::start(&lab, namespace, &services));
    let machine = lab.machine("192.168.103.50/24");
    for (plane, namespace, other, at) in
        [(&blue, &namespaces[0], &green, "192.168.103.4"), (&green, &namespaces[1], &blue, "192.168.103.5")]
    {
        crossing(namespace, "kube-apiserver", 6443, at);
        for host in ["api.example.com", "api-int.example.com"] {
            let said = machine.fetch(&format!("https://{host}:6443/"), at, &plane.authority()).ok();
            assert!(said.starts_with(&format!("{} kube-apiserver-", plane.name_of("kube-apiserver"))), "{said}");
        }
        let refused = machine.fetch("https://oauth.example.com:6443/", at, &plane.authority()).failed();
        assert!(refused.contains("subject name"), "that name is not in the certificate: {refused}");
        let refused = machine.fetch("https://api.example.com:6443/", at, &other.authority()).failed();
        assert!(refused.contains("unable to get local issuer"), "the other's authority did not sign it: {refused}");
        let mut stream = machine.follow("https://api.example.com:6443/stream", at, &plane.authority());
        stream.wait_for_stdout("three numbers", |text| {
            let numbers: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
            numbers.starts_with(&["0", "1", "2"]).then_some(())
        });
    }
    crossing(&namespaces[0], "konnectivity-server", 8090, "192.168.103.6");
    let said = machine.fetch("http://anything:8090/", "192.168.103.6", &blue.authority()).ok();
    assert!(said.starts_with(&blue.name_of("konnectivity-server")), "{said}");
    let talk = "exec 3<>/dev/tcp/192.168.103.6/8090; echo neither HTTP nor TLS >&3; head -n 1 <&3";
    assert_eq!(machine.run(&format!("timeout 5 bash -euc '{talk}'")).ok(), "neither HTTP nor TLS\n");
}
