//! The life of an installation, one step after the other: there is one set of definitions on a cluster.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use underpass_testbed::{Ended, Kubectl, Lab, PATIENCE, Process, Signal, follow_guide, http, wait_until};

use crate::{BINARY, alone_with_definitions, root};

const LABEL: &str = "underpass.dev/installed=true";
/// Of every kind that is installed, with those that only OpenShift has left out.
const KINDS: &str = "ns,crd,sa,clusterrole,clusterrolebinding,role,rolebinding,netpol,pdb,svc,deploy";
/// Of every kind that is built for objects.
const BUILT: &str =
    "get sa,role,rolebinding,cm,svc,pdb,deploy,lease,endpointslices -A -l underpass.dev/owner-uid -o name";
const PROXY: &str = "examples/proxy-server.yaml";

struct Site {
    lab: Lab,
    kubectl: Kubectl,
}

impl Site {
    fn new() -> Self {
        let lab = Lab::running();
        let archive = crate::image(IMAGE);
        lab.load(archive.path()).ok();
        Self { kubectl: lab.kubectl(), lab }
    }

    fn start(&self, words: &str) -> Process {
        let mut command = Command::new(BINARY);
        command.args(words.split(' ')).arg("--kubeconfig").arg(self.lab.kubeconfig());
        Process::start(&mut command)
    }

    fn underpass(&self, words: &str) -> Ended {
        self.start(words).wait_within(Duration::from_secs(240))
    }

    /// Without the one that every namespace has.
    fn labels_of_namespace(&self, name: &str) -> Vec<String> {
        let namespace = self.kubectl.json(&format!("get ns {name}"));
        let labels = namespace["metadata"]["labels"].as_object().unwrap().keys();
        labels.filter(|label| *label != "kubernetes.io/metadata.name").cloned().collect()
    }

    /// The same on a terminal, where somebody types that answer.
    fn asked(&self, words: &str, answer: &str) -> Ended {
        let line = format!("{BINARY} {words} --kubeconfig {}", self.lab.kubeconfig().display());
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        Process::start_with(&mut command, &format!("{answer}\n")).wait_within(Duration::from_secs(240))
    }

    fn install(&self, words: &str) -> Ended {
        self.underpass(format!("install --image {IMAGE} {words}").trim())
    }

    /// What is printed for this cluster is what is there: of each object every field that we set, and no object more or less.
    fn dry_run_says_what_is_there(&self) {
        let printed = self.install("--dry-run -o json").ok();
        self.kubectl.ok_with("diff --server-side --field-manager underpass-install -f -", &printed);
        let printed = self.kubectl.ok_with("create --dry-run=client --validate=false -o name -f -", &printed);
        let names = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<String>>();
        let constraints = "get securitycontextconstraints -A --ignore-not-found -o name";
        let installed = self.installed() + &self.kubectl.run(&format!("{constraints} -l {LABEL}")).stdout;
        assert_eq!(names(&printed), names(&installed));
    }

    fn installed(&self) -> String {
        self.kubectl.ok(&format!("get {KINDS} -A -l {LABEL} -o name"))
    }

    fn uid(&self, what: &str) -> String {
        self.kubectl.ok(&format!("get {what} -o jsonpath={{.metadata.uid}}"))
    }

    fn helm(&self, words: &str) -> Ended {
        let helm = std::env::var_os("HELM").expect("scripts/test-lab says where helm is");
        let mut command = Command::new(helm);
        command.args(words.split(' ')).arg("--kubeconfig").arg(self.lab.kubeconfig());
        Process::start(&mut command).wait_within(Duration::from_secs(120))
    }
}

const IMAGE: &str = "lab.local/underpass:install";
const NAMESPACE: &str = "underpass-system";

