//! `kubectl wait`: for a condition, a value, a beginning and an end.

use super::{assert_contains, config_map, network};
use crate::{apiserver, up};

#[test]
fn a_condition_that_the_controllers_set_is_waited_for() {
    let server = up();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", &network("net"));
    assert_eq!(
        kubectl.ok("wait --for=condition=Ready=False ctrnet/net --timeout=60s"),
        "containernetwork.underpass.dev/net condition met\n"
    );
    assert_eq!(
        kubectl.ok("wait --for=jsonpath='{.status.observedGeneration}'=1 ctrnet/net --timeout=60s"),
        "containernetwork.underpass.dev/net condition met\n"
    );
    let never = kubectl.fails("wait --for=condition=Ready ctrnet/net --timeout=1s");
    assert_contains(&never, &["timed out waiting for the condition on containernetworks/net"]);
}

#[test]
fn a_wait_sees_what_comes_later() {
    let server = apiserver();
    let kubectl = server.kubectl();
    let create = kubectl.start("wait --for=create cm/later --timeout=60s");
    kubectl.ok_with("create -f -", &config_map("later", "k", "1"));
    assert_eq!(create.wait().ok(), "configmap/later condition met\n");
    let value = kubectl.start("wait --for=jsonpath='{.data.k}'=2 cm/later --timeout=60s");
    kubectl.ok(r#"patch cm later -p '{"data":{"k":"2"}}'"#);
    assert_eq!(value.wait().ok(), "configmap/later condition met\n");
    let delete = kubectl.start("wait --for=delete cm/later --timeout=60s");
    kubectl.ok("delete cm later");
    delete.wait().ok();
}
