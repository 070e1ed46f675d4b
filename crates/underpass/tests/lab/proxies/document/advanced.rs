//! Several replicas: by hand, as the document says that one has to, and by the object, as it wishes.

use serde_json::{Value, json};
use underpass_testbed::{PATIENCE, wait_until};

use super::reader::Reader;
use super::updating::keeps_resources;
use super::{API, Tenant};

/// Where the restarts before have led to.
const SERVER_IP: &str = "192.168.100.5";

/// One of the three has the address, whoever has said that there are three.
pub(super) fn several_replicas(reader: &Reader<'_>, tenant: &Tenant<'_>) {
    reader.types("kubectl scale deployment proxy-server-mycluster-proxy --replicas=3 -n hosted-clusters");
    one_of_three_has_the_address(reader, tenant);
    keeps_resources(reader);
    reader.edits(
        "kubectl edit proxyserver mycluster-proxy -n hosted-clusters",
        &json!([{ "op": "replace", "path": "/spec/replicas", "value": 3 }]),
    );
    wait_until("the object to have three replicas", PATIENCE, || {
        let object = reader.json("get proxyserver mycluster-proxy");
        let is_told = object["status"]["observedGeneration"] == object["metadata"]["generation"];
        (is_told && object["status"]["readyReplicas"] == 3).then_some(())
    });
    one_of_three_has_the_address(reader, tenant);
}

#[track_caller]
fn one_of_three_has_the_address(reader: &Reader<'_>, tenant: &Tenant<'_>) {
    wait_until("pods that hand the address to each other", PATIENCE, || {
        let template = &reader.deployment()["spec"]["template"]["spec"]["containers"];
        template.as_array()?.iter().any(|container| container["name"] == "address").then_some(())
    });
    reader.sees_pods(3);
    wait_until("a pod that has the address", PATIENCE, || {
        let active = reader.json("get proxyserver mycluster-proxy")["status"]["activePod"].clone();
        let pods = reader.json("get pods -l app=proxy-server");
        let names: Vec<&Value> = pods["items"].as_array()?.iter().map(|pod| &pod["metadata"]["name"]).collect();
        names.contains(&&active).then_some(())
    });
    wait_until("an answer", PATIENCE, || {
        let ended = tenant.vm.fetch(&format!("https://{API}:6443/"), SERVER_IP, &tenant.plane.authority());
        (ended.code == Some(0)).then_some(())
    });
}
