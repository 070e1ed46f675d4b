//! An object that cannot be made ready is said so once, not over and over.

use super::{assert_contains, network};
use crate::server::embedded_up;

/// Writes of others push the log on while the object is watched: had the controllers anything to repeat, it would stand between.
#[test]
fn without_an_engine_the_condition_says_so_and_then_nothing_happens() {
    let server = embedded_up();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", &network("net"));
    kubectl.ok("wait --for=condition=Ready=False ctrnet/net --timeout=60s");
    kubectl.ok("wait --for=create events --all --timeout=60s");
    let object = kubectl.json("get ctrnet net");
    let condition = &object["status"]["conditions"][0];
    assert_eq!(condition["reason"], "NoContainerEngine");
    assert_contains(condition["message"].as_str().unwrap(), &["no container engine found", "CONTAINER_HOST"]);
    assert!(object["metadata"].get("finalizers").is_none(), "nothing was made, so nothing holds the object");
    let version = object["metadata"]["resourceVersion"].as_str().unwrap();
    // The server ends this watch after its time; whatever was written until then is in it.
    let path = "/apis/underpass.dev/v1alpha1/containernetworks?watch=true&timeoutSeconds=5";
    let events = kubectl.ok(&format!("get --raw {path}&resourceVersion={version}"));
    assert!(events.lines().count() <= 1, "the controllers write without need:\n{events}");
    assert_eq!(kubectl.ok("get events -o name").lines().count(), 1, "one event for one fact");
    kubectl.ok("label ctrnet net changed=yes");
    kubectl.ok("delete ctrnet net --timeout=60s");
}
