//! What Kubernetes' Go types say in tags and comments, and Rust types cannot: how lists and maps are merged, which fields are optional.
//!
//! Server-side apply reads the list and map types; strategic merge patches read the patch strategies. They differ in places, and the
//! differences are meant (ports of containers have two keys for the one and one for the other). `tests/published.rs` compares all
//! of this with the OpenAPI document that Kubernetes publishes.

use serde_json::{Map, Value, json};

pub(crate) const CORE: &str = "io.k8s.api.core.v1.";
pub(crate) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
pub(crate) const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.";
pub(crate) const APPS: &str = "io.k8s.api.apps.v1.";
pub(crate) const DISCOVERY: &str = "io.k8s.api.discovery.v1.";
const AUTHENTICATION: &str = "io.k8s.api.authentication.v1.";
const AUTHORIZATION: &str = "io.k8s.api.authorization.v1.";

/// How one field is merged.
#[derive(Clone, Copy)]
struct Field {
    name: &'static str,
    list: Option<&'static str>,
    keys: &'static [&'static str],
    map: Option<&'static str>,
    strategy: Option<&'static str>,
    merge_key: Option<&'static str>,
}

const PLAIN: Field = Field { name: "", list: None, keys: &[], map: None, strategy: None, merge_key: None };

/// A list that is replaced as a whole.
const fn atomic(name: &'static str) -> Field {
    Field { name, list: Some("atomic"), ..PLAIN }
}

/// A list of distinct scalars.
const fn set(name: &'static str) -> Field {
    Field { name, list: Some("set"), ..PLAIN }
}

const fn merged_set(name: &'static str) -> Field {
    Field { strategy: Some("merge"), ..set(name) }
}