#[test]
fn onto_a_cluster_and_off_it_again() {
    let _alone = alone_with_definitions();
    let site = Site::new();
    a_missing_image_is_told(&site);
    an_image_that_no_node_understands_is_not_waited_for(&site);
    an_interrupted_installation_says_so(&site);
    a_first_installation_works(&site);
    every_kind_may_be_worked_on(&site);
    a_version_that_does_not_start_leaves_the_one_before(&site);
    what_is_there_stays_as_it_is(&site);
    its_service_leads_to_metrics(&site);
    a_newer_version_keeps_objects_and_clears_up(&site);
    nobody_is_overruled_unasked(&site);
    only_who_may_do_all_does_anything(&site);
    leaving_is_asked_for_and_leaves_nothing(&site);
    in_a_namespace_of_somebody_else(&site);
    with_helm(&site);
    on_openshift(&site);
    as_the_guide_says(&site);
}

fn a_missing_image_is_told(site: &Site) {
    let failed = site.underpass("install --image lab.local/nowhere:1 --timeout 10").failed();
    assert!(failed.contains("after 10 seconds the operator does not work"), "{failed}");
    assert!(failed.contains("lab.local/nowhere:1") && failed.contains("pod underpass-operator-"), "{failed}");
}

fn an_image_that_no_node_understands_is_not_waited_for(site: &Site) {
    let failed = site.underpass("install --image lab.local/a:b:c --timeout 200").failed();
    assert!(failed.contains("the operator cannot work:") && !failed.contains("after 200 seconds"), "{failed}");
    assert!(
        failed.contains("waiting   for pod underpass-operator-") && failed.contains("InvalidImageName"),
        "{failed}"
    );
}

fn an_interrupted_installation_says_so(site: &Site) {
    let mut process = site.start("install --image lab.local/nowhere:1 --timeout 200");
    process.wait_until_told(&["waiting "]);
    process.signal(Signal::INT);
    let ended = process.wait();
    assert!(ended.code == Some(130) && ended.stderr.contains("interrupted: "), "{ended}");
}

fn a_version_that_does_not_start_leaves_the_one_before(site: &Site) {
    let failed = site.underpass("install --image lab.local/nowhere:2 --timeout 5").failed();
    assert!(failed.contains("the new version does not work, and the one before still does"), "{failed}");
    site.install("").ok();
}

fn a_first_installation_works(site: &Site) {
    let told = site.install("").told();
    assert!(told.contains("the operator works on") && told.contains(" leads"), "{told}");
    let ready = format!("get deploy underpass-operator -n {NAMESPACE} -o jsonpath={{.status.readyReplicas}}");
    assert_eq!(site.kubectl.ok(&ready), "2");
    assert!(told.lines().last().unwrap().starts_with("the operator works on"), "{told}");
    let namespace = site.kubectl.json(&format!("get ns {NAMESPACE}"));
    assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
}

