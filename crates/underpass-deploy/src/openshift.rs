//! What OpenShift needs beside: leave for the proxies that the operator starts to bind ports below 1024, and for nothing else; and for those
//! with several replicas, to move an address between their pods.
//!
//! Two constraints, because the second has somebody be root: the operator gives it only to accounts of proxies that need it. It itself runs
//! under `restricted-v2`, as every pod may.

use serde_json::{Value, json};

use underpass_resources::proxy_server::{CONSTRAINTS_ROLE, REPLICAS_CONSTRAINTS_ROLE};

use crate::{PROXY, Terms};

pub(crate) fn objects(terms: &Terms) -> Vec<Value> {
    let bind = "NET_BIND_SERVICE";
    vec![
        constraints(terms, CONSTRAINTS_ROLE, &[bind], "MustRunAsRange"),
        usage(terms, CONSTRAINTS_ROLE),
        constraints(terms, REPLICAS_CONSTRAINTS_ROLE, &[bind, "NET_ADMIN", "NET_RAW"], "RunAsAny"),
        usage(terms, REPLICAS_CONSTRAINTS_ROLE),
    ]
}

fn constraints(terms: &Terms, name: &str, capabilities: &[&str], user: &str) -> Value {
    json!({
        "apiVersion": "security.openshift.io/v1",
        "kind": "SecurityContextConstraints",
        "metadata": terms.metadata(PROXY, name),
        "allowHostDirVolumePlugin": false,
        "allowHostIPC": false,
        "allowHostNetwork": false,
        "allowHostPID": false,
        "allowHostPorts": false,
        "allowPrivilegeEscalation": false,
        "allowPrivilegedContainer": false,
        "allowedCapabilities": capabilities,
        "defaultAddCapabilities": null,
        "fsGroup": { "type": "MustRunAs" },
        "priority": null,
        "readOnlyRootFilesystem": true,
        "requiredDropCapabilities": ["ALL"],
        "runAsUser": { "type": user },
        "seLinuxContext": { "type": "MustRunAs" },
        "seccompProfiles": ["runtime/default"],
        "supplementalGroups": { "type": "RunAsAny" },
        "users": [],
        "groups": [],
        "volumes": ["configMap", "downwardAPI", "emptyDir", "projected", "secret"],
    })
}

/// Whoever is bound to this role may run such pods.
fn usage(terms: &Terms, name: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": terms.metadata(PROXY, name),
        "rules": [{
            "apiGroups": ["security.openshift.io"],
            "resources": ["securitycontextconstraints"],
            "resourceNames": [name],
            "verbs": ["use"],
        }],
    })
}
