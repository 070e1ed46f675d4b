//! CustomResourceDefinitions at run time: made, used, given a second version, taken away.

use super::{assert_contains, rows};
use crate::apiserver;
use underpass_testbed::{Kubectl, PATIENCE, wait_until};

const VERSION: &str = "
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    additionalPrinterColumns: [{name: Tone, type: string, jsonPath: .spec.tone}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [tone]
            properties:
              tone: {type: string, description: How it sounds., maxLength: 10}
              metal: {type: string, default: bronze}
              replicas: {type: integer, minimum: 0, default: 1}
            x-kubernetes-validations:
            - {rule: 'self.metal == oldSelf.metal', message: a bell is not recast, fieldPath: .metal}
          status: {type: object, properties: {replicas: {type: integer}, rung: {type: boolean}}}
";

const BELL: &str = "apiVersion: example.com/v1\nkind: Bell\nmetadata: {name: big}\nspec: {tone: deep}\n";

fn definition(versions: &str) -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: bells.example.com}}\nspec:\n  \
         group: example.com\n  scope: Namespaced\n  \
         names: {{plural: bells, singular: bell, kind: Bell, shortNames: [bl], categories: [music]}}\n  versions:{versions}"
    )
}

fn define(kubectl: &Kubectl) {
    kubectl.ok_with("apply -f -", &definition(VERSION));
    kubectl.ok("wait --for=condition=Established crd/bells.example.com --timeout=60s");
}

#[test]
fn a_new_kind_is_used_at_once() {
    let server = apiserver();
    let kubectl = server.kubectl();
    define(&kubectl);
    assert_eq!(kubectl.ok_with("create -f -", BELL), "bell.example.com/big created\n");
    assert_eq!(rows(&kubectl.ok("get bl")), [["NAME", "TONE"], ["big", "deep"]]);
    assert_eq!(kubectl.ok("get music -o name"), "bell.example.com/big\n");
    assert_eq!(kubectl.ok("get bell big -o jsonpath='{.spec.metal}'"), "bronze");
    assert_contains(&kubectl.ok("explain bell.spec"), &["tone\t<string> -required-", "How it sounds."]);
    kubectl.ok("scale bell big --replicas=4");
    assert_eq!(kubectl.ok("get bell big -o jsonpath='{.spec.replicas}'"), "4");
    kubectl.ok(r#"patch bell big --subresource=status --type=merge -p '{"status":{"rung":true}}'"#);
    kubectl.ok("wait --for=jsonpath='{.status.rung}'=true bell/big --timeout=60s");
    assert_contains(&kubectl.ok("describe bell big"), &["Kind:         Bell", "Rung:  true"]);
}

#[test]
fn its_schema_and_rules_judge_objects() {
    let server = apiserver();
    let kubectl = server.kubectl();
    define(&kubectl);
    let refused = kubectl.fails_with("create --validate=ignore -f -", &BELL.replace("tone: deep", "tune: deep"));
    assert_contains(&refused, &["The Bell \"big\" is invalid", "spec.tone: Required value"]);
    kubectl.ok_with("create -f -", BELL);
    let refused = kubectl.fails(r#"patch bell big --type=merge -p '{"spec":{"tone":"much too long"}}'"#);
    assert_contains(&refused, &["spec.tone: Too long: may not be more than 10 bytes"]);
    let refused = kubectl.fails(r#"patch bell big --type=merge -p '{"spec":{"metal":"tin"}}'"#);
    assert_contains(&refused, &["spec.metal: Invalid value", "a bell is not recast"]);
    let refused = kubectl.fails("scale bell big --replicas=-1");
    assert_contains(&refused, &["replicas"]);
}

#[test]
fn a_second_version_serves_the_same_objects() {
    let server = apiserver();
    let kubectl = server.kubectl();
    define(&kubectl);
    kubectl.ok_with("create -f -", BELL);
    let second = VERSION.replace("name: v1", "name: v2").replace("storage: true", "storage: false");
    kubectl.ok_with("apply -f -", &definition(&(VERSION.to_owned() + &second)));
    wait_until("the second version", PATIENCE, || {
        let found = kubectl.run("get --raw /apis/example.com/v2/namespaces/default/bells/big");
        (found.code == Some(0)).then_some(())
    });
    wait_until("kubectl to see it", PATIENCE, || {
        let versions = kubectl.ok("api-versions");
        (versions.contains("example.com/v1\n") && versions.contains("example.com/v2\n")).then_some(())
    });
    assert_eq!(
        kubectl.ok("get bells.v2.example.com big -o jsonpath='{.apiVersion} {.spec.tone}'"),
        "example.com/v2 deep"
    );
    let new = BELL.replace("example.com/v1", "example.com/v2").replace("big", "small");
    kubectl.ok_with("create -f -", &new);
    assert_eq!(kubectl.ok("get bells.v1.example.com small -o jsonpath='{.apiVersion}'"), "example.com/v1");
}

#[test]
fn with_the_definition_go_its_objects_and_its_paths() {
    let server = apiserver();
    let kubectl = server.kubectl();
    define(&kubectl);
    kubectl.ok_with("create -f -", BELL);
    assert_contains(&kubectl.ok("delete crd bells.example.com --timeout=60s"), &["\"bells.example.com\" deleted"]);
    wait_until("the path to be gone", PATIENCE, || {
        let gone = kubectl.run("get --raw /apis/example.com/v1/namespaces/default/bells");
        (gone.code != Some(0)).then_some(gone.stderr)
    });
    assert!(!kubectl.ok("api-versions").contains("example.com/v1"));
    define(&kubectl);
    assert_eq!(
        kubectl.ok("get --raw /apis/example.com/v1/bells").matches("\"items\":[]").count(),
        1,
        "a new beginning"
    );
}

#[test]
fn a_definition_that_cannot_work_is_refused() {
    let server = apiserver();
    let kubectl = server.kubectl();
    let refused = kubectl.fails_with("create -f -", &definition(&VERSION.replace("maxLength: 10", "maxLength: ten")));
    assert_contains(&refused, &["maxLength"]);
    let refused = kubectl.fails_with("create -f -", &definition(&VERSION.replace("storage: true", "storage: false")));
    assert_contains(
        &refused,
        &["spec.versions: Invalid value", "must have exactly one version marked as storage version"],
    );
    let refused = kubectl.fails_with("create -f -", &definition(&VERSION.replace("self.metal ==", "self.nothing ==")));
    assert_contains(&refused, &["x-kubernetes-validations[0].rule", "undefined field 'nothing'"]);
}
