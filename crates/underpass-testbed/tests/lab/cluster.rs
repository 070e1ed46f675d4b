use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;
use underpass_testbed::{Lab, LabNamespace, PATIENCE, wait_until};

/// Two pods that answer HTTP with their names, and a Service of each sort in front of them.
fn web() -> String {
    format!(
        r#"
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: web
          image: {image}
          command: [/busybox, sh, -c, 'echo "served by $HOSTNAME" | /busybox tee /tmp/index.html; exec /busybox httpd -f -p 8080 -h /tmp']
          readinessProbe: {{httpGet: {{path: /, port: 8080}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec:
  type: NodePort
  selector: {{app: web}}
  ports: [{{port: 80, targetPort: 8080}}]
"#,
        image = Lab::BUSYBOX
    )
}

fn deployed(lab: &Lab, what: &str) -> LabNamespace {
    let namespace = lab.namespace(what);
    namespace.kubectl.ok_with("apply -f -", &web());
    namespace.kubectl.ok("rollout status deployment/web --timeout=60s");
    namespace
}

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_else(|| panic!("{path} is missing in {value}"))
}

fn http_get(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// kube-proxy's rules follow the endpoints by a moment.
fn served_at(address: &str) -> String {
    wait_until(&format!("an answer from {address}"), PATIENCE, || {
        http_get(address).filter(|it| it.contains("served by"))
    })
}

#[test]
fn services_and_pods_answer_the_machine() {
    let lab = Lab::running();
    let namespace = deployed(&lab, "services");
    let service = namespace.kubectl.json("get service web");
    served_at(&format!("{}:80", text(&service, "/spec/clusterIP")));
    let port = &service["spec"]["ports"][0]["nodePort"];
    for node in lab.kubectl().json("get nodes")["items"].as_array().unwrap() {
        served_at(&format!("{}:{port}", text(node, "/status/addresses/0/address")));
    }
    for pod in namespace.kubectl.json("get pods")["items"].as_array().unwrap() {
        let answer = served_at(&format!("{}:8080", text(pod, "/status/podIP")));
        assert!(answer.contains(text(pod, "/metadata/name")), "{answer}");
    }
}

#[test]
fn a_service_is_found_and_reached_from_a_pod_behind_it() {
    let namespace = deployed(&Lab::running(), "names");
    let kubectl = &namespace.kubectl;
    let address = kubectl.ok("get service web -o jsonpath={.spec.clusterIP}");
    let full = format!("web.{}.svc.cluster.local", namespace.name);
    wait_until("the Service's name", PATIENCE, || {
        kubectl.run(&format!("exec deploy/web -- /busybox nslookup {full}")).stdout.contains(&address).then_some(())
    });
    // Both pods answer in turn, so one of them answers itself. busybox's own wget dies where there is no C library.
    let ask = format!(r#"printf "GET / HTTP/1.0\r\n\r\n" | /busybox nc -w 2 {address} 80"#);
    for pod in kubectl.ok("get pods -o name").lines() {
        wait_until(&format!("an answer of {pod}"), PATIENCE, || {
            let answer = kubectl.run(&format!("exec deploy/web -- /busybox sh -c '{ask}'")).stdout;
            answer.contains(pod.trim_start_matches("pod/")).then_some(())
        });
    }
    let unknown = kubectl.run("exec deploy/web -- /busybox nslookup nobody.example.com");
    assert!(unknown.stdout.contains("NXDOMAIN"), "{unknown}");
}

#[test]
fn exec_and_logs_reach_the_container() {
    let namespace = deployed(&Lab::running(), "exec");
    let name = namespace.kubectl.ok("get pods -o jsonpath={.items[0].metadata.name}");
    assert_eq!(namespace.kubectl.ok(&format!("exec {name} -- /busybox hostname")), format!("{name}\n"));
    assert_eq!(namespace.kubectl.ok(&format!("logs {name}")), format!("served by {name}\n"));
}

#[test]
fn a_namespace_that_is_restricted_takes_no_other_pods() {
    let namespace = Lab::running().namespace("restricted");
    namespace.kubectl.ok(&format!("label namespace {} pod-security.kubernetes.io/enforce=restricted", namespace.name));
    let refused = namespace.kubectl.fails(&format!("run --image {} --restart Never careless", Lab::BUSYBOX));
    assert!(refused.contains("violates PodSecurity \"restricted:latest\""), "{refused}");
}

#[test]
fn a_service_account_may_do_what_it_was_given_and_no_more() {
    let namespace = Lab::running().namespace("rights");
    let kubectl = &namespace.kubectl;
    kubectl.ok("create role reader --verb get --resource configmaps");
    kubectl.ok(&format!("create rolebinding reader --role reader --serviceaccount {}:default", namespace.name));
    let who = format!("--as system:serviceaccount:{}:default", namespace.name);
    assert_eq!(kubectl.ok(&format!("auth can-i get configmaps {who}")), "yes\n");
    assert_eq!(kubectl.run(&format!("auth can-i delete configmaps {who}")).stdout, "no\n");
    let token = kubectl.ok("create token default");
    assert_eq!(token.trim().split('.').count(), 3, "a token is signed");
}

#[test]
fn discovery_is_aggregated() {
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let lab = Lab::running();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let answer: Value = runtime.block_on(async {
        let request = http::Request::get("/apis").header("Accept", accept).body(Vec::new()).unwrap();
        lab.client().await.request(request).await.unwrap()
    });
    assert_eq!(text(&answer, "/kind"), "APIGroupDiscoveryList");
}
