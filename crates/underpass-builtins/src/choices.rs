//! The fields of Kubernetes' kinds that hold one of a few words. They are published for `kubectl explain` and editors, and not part of
//! the schemas that objects are checked by: which of them are refused, and how it is said, is each kind's own matter.

use serde_json::{Map, Value, json};

use crate::facts::{APPS, CORE, DISCOVERY, EXTENSIONS};

#[rustfmt::skip]
const SIGNALS: &[&str] = &[
    "SIGABRT", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCLD", "SIGCONT", "SIGFPE", "SIGHUP",
    "SIGILL", "SIGINT", "SIGIO", "SIGIOT", "SIGKILL", "SIGPIPE", "SIGPOLL", "SIGPROF",
    "SIGPWR", "SIGQUIT", "SIGRTMAX", "SIGRTMAX-1", "SIGRTMAX-10", "SIGRTMAX-11", "SIGRTMAX-12", "SIGRTMAX-13",
    "SIGRTMAX-14", "SIGRTMAX-2", "SIGRTMAX-3", "SIGRTMAX-4", "SIGRTMAX-5", "SIGRTMAX-6", "SIGRTMAX-7", "SIGRTMAX-8",
    "SIGRTMAX-9", "SIGRTMIN", "SIGRTMIN+1", "SIGRTMIN+10", "SIGRTMIN+11", "SIGRTMIN+12", "SIGRTMIN+13", "SIGRTMIN+14",
    "SIGRTMIN+15", "SIGRTMIN+2", "SIGRTMIN+3", "SIGRTMIN+4", "SIGRTMIN+5", "SIGRTMIN+6", "SIGRTMIN+7", "SIGRTMIN+8",
    "SIGRTMIN+9", "SIGSEGV", "SIGSTKFLT", "SIGSTOP", "SIGSYS", "SIGTERM", "SIGTRAP", "SIGTSTP",
    "SIGTTIN", "SIGTTOU", "SIGURG", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGWINCH", "SIGXCPU",
    "SIGXFSZ",
];

/// Package, type, field, words. Of a list, the words of its items.
#[rustfmt::skip]
const CHOICES: &[(&str, &str, &str, &[&str])] = &[
    (APPS, "DeploymentStrategy", "type", &["Recreate", "RollingUpdate"]),
    (CORE, "AppArmorProfile", "type", &["Localhost", "RuntimeDefault", "Unconfined"]),
    (CORE, "AzureDiskVolumeSource", "cachingMode", &["None", "ReadOnly", "ReadWrite"]),
    (CORE, "AzureDiskVolumeSource", "kind", &["Dedicated", "Managed", "Shared"]),
    (CORE, "Container", "imagePullPolicy", &["Always", "IfNotPresent", "Never"]),
    (CORE, "Container", "terminationMessagePolicy", &["FallbackToLogsOnError", "File"]),
    (CORE, "ContainerPort", "protocol", &["SCTP", "TCP", "UDP"]),
    (CORE, "ContainerStatus", "stopSignal", SIGNALS),
    (CORE, "EphemeralContainer", "imagePullPolicy", &["Always", "IfNotPresent", "Never"]),
    (CORE, "EphemeralContainer", "terminationMessagePolicy", &["FallbackToLogsOnError", "File"]),
    (CORE, "HTTPGetAction", "scheme", &["HTTP", "HTTPS"]),
    (CORE, "HostPathVolumeSource", "type", &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"]),
    (CORE, "ImageVolumeSource", "pullPolicy", &["Always", "IfNotPresent", "Never"]),
    (CORE, "Lifecycle", "stopSignal", SIGNALS),
    (CORE, "NamespaceStatus", "phase", &["Active", "Terminating"]),
    (CORE, "NodeSelectorRequirement", "operator", &["DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"]),
    (CORE, "NodeStatus", "phase", &["Pending", "Running", "Terminated"]),
    (CORE, "PersistentVolumeClaimSpec", "accessModes", &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]),
    (CORE, "PersistentVolumeClaimSpec", "volumeMode", &["Block", "Filesystem"]),
    (CORE, "PodSecurityContext", "fsGroupChangePolicy", &["Always", "OnRootMismatch"]),
    (CORE, "PodSecurityContext", "supplementalGroupsPolicy", &["Merge", "Strict"]),
    (CORE, "PodSpec", "dnsPolicy", &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]),
    (CORE, "PodSpec", "preemptionPolicy", &["Never", "PreemptLowerPriority"]),
    (CORE, "PodSpec", "restartPolicy", &["Always", "Never", "OnFailure"]),
    (CORE, "PodStatus", "phase", &["Failed", "Pending", "Running", "Succeeded", "Unknown"]),
    (CORE, "PodStatus", "qosClass", &["BestEffort", "Burstable", "Guaranteed"]),
    (CORE, "PortStatus", "protocol", &["SCTP", "TCP", "UDP"]),
    (CORE, "SeccompProfile", "type", &["Localhost", "RuntimeDefault", "Unconfined"]),
    (CORE, "SecurityContext", "procMount", &["Default", "Unmasked"]),
    (CORE, "ServicePort", "protocol", &["SCTP", "TCP", "UDP"]),
    (CORE, "ServiceSpec", "externalTrafficPolicy", &["Cluster", "Local"]),
    (CORE, "ServiceSpec", "internalTrafficPolicy", &["Cluster", "Local"]),
    (CORE, "ServiceSpec", "ipFamilies", &["", "IPv4", "IPv6"]),
    (CORE, "ServiceSpec", "ipFamilyPolicy", &["PreferDualStack", "RequireDualStack", "SingleStack"]),
    (CORE, "ServiceSpec", "sessionAffinity", &["ClientIP", "None"]),
    (CORE, "ServiceSpec", "type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]),
    (CORE, "Taint", "effect", &["NoExecute", "NoSchedule", "PreferNoSchedule"]),
    (CORE, "Toleration", "effect", &["NoExecute", "NoSchedule", "PreferNoSchedule"]),
    (CORE, "Toleration", "operator", &["Equal", "Exists"]),
    (CORE, "TopologySpreadConstraint", "nodeAffinityPolicy", &["Honor", "Ignore"]),
    (CORE, "TopologySpreadConstraint", "nodeTaintsPolicy", &["Honor", "Ignore"]),
    (CORE, "TopologySpreadConstraint", "whenUnsatisfiable", &["DoNotSchedule", "ScheduleAnyway"]),
    (CORE, "VolumeMount", "mountPropagation", &["Bidirectional", "HostToContainer", "None"]),
    (DISCOVERY, "EndpointPort", "protocol", &["SCTP", "TCP", "UDP"]),
    (DISCOVERY, "EndpointSlice", "addressType", &["FQDN", "IPv4", "IPv6"]),
    (EXTENSIONS, "ValidationRule", "reason", &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"]),
];

/// Writes the words into the definitions.
pub(crate) fn publish(definitions: &mut Map<String, Value>) {
    for (package, type_, field, words) in CHOICES {
        let definition = definitions.get_mut(&format!("{package}{type_}"));
        let Some(property) = definition.and_then(|definition| definition["properties"].get_mut(*field)) else {
            continue;
        };
        let holder = if property["type"] == "array" { &mut property["items"] } else { property };
        holder["enum"] = json!(words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_is_that_of_a_field() {
        let all = crate::definitions();
        for (package, type_, field, words) in CHOICES {
            let property = &all[&format!("{package}{type_}")]["properties"][field];
            let holder = if property["type"] == "array" { &property["items"] } else { property };
            assert_eq!(holder["enum"], json!(words), "{type_}.{field}");
        }
    }
}