/// With the rights of the installation: each gets its status and its events.
fn every_kind_may_be_worked_on(site: &Site) {
    let examples = root().join("examples").display().to_string();
    site.kubectl.ok(&format!("apply -f {examples}"));
    let all = || site.kubectl.json("get underpass -A")["items"].as_array().unwrap().clone();
    let kinds: BTreeSet<String> = all().iter().map(|object| object["kind"].to_string()).collect();
    assert_eq!(kinds.len(), 10, "{kinds:?}");
    wait_until("a condition on every object", PATIENCE, || {
        all().iter().all(|object| object["status"]["conditions"].is_array()).then_some(())
    });
    wait_until("an event of every kind", PATIENCE, || {
        let events = site.kubectl.json("get events -A");
        let told: BTreeSet<String> = events["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["involvedObject"]["kind"].to_string())
            .collect();
        kinds.is_subset(&told).then_some(())
    });
    site.kubectl.ok(&format!("delete -f {examples} --ignore-not-found --timeout=110s"));
    // A pod of the rollout before, whose image is missing, may still be there, and has no log.
    let running = format!("get pods -n {NAMESPACE} --field-selector status.phase=Running -o name");
    for pod in site.kubectl.ok(&running).lines() {
        let log = site.kubectl.ok(&format!("logs -n {NAMESPACE} {pod}")).to_lowercase();
        // Of a namespace that goes the same is said.
        let mut missing =
            log.lines().filter(|line| line.contains("forbidden") && !line.contains("it is being terminated"));
        assert_eq!(missing.next(), None, "a right is missing:\n{log}");
    }
}

/// The second time nothing changes, and no pod is replaced.
fn what_is_there_stays_as_it_is(site: &Site) {
    let generation =
        || site.kubectl.ok(&format!("get deploy -n {NAMESPACE} -o jsonpath={{.items[*].metadata.generation}}"));
    let before = generation();
    let told = site.install("").told();
    assert!(!told.contains("created") && !told.contains("changed   Deployment"), "{told}");
    assert_eq!(generation(), before);
    site.dry_run_says_what_is_there();
}

/// By the Service itself, and by the port-forward that people are told to use.
fn its_service_leads_to_metrics(site: &Site) {
    let service = format!("get svc underpass-operator-metrics -n {NAMESPACE} -o jsonpath={{.spec.clusterIP}}");
    let service = SocketAddr::from((site.kubectl.ok(&service).parse::<IpAddr>().unwrap(), 8080));
    let mut forward = site.kubectl.start(&format!("port-forward -n {NAMESPACE} svc/underpass-operator-metrics :8080"));
    let here = forward.wait_for_stdout("where it is forwarded from", |text| {
        text.lines().find_map(|line| line.strip_prefix("Forwarding from ")?.split(' ').next()?.parse().ok())
    });
    for address in [service, here] {
        let page = wait_until("metrics", PATIENCE, || http::get(address, "/metrics").ok());
        assert!(page.0 == 200 && page.1.contains("\nunderpass_leader "), "{address}: {page:?}");
    }
}

fn a_newer_version_keeps_objects_and_clears_up(site: &Site) {
    site.kubectl.ok("create ns clusters-mycluster");
    site.kubectl.ok(&format!("apply -f {}", root().join(PROXY).display()));
    let proxy = site.kubectl.ok("get proxyservers -A -o jsonpath={.items[0].metadata.uid}");
    site.kubectl.ok(&format!("create role old -n {NAMESPACE} --verb get --resource pods"));
    site.kubectl.ok(&format!("label role old -n {NAMESPACE} {LABEL}"));
    let definition = site.uid("crd proxyservers.hostedcluster.densityops.com");
    let told = site.install("--replicas 1").told();
    assert!(told.contains("deleting  Role underpass-system/old, which this version does not have"), "{told}");
    assert_eq!(site.kubectl.ok("get proxyservers -A -o jsonpath={.items[0].metadata.uid}"), proxy);
    assert_eq!(site.uid("crd proxyservers.hostedcluster.densityops.com"), definition);
    assert!(!site.installed().contains("role.rbac.authorization.k8s.io/old"));
}

fn nobody_is_overruled_unasked(site: &Site) {
    site.kubectl.ok(&format!("scale deploy underpass-operator -n {NAMESPACE} --replicas 3"));
    let refused = site.install("--replicas 2").failed();
    assert!(refused.contains("nothing was changed") && refused.contains("--force-conflicts"), "{refused}");
    let replicas = || site.kubectl.ok(&format!("get deploy -n {NAMESPACE} -o jsonpath={{.items[0].spec.replicas}}"));
    assert_eq!(replicas(), "3");
    site.install("--replicas 2 --force-conflicts").ok();
    assert_eq!(replicas(), "2");
}

/// A user who may do everything but write roles.
fn only_who_may_do_all_does_anything(site: &Site) {
    let namespace = site.lab.namespace("little");
    namespace.kubectl.ok("create sa little");
    namespace
        .kubectl
        .ok(&format!("create clusterrolebinding {0} --clusterrole edit --serviceaccount {0}:little", namespace.name));
    let token = namespace.kubectl.ok("create token little");
    let little = site.lab.kubeconfig_with_token(token.trim());
    let before = site.kubectl.json(&format!("get {KINDS} -A -l {LABEL}"));
    let mut command = Command::new(BINARY);
    command.args(["install", "--image", IMAGE, "--replicas", "1", "--kubeconfig"]).arg(little.path());
    let refused = Process::start(&mut command).wait().failed();
    assert!(refused.contains("nothing was changed: this user may not install: forbidden are"), "{refused}");
    assert!(refused.contains("\n  create, patch namespaces\n"), "{refused}");
    assert!(refused.contains("\n  get, create, patch roles in underpass-system\n"), "{refused}");
    assert!(!refused.contains("deployments"), "{refused}");
    let versions = |list: &Value| -> Vec<Value> {
        let items = list["items"].as_array().unwrap().iter();
        items
            .filter(|object| object["kind"] != "Deployment")
            .map(|object| object["metadata"]["resourceVersion"].clone())
            .collect()
    };
    assert_eq!(versions(&site.kubectl.json(&format!("get {KINDS} -A -l {LABEL}"))), versions(&before));
    namespace.kubectl.ok(&format!("delete clusterrolebinding {}", namespace.name));
}

fn leaving_is_asked_for_and_leaves_nothing(site: &Site) {
    let unasked = site.underpass("uninstall").failed();
    assert!(unasked.contains("1 ProxyServer, and what was built for it") && unasked.contains("say --yes"), "{unasked}");
    who_says_no_changes_nothing(site);
    site.underpass("uninstall --yes --keep-objects").ok();
    let is_kept = |line: &str| {
        line.starts_with("customresourcedefinition")
            || line == "clusterrole.rbac.authorization.k8s.io/underpass-proxy-targets"
    };
    assert!(site.installed().lines().all(is_kept), "{}", site.installed());
    // Proxies go on, and with them what they may do.
    site.kubectl.ok("get clusterrole underpass-proxy-targets");
    assert_eq!(site.kubectl.ok("get proxyservers -A -o name").lines().count(), 1);
    site.install("").ok();
    nobody_waits_for_an_operator_that_is_gone(site);
    what_was_built_for_a_lost_object_is_named(site);
    site.kubectl.ok(&format!("create deployment idle -n {NAMESPACE} --image lab.local/nowhere:1 --replicas 0"));
    let told = site.underpass("uninstall --yes").told();
    let kept = format!("Namespace {NAMESPACE}, in which there is more than ours: Deployment idle\n");
    assert!(told.contains(&format!("This stays:\n  {kept}")) && told.contains(&format!("keeping   {kept}")), "{told}");
    assert!(!told.contains(&format!("\n  Namespace {NAMESPACE}\n")), "{told}");
    let last = told.lines().last().unwrap();
    assert!(last.starts_with("nothing of underpass is left on"), "{told}");
    assert!(last.ends_with(&format!("; the namespace {NAMESPACE} stays")), "{told}");
    assert_eq!(site.labels_of_namespace(NAMESPACE), Vec::<String>::new());
    site.kubectl.ok(&format!("delete ns {NAMESPACE}"));
    nothing_is_left(site);
    let again = site.underpass("uninstall --yes").told();
    assert!(again.contains("nothing of underpass is installed"), "{again}");
    definitions_without_an_operator_go_too(site);
    site.kubectl.ok("delete ns hosted-clusters clusters-mycluster");
}

/// It stays as it was from the beginning to the end.
fn in_a_namespace_of_somebody_else(site: &Site) {
    site.kubectl.ok("create ns shared");
    let told = site.install("-n shared").told();
    assert!(told.contains("leaving   Namespace shared as it is") && told.contains(" Role shared/underpass-"), "{told}");
    assert_eq!(site.labels_of_namespace("shared"), Vec::<String>::new());
    let moved = site.install("").failed();
    let advice = "the operator is installed in shared already: say -n shared to upgrade it, or uninstall it first";
    assert!(moved.contains(&format!("nothing was changed: {advice}")), "{moved}");
    assert_eq!(site.kubectl.ok(&format!("get ns {NAMESPACE} --ignore-not-found -o name")), "");
    site.kubectl.ok(&format!("apply -f {}", root().join(PROXY).display()));
    assert_eq!(site.underpass("status").told(), "", "the operator is found wherever it is");
    who_interrupts_is_told_how_to_go_on(site);
    let ended = site.asked("uninstall", "yes");
    let told = ended.stdout.replace('\r', "");
    assert!(ended.code == Some(0) && told.contains("Type yes to go on:\n"), "{ended}");
    assert!(told.contains("keeping   Namespace shared, which `underpass install` did not make"), "{told}");
    assert!(!told.contains("\n  Namespace shared\n") && told.ends_with("; the namespace shared stays\n"), "{told}");
    assert_eq!(site.kubectl.ok("get lease -n shared -o name"), "");
    assert_eq!(site.kubectl.ok("get ns shared -o jsonpath={.status.phase}"), "Active");
    nothing_is_left(site);
    site.kubectl.ok("delete ns shared hosted-clusters");
}

fn who_interrupts_is_told_how_to_go_on(site: &Site) {
    let proxy =
        site.kubectl.ok("get proxyservers -A -o jsonpath={.items[0].metadata.namespace}/{.items[0].metadata.name}");
    let (namespace, name) = proxy.split_once('/').unwrap();
    let finalizers = |value: &str| {
        let patch = format!(r#"{{"metadata":{{"finalizers":{value}}}}}"#);
        site.kubectl.ok(&format!("patch proxyserver {name} -n {namespace} --type=merge -p '{patch}'"));
    };
    finalizers(r#"["example.com/hold"]"#);
    let mut process = site.start("uninstall --yes");
    process.wait_until_told(&["waiting for ProxyServer"]);
    process.signal(Signal::INT);
    let ended = process.wait();
    assert!(ended.code == Some(130) && !ended.stderr.contains("Ctrl-C"), "{ended}");
    assert!(ended.stderr.ends_with("run `underpass uninstall` again to remove it\n"), "{ended}");
    finalizers("null");
}

fn who_says_no_changes_nothing(site: &Site) {
    let all = || site.installed() + &site.kubectl.ok(BUILT) + &site.kubectl.ok("get underpass -A -o name");
    let before = all();
    for answer in ["no", "", "yes please"] {
        let ended = site.asked("uninstall", answer);
        assert!(ended.code == Some(1) && ended.stdout.contains("Type yes to go on:"), "{ended}");
        assert!(ended.stdout.ends_with("nothing was changed\r\n"), "{ended}");
    }
    assert_eq!(all(), before);
}

/// What was built for a ProxyServer would stay for ever.
fn nobody_waits_for_an_operator_that_is_gone(site: &Site) {
    let finalizers = "get proxyservers -A -o jsonpath={.items[0].metadata.finalizers}";
    wait_until("a ProxyServer that is held", PATIENCE, || (!site.kubectl.ok(finalizers).is_empty()).then_some(()));
    let bindings = "get rolebindings -n clusters-mycluster -l underpass.dev/owner-uid -o name";
    wait_until("what it needs elsewhere", PATIENCE, || (!site.kubectl.ok(bindings).is_empty()).then_some(()));
    site.kubectl.ok(&format!("scale deploy underpass-operator -n {NAMESPACE} --replicas 0"));
    let operators = "-l app.kubernetes.io/component=operator,app.kubernetes.io/name=underpass";
    site.kubectl.ok(&format!("wait --for=delete pods -n {NAMESPACE} {operators} --timeout=110s"));
    let refused = site.underpass("uninstall --yes").failed();
    assert!(refused.contains("no operator works on") && refused.contains("run `underpass install`"), "{refused}");
    somebody_takes_the_finalizer_away(site);
    site.install("--force-conflicts").ok();
}

/// The binding is in another namespace than its owner, where the cluster collects nothing.
const LOST: &str = "RoleBinding clusters-mycluster/underpass-proxy.hosted-clusters.mycluster-proxy";

fn somebody_takes_the_finalizer_away(site: &Site) {
    let proxy = "proxyserver mycluster-proxy -n hosted-clusters";
    site.kubectl.ok(&format!("delete {proxy} --wait=false"));
    site.kubectl.ok(&format!(r#"patch {proxy} --type=merge -p '{{"metadata":{{"finalizers":null}}}}'"#));
    assert_eq!(site.kubectl.ok(&format!("get {proxy} --ignore-not-found -o name")), "");
}

/// Nothing else goes before that is gone, and who does what is told then gets to the end.
fn what_was_built_for_a_lost_object_is_named(site: &Site) {
    let before = site.installed();
    let left = site.underpass("uninstall --yes").failed();
    let advice = "kubectl delete rolebindings -A -l underpass.dev/owner-uid";
    assert!(left.contains(&format!("nobody removes it by itself:\n  {LOST}\n")), "{left}");
    assert!(left.contains(&format!("({advice})")), "{left}");
    assert_eq!(site.installed(), before);
    site.kubectl.ok(advice.strip_prefix("kubectl ").unwrap());
}

/// Whoever applied them by hand has no operator.
fn definitions_without_an_operator_go_too(site: &Site) {
    site.kubectl.ok(&format!("apply --server-side -f {}", root().join("deploy/crds").display()));
    let told = site.underpass("uninstall --yes").told();
    assert!(told.contains("deleting  CustomResourceDefinition containernetworks.underpass.dev"), "{told}");
    nothing_is_left(site);
}

fn nothing_is_left(site: &Site) {
    assert_eq!(site.installed(), "");
    assert_eq!(site.kubectl.ok(BUILT), "");
    let leases = "get leases -A --field-selector metadata.name=underpass-operator -o name";
    assert_eq!(site.kubectl.ok(leases), "");
    assert_eq!(site.kubectl.ok(&format!("get ns {NAMESPACE} --ignore-not-found -o name")), "");
    let definitions = site.kubectl.ok("get crd -o name");
    assert!(!definitions.contains("underpass.dev") && !definitions.contains("densityops.com"), "{definitions}");
}

fn with_helm(site: &Site) {
    let port = site.kubectl.ok("get endpointslices -n default kubernetes -o jsonpath={.ports[0].port}");
    let chart = root().join("deploy/helm/underpass");
    let install = format!(
        "install underpass {} -n helm-made --create-namespace --wait --timeout 100s --set image={IMAGE},apiServerPort={port}",
        chart.display()
    );
    for wrong in ["replicas=0", "replicas=two", "imge=foo", "image="] {
        let refused = site.helm(&format!("install underpass {} -n helm-made --set {wrong}", chart.display())).failed();
        assert!(refused.contains("values don't meet the specifications of the schema"), "{wrong}: {refused}");
    }
    site.helm(&install).ok();
    let refused = site.underpass("uninstall --yes").failed();
    assert!(
        refused.contains("was installed by Helm") && refused.contains("helm uninstall underpass -n helm-made"),
        "{refused}"
    );
    site.helm("uninstall underpass -n helm-made --wait").ok();
    assert!(site.installed().lines().all(|line| line.starts_with("customresourcedefinition")), "{}", site.installed());
    let told = site.underpass("uninstall --yes").told();
    assert!(told.contains("deleting  Lease helm-made/underpass-operator"), "{told}");
    assert!(told.contains("keeping   Namespace helm-made, which `underpass install` did not make"), "{told}");
    site.kubectl.ok("delete ns helm-made");
    nothing_is_left(site);
}

/// A cluster counts as OpenShift when it has its security API. The constraints themselves are not enforced here: nothing in the lab can.
fn on_openshift(site: &Site) {
    site.kubectl.ok_with("apply -f -", CONSTRAINTS);
    site.kubectl
        .ok("wait --for condition=Established crd/securitycontextconstraints.security.openshift.io --timeout 60s");
    let told = site.install("").told();
    assert!(told.contains("(OpenShift)"), "{told}");
    site.dry_run_says_what_is_there();
    let constraints = site.kubectl.json("get securitycontextconstraints underpass-proxy");
    assert_eq!(constraints["allowedCapabilities"], serde_json::json!(["NET_BIND_SERVICE"]));
    // Those that people are told to make by themselves can stand beside ours.
    site.kubectl.ok_with("apply -f -", crate::proxies::document::CONSTRAINTS);
    let theirs = site.kubectl.json("get securitycontextconstraints oooi-proxy");
    assert_eq!((&theirs["allowHostNetwork"], &theirs["runAsUser"]["type"]), (&false.into(), &"RunAsAny".into()));
    site.kubectl.ok("delete securitycontextconstraints oooi-proxy");
    let constraints = site.kubectl.json("get securitycontextconstraints underpass-proxy-replicas");
    assert_eq!(constraints["allowedCapabilities"], serde_json::json!(["NET_BIND_SERVICE", "NET_ADMIN", "NET_RAW"]));
    let pods = site.kubectl.json(&format!("get pods -n {NAMESPACE}"));
    assert_eq!(pods["items"][0]["spec"]["securityContext"].get("runAsUser"), None, "{pods:#}");
    site.underpass("uninstall --yes").ok();
    assert_eq!(site.kubectl.ok("get securitycontextconstraints -o name"), "");
    site.kubectl.ok("delete crd securitycontextconstraints.security.openshift.io");
    nothing_is_left(site);
}

fn as_the_guide_says(site: &Site) {
    let page = std::fs::read_to_string(root().join("docs/installing.md")).unwrap();
    let kubeconfig = site.lab.kubeconfig().display().to_string();
    let environment = [("KUBECONFIG", kubeconfig.as_str()), ("IMAGE", IMAGE)];
    let underpass = format!("#!/bin/sh\nexec {BINARY} \"$@\"\n");
    follow_guide(&page, &underpass, &environment, Duration::from_secs(240));
}

const CONSTRAINTS: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: securitycontextconstraints.security.openshift.io}
spec:
  group: security.openshift.io
  scope: Cluster
  names: {plural: securitycontextconstraints, singular: securitycontextconstraints, kind: SecurityContextConstraints}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// What Helm makes of the chart is what `underpass install` applies, apart from who manages it and that definitions are kept.
#[test]
fn the_chart_says_what_install_says() {
    let helm = std::env::var_os("HELM").expect("scripts/test-lab says where helm is");
    for platform in ["kubernetes", "openshift"] {
        let mut command = Command::new(&helm);
        command.args(["template", "underpass"]).arg(root().join("deploy/helm/underpass"));
        command.args([
            "-n",
            NAMESPACE,
            "--kube-version",
            "1.34",
            "--set",
            &format!("openshift={}", platform == "openshift"),
        ]);
        let rendered = Process::start(&mut command).wait().ok();
        let released = std::fs::read_to_string(root().join(format!("deploy/{platform}.yaml"))).unwrap();
        assert_eq!(comparable(&rendered), comparable(&released), "{platform}");
    }
}

/// By kind and name, without the namespace, which Helm makes by itself.
fn comparable(text: &str) -> std::collections::BTreeMap<String, Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let objects = documents.into_iter().filter(|object| !object.is_null() && object["kind"] != "Namespace");
    objects.map(|object| (format!("{} {}", object["kind"], object["metadata"]["name"]), unmanaged(object))).collect()
}

fn unmanaged(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            fields.remove("app.kubernetes.io/managed-by");
            fields.remove("helm.sh/resource-policy");
            fields.values_mut().for_each(|field| *field = unmanaged(field.take()));
            fields.retain(|name, field| name != "annotations" || field.as_object().is_none_or(|all| !all.is_empty()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = unmanaged(item.take())),
        _ => {}
    }
    value
}