/// A list whose items are told apart by keys, for server-side apply only.
const fn keyed(name: &'static str, keys: &'static [&'static str]) -> Field {
    Field { name, list: Some("map"), keys, ..PLAIN }
}

/// A list whose items are told apart by keys, and by the first of them in a strategic merge patch.
const fn merged(name: &'static str, keys: &'static [&'static str]) -> Field {
    Field { strategy: Some("merge"), merge_key: Some(keys[0]), ..keyed(name, keys) }
}

/// The same, where an item that names its union's member drops the other members.
const fn merged_retaining(name: &'static str, keys: &'static [&'static str]) -> Field {
    Field { strategy: Some("merge,retainKeys"), ..merged(name, keys) }
}

/// A map that is replaced as a whole.
const fn atomic_map(name: &'static str) -> Field {
    Field { name, map: Some("atomic"), ..PLAIN }
}

const CONDITIONS: Field = merged("conditions", &["type"]);

const CONTAINER: &[Field] = &[
    atomic("args"),
    atomic("command"),
    merged("env", &["name"]),
    atomic("envFrom"),
    merged("ports", &["containerPort", "protocol"]),
    atomic("resizePolicy"),
    atomic("restartPolicyRules"),
    merged("volumeDevices", &["devicePath"]),
    merged("volumeMounts", &["mountPath"]),
];

const FIELDS: &[(&str, &str, &[Field])] = &[
    (APPS, "DeploymentSpec", &[Field { name: "strategy", strategy: Some("retainKeys"), ..PLAIN }]),
    (APPS, "DeploymentStatus", &[CONDITIONS]),
    (AUTHENTICATION, "TokenReviewSpec", &[atomic("audiences")]),
    (AUTHENTICATION, "TokenReviewStatus", &[atomic("audiences")]),
    (AUTHENTICATION, "UserInfo", &[atomic("groups")]),
    (AUTHORIZATION, "FieldSelectorAttributes", &[atomic("requirements")]),
    (AUTHORIZATION, "LabelSelectorAttributes", &[atomic("requirements")]),
    (AUTHORIZATION, "NonResourceRule", &[atomic("nonResourceURLs"), atomic("verbs")]),
    (
        AUTHORIZATION,
        "ResourceRule",
        &[atomic("apiGroups"), atomic("resourceNames"), atomic("resources"), atomic("verbs")],
    ),
    (AUTHORIZATION, "SubjectRulesReviewStatus", &[atomic("nonResourceRules"), atomic("resourceRules")]),
    (CORE, "Capabilities", &[atomic("add"), atomic("drop")]),
    (CORE, "CephFSVolumeSource", &[atomic("monitors")]),
    (CORE, "ConfigMapProjection", &[atomic("items")]),
    (CORE, "ConfigMapVolumeSource", &[atomic("items")]),
    (CORE, "Container", CONTAINER),
    (CORE, "ContainerImage", &[atomic("names")]),
    (CORE, "ContainerRestartRuleOnExitCodes", &[set("values")]),
    (CORE, "ContainerStatus", &[merged("allocatedResourcesStatus", &["name"]), merged("volumeMounts", &["mountPath"])]),
    (CORE, "DownwardAPIProjection", &[atomic("items")]),
    (CORE, "DownwardAPIVolumeSource", &[atomic("items")]),
    (CORE, "EphemeralContainer", CONTAINER),
    (CORE, "ExecAction", &[atomic("command")]),
    (CORE, "FCVolumeSource", &[atomic("targetWWNs"), atomic("wwids")]),
    (CORE, "HTTPGetAction", &[atomic("httpHeaders")]),
    (CORE, "HostAlias", &[atomic("hostnames")]),
    (CORE, "ISCSIVolumeSource", &[atomic("portals")]),
    (CORE, "LinuxContainerUser", &[atomic("supplementalGroups")]),
    (CORE, "LoadBalancerIngress", &[atomic("ports")]),
    (CORE, "LoadBalancerStatus", &[atomic("ingress")]),
    (CORE, "NamespaceSpec", &[atomic("finalizers")]),
    (CORE, "NamespaceStatus", &[CONDITIONS]),
    (CORE, "NodeAffinity", &[atomic("preferredDuringSchedulingIgnoredDuringExecution")]),
    (CORE, "NodeAllocatableResourceClaimStatus", &[set("containers")]),
    (CORE, "NodeSelector", &[atomic("nodeSelectorTerms")]),
    (CORE, "NodeSelectorRequirement", &[atomic("values")]),
    (CORE, "NodeSelectorTerm", &[atomic("matchExpressions"), atomic("matchFields")]),
    (CORE, "NodeSpec", &[merged_set("podCIDRs"), atomic("taints")]),
    (
        CORE,
        "NodeStatus",
        &[
            merged("addresses", &["type"]),
            CONDITIONS,
            atomic("declaredFeatures"),
            atomic("images"),
            atomic("runtimeHandlers"),
            atomic("volumesAttached"),
            atomic("volumesInUse"),
        ],
    ),
    (CORE, "PersistentVolumeClaimSpec", &[atomic("accessModes")]),
    (
        CORE,
        "PodAffinity",
        &[
            atomic("preferredDuringSchedulingIgnoredDuringExecution"),
            atomic("requiredDuringSchedulingIgnoredDuringExecution"),
        ],
    ),
    (CORE, "PodAffinityTerm", &[atomic("matchLabelKeys"), atomic("mismatchLabelKeys"), atomic("namespaces")]),
    (
        CORE,
        "PodAntiAffinity",
        &[
            atomic("preferredDuringSchedulingIgnoredDuringExecution"),
            atomic("requiredDuringSchedulingIgnoredDuringExecution"),
        ],
    ),
    (CORE, "PodDNSConfig", &[atomic("nameservers"), atomic("options"), atomic("searches")]),
    (CORE, "PodExtendedResourceClaimStatus", &[atomic("requestMappings")]),
    (CORE, "PodSecurityContext", &[atomic("supplementalGroups"), atomic("sysctls")]),
    (
        CORE,
        "PodSpec",
        &[
            merged("containers", &["name"]),
            merged("ephemeralContainers", &["name"]),
            merged("hostAliases", &["ip"]),
            merged("imagePullSecrets", &["name"]),
            merged("initContainers", &["name"]),
            atomic_map("nodeSelector"),
            atomic("readinessGates"),
            merged_retaining("resourceClaims", &["name"]),
            merged("schedulingGates", &["name"]),
            atomic("tolerations"),
            merged("topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
            merged_retaining("volumes", &["name"]),
        ],
    ),
    (
        CORE,
        "PodStatus",
        &[
            CONDITIONS,
            atomic("containerStatuses"),
            atomic("ephemeralContainerStatuses"),
            // Atomic for server-side apply, yet merged by address in a strategic merge patch.
            Field { strategy: Some("merge"), merge_key: Some("ip"), ..atomic("hostIPs") },
            atomic("initContainerStatuses"),
            atomic("nodeAllocatableResourceClaimStatuses"),
            merged("podIPs", &["ip"]),
            merged_retaining("resourceClaimStatuses", &["name"]),
        ],
    ),
    (CORE, "ProjectedVolumeSource", &[atomic("sources")]),
    (CORE, "RBDVolumeSource", &[atomic("monitors")]),
    (CORE, "ResourceRequirements", &[keyed("claims", &["name"])]),
    (CORE, "ResourceStatus", &[keyed("resources", &["resourceID"])]),
    (CORE, "SecretProjection", &[atomic("items")]),
    (CORE, "SecretVolumeSource", &[atomic("items")]),
    (CORE, "ServiceAccount", &[atomic("imagePullSecrets"), merged("secrets", &["name"])]),
    (
        CORE,
        "ServiceSpec",
        &[
            atomic("clusterIPs"),
            atomic("externalIPs"),
            atomic("ipFamilies"),
            atomic("loadBalancerSourceRanges"),
            merged("ports", &["port", "protocol"]),
            atomic_map("selector"),
        ],
    ),
    (CORE, "ServiceStatus", &[CONDITIONS]),
    (CORE, "TopologySpreadConstraint", &[atomic("matchLabelKeys")]),
    (DISCOVERY, "Endpoint", &[set("addresses")]),
    (DISCOVERY, "EndpointHints", &[atomic("forNodes"), atomic("forZones")]),
    (DISCOVERY, "EndpointSlice", &[atomic("endpoints"), atomic("ports")]),
    (EXTENSIONS, "CustomResourceDefinitionNames", &[atomic("categories"), atomic("shortNames")]),
    (EXTENSIONS, "CustomResourceDefinitionSpec", &[atomic("versions")]),
    (EXTENSIONS, "CustomResourceDefinitionStatus", &[keyed("conditions", &["type"]), atomic("storedVersions")]),
    (EXTENSIONS, "CustomResourceDefinitionVersion", &[atomic("additionalPrinterColumns"), atomic("selectableFields")]),
    (
        EXTENSIONS,
        "JSONSchemaProps",
        &[
            atomic("allOf"),
            atomic("anyOf"),
            atomic("enum"),
            atomic("oneOf"),
            atomic("required"),
            atomic("x-kubernetes-list-map-keys"),
            merged("x-kubernetes-validations", &["rule"]),
        ],
    ),
    (EXTENSIONS, "WebhookConversion", &[atomic("conversionReviewVersions")]),
    (META, "APIGroup", &[atomic("serverAddressByClientCIDRs"), atomic("versions")]),
    (META, "APIGroupList", &[atomic("groups")]),
    (META, "APIResource", &[atomic("categories"), atomic("shortNames")]),
    (META, "APIResourceList", &[atomic("resources")]),
    (META, "APIVersions", &[atomic("serverAddressByClientCIDRs"), atomic("versions")]),
    (META, "DeleteOptions", &[atomic("dryRun")]),
    (META, "FieldSelectorRequirement", &[atomic("values")]),
    (META, "LabelSelector", &[atomic("matchExpressions")]),
    (META, "LabelSelectorRequirement", &[atomic("values")]),
    (META, "ObjectMeta", &[merged_set("finalizers"), atomic("managedFields"), merged("ownerReferences", &["uid"])]),
    (META, "Status", &[atomic("details")]),
    (META, "StatusDetails", &[atomic("causes")]),
];

/// Structures that are replaced as a whole, wherever they stand.
const ATOMIC: &[(&str, &str)] = &[
    (CORE, "ConfigMapKeySelector"),
    (CORE, "FileKeySelector"),
    (CORE, "LocalObjectReference"),
    (CORE, "NodeSelector"),
    (CORE, "NodeSelectorTerm"),
    (CORE, "ObjectFieldSelector"),
    (CORE, "ObjectReference"),
    (CORE, "ResourceFieldSelector"),
    (CORE, "SecretKeySelector"),
    (CORE, "TypedLocalObjectReference"),
    (DISCOVERY, "EndpointPort"),
    (META, "LabelSelector"),
    (META, "OwnerReference"),
];

/// References whose `name` Rust cannot leave out and Kubernetes can.
const OPTIONAL_NAME: &[&str] = &[
    "ConfigMapEnvSource",
    "ConfigMapKeySelector",
    "ConfigMapProjection",
    "ConfigMapVolumeSource",
    "LocalObjectReference",
    "SecretEnvSource",
    "SecretKeySelector",
    "SecretProjection",
];

/// Defaults that are part of the types. Those of `protocol` matter most: it is a key of lists, and often left out.
const DEFAULTS: &[(&str, &str, &str)] = &[
    ("AzureDiskVolumeSource", "cachingMode", "ReadWrite"),
    ("AzureDiskVolumeSource", "fsType", "ext4"),
    ("AzureDiskVolumeSource", "kind", "Shared"),
    ("ContainerPort", "protocol", "TCP"),
    ("ISCSIVolumeSource", "iscsiInterface", "default"),
    ("RBDVolumeSource", "keyring", "/etc/ceph/keyring"),
    ("RBDVolumeSource", "pool", "rbd"),
    ("RBDVolumeSource", "user", "admin"),
    ("ScaleIOVolumeSource", "fsType", "xfs"),
    ("ScaleIOVolumeSource", "storageMode", "ThinProvisioned"),
    ("ServicePort", "protocol", "TCP"),
];

/// The defaults of the fields of one type of core/v1.
pub(crate) fn defaults(type_: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    DEFAULTS.iter().filter(move |(owner, ..)| *owner == type_).map(|(_, field, value)| (*field, *value))
}

/// Writes what is known about a definition into it.
pub(crate) fn overlay(name: &str, definition: &mut Map<String, Value>) {
    relax(name, definition);
    if ATOMIC.iter().any(|(prefix, type_)| is(name, prefix, type_)) {
        definition.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
    }
    let Some(properties) = definition.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for field in FIELDS.iter().filter(|(prefix, type_, _)| is(name, prefix, type_)).flat_map(|(.., fields)| *fields) {
        if let Some(Value::Object(property)) = properties.get_mut(field.name) {
            property.extend(field.extensions());
        }
    }
    for (field, value) in name.strip_prefix(CORE).into_iter().flat_map(defaults) {
        if let Some(Value::Object(property)) = properties.get_mut(field) {
            property.insert("default".to_owned(), value.into());
        }
    }
}

impl Field {
    fn extensions(self) -> Map<String, Value> {
        let all = [
            ("x-kubernetes-list-type", self.list.map(Value::from)),
            ("x-kubernetes-list-map-keys", (!self.keys.is_empty()).then(|| json!(self.keys))),
            ("x-kubernetes-map-type", self.map.map(Value::from)),
            ("x-kubernetes-patch-strategy", self.strategy.map(Value::from)),
            ("x-kubernetes-patch-merge-key", self.merge_key.map(Value::from)),
        ];
        all.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    }
}

/// k8s-openapi requires what its structs cannot leave out (`metadata` everywhere, the name of references), and has one exception of
/// its own. Kubernetes has two.
fn relax(name: &str, definition: &mut Map<String, Value>) {
    let optional_name = OPTIONAL_NAME.iter().any(|type_| is(name, CORE, type_));
    let core_event = is(name, CORE, "Event");
    let Some(Value::Array(required)) = definition.get_mut("required") else { return };
    required.retain(|field| (core_event || field != "metadata") && !(optional_name && field == "name"));
    if name == "io.k8s.api.events.v1.Event" {
        required.push("eventTime".into());
    }
    if required.is_empty() {
        definition.remove("required");
    }
}

fn is(name: &str, prefix: &str, type_: &str) -> bool {
    name.strip_prefix(prefix) == Some(type_)
}
