//! InterceptRequest: traffic of a pod in the cluster goes to a container on a developer's machine.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::address::IpAddress;
use crate::name::{AbsolutePath, Label, ObjectName};
use crate::rules::{at, fixed, fixed_optional, here};
use crate::text::text;

text! {
    /// A port of the pod and the port on the developer's machine that gets its traffic: `80:8000`, `53:5353/udp`.
    PortMapping, max 16,
    rule "self.matches('^[1-9][0-9]{0,4}:[1-9][0-9]{0,4}(/(tcp|udp))?$') && \
          self.split('/')[0].split(':').all(p, int(p) <= 65535)",
    says "is not a port mapping; write podPort:localPort with ports from 1 to 65535, for example 80:8000 or 53:5353/udp"
}

/// Which container of which pod, and where its traffic is to go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "underpass.dev",
    version = "v1alpha1",
    kind = "InterceptRequest",
    plural = "interceptrequests",
    shortname = "ireq",
    namespaced,
    doc = "Asks that the traffic of a container in the cluster goes to a container on a developer's machine instead. When it is deleted, or the machine is gone, the original is restored exactly.",
    status = "InterceptRequestStatus",
    derive = "PartialEq",
    printcolumn(name = "Pod", type_ = "string", json_path = ".spec.targetPod"),
    printcolumn(name = "Workload", type_ = "string", json_path = ".spec.targetWorkload.name"),
    printcolumn(name = "Workstation", type_ = "string", json_path = ".spec.workstation"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Ports", type_ = "string", json_path = ".spec.portMappings", priority = "1"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = here(
        "has(self.targetPod) != has(self.targetWorkload)",
        "say what to intercept in exactly one way: targetPod for one pod, or targetWorkload for all pods of a Deployment or StatefulSet"
    ),
    validation = at(
        ".portMappings",
        "self.portMappings.all(a, self.portMappings.exists_one(b, b.split(':')[0] == a.split(':')[0] && b.endsWith('/udp') == a.endsWith('/udp')))",
        "two mappings take over the same port of the pod; map each port once"
    ),
    validation = fixed_optional("targetNamespace"),
    validation = fixed_optional("targetPod"),
    validation = fixed_optional("targetWorkload"),
    validation = fixed("targetContainer"),
    validation = fixed("workstation")
)]
pub struct InterceptRequestSpec {
    /// Namespace of the pod or workload. Left out: the namespace of this object. Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_namespace: Option<Label>,

    /// The pod to intercept. Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_pod: Option<ObjectName>,

    /// The workload whose pods are to be intercepted, new ones included. Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_workload: Option<TargetWorkload>,

    /// The container whose ports are taken over. Cannot be changed.
    pub target_container: Label,

    /// The Workstation in this namespace that gets the traffic. Cannot be changed.
    pub workstation: ObjectName,

    /// Address of the container on that machine. Left out: the machine itself.
    #[serde(rename = "destinationIP", skip_serializing_if = "Option::is_none")]
    pub destination_ip: Option<IpAddress>,

    /// Which ports are taken over, and where they lead: podPort:localPort, for example 80:8000.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "set"))]
    pub port_mappings: Vec<PortMapping>,

    /// Whether the pod's probes are answered while it is intercepted, so that it stays ready.
    #[serde(default = "handle_probes")]
    pub handle_probes: bool,

    /// Folders of the container that are copied to the developer's machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "set"))]
    pub sync_down_directories: Vec<AbsolutePath>,

    /// Seconds after which the intercept ends by itself. Left out: when it is deleted or the machine is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 2_592_000))]
    pub ttl_seconds: Option<u32>,
}

/// A workload by kind and name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetWorkload {
    /// Kind of the workload.
    #[serde(default)]
    pub kind: WorkloadKind,

    /// Name of the workload.
    pub name: ObjectName,
}

/// Kinds of workloads whose pods can be intercepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WorkloadKind {
    #[default]
    Deployment,
    StatefulSet,
}

/// A port mapping, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MappedPort {
    pub pod_port: u16,
    pub workstation_port: u16,
    pub udp: bool,
}

impl PortMapping {
    pub fn parts(&self) -> Option<MappedPort> {
        let (ports, protocol) = self.split_once('/').unwrap_or((self, "tcp"));
        let (pod_port, workstation_port) = ports.split_once(':')?;
        Some(MappedPort {
            pod_port: pod_port.parse().ok()?,
            workstation_port: workstation_port.parse().ok()?,
            udp: protocol == "udp",
        })
    }
}

impl InterceptRequest {
    /// The namespace of the pod or workload.
    pub fn target_namespace(&self) -> &str {
        self.spec.target_namespace.as_deref().or(self.metadata.namespace.as_deref()).unwrap_or("default")
    }
}

fn handle_probes() -> bool {
    true
}

/// What became of the request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InterceptRequestStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Ready sums up PodPatched, CarrierReady, RouteReady, TunnelUp and Verified.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::conditions::schema")]
    pub conditions: Vec<Condition>,

    /// Where the intercept is in its life.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<InterceptState>,

    /// Whether traffic of the pod reaches the developer's machine; true only after a probe has gone all the way.
    #[serde(default)]
    pub established: bool,

    /// What every touched container ran before, so that it can be restored exactly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["pod", "container"]))]
    pub originals: Vec<OriginalContainer>,

    /// How each port travels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["mapping"]))]
    pub routes: Vec<InterceptRoute>,
}

/// Where an intercept is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InterceptState {
    Pending,
    Installing,
    Active,
    /// The machine is late: traffic goes to the original.
    FallenBack,
    Restoring,
    Restored,
    Failed,
}

/// What a container ran before it was intercepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OriginalContainer {
    /// Name of the pod.
    pub pod: String,

    /// Uid of the pod: a pod of the same name that came later is not touched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,

    /// Name of the container.
    pub container: String,

    /// Its image before.
    pub image: String,

    /// Its command before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub command: Vec<String>,

    /// Its arguments before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub args: Vec<String>,
}

/// How one port travels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InterceptRoute {
    /// The mapping that it serves.
    pub mapping: String,

    /// Port on the stowaway at which the route begins.
    pub proxy_port: u16,

    /// Service that leads to that port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_taken_apart() {
        let tcp = MappedPort { pod_port: 80, workstation_port: 8000, udp: false };
        assert_eq!(PortMapping::from("80:8000").parts(), Some(tcp));
        assert_eq!(PortMapping::from("53:5353/udp").parts().map(|p| p.udp), Some(true));
        assert_eq!(PortMapping::from("80").parts(), None);
    }
}
