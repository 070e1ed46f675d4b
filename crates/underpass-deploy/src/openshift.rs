//! What OpenShift needs beside: leave for the proxies that the operator starts to bind ports below 1024, and for nothing else.
//!
//! The operator itself runs under `restricted-v2`, as every pod may.

use serde_json::{Value, json};

use underpass_resources::proxy_server::CONSTRAINTS_ROLE;

use crate::Terms;

const NAME: &str = CONSTRAINTS_ROLE;

pub(crate) fn objects(terms: &Terms) -> Vec<Value> {
    vec![constraints(terms), usage(terms)]
}

fn constraints(terms: &Terms) -> Value {
    json!({
        "apiVersion": "security.openshift.io/v1",
        "kind": "SecurityContextConstraints",
        "metadata": terms.metadata("proxy", NAME),
        "allowHostDirVolumePlugin": false,
        "allowHostIPC": false,
        "allowHostNetwork": false,
        "allowHostPID": false,
        "allowHostPorts": false,
        "allowPrivilegeEscalation": false,
        "allowPrivilegedContainer": false,
        "allowedCapabilities": ["NET_BIND_SERVICE"],
        "defaultAddCapabilities": null,
        "fsGroup": { "type": "MustRunAs" },
        "priority": null,
        "readOnlyRootFilesystem": true,
        "requiredDropCapabilities": ["ALL"],
        "runAsUser": { "type": "MustRunAsNonRoot" },
        "seLinuxContext": { "type": "MustRunAs" },
        "seccompProfiles": ["runtime/default"],
        "supplementalGroups": { "type": "RunAsAny" },
        "users": [],
        "groups": [],
        "volumes": ["configMap", "downwardAPI", "emptyDir", "projected", "secret"],
    })
}

/// Whoever is bound to this role may run such pods.
fn usage(terms: &Terms) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": terms.metadata("proxy", NAME),
        "rules": [{
            "apiGroups": ["security.openshift.io"],
            "resources": ["securitycontextconstraints"],
            "resourceNames": [NAME],
            "verbs": ["use"],
        }],
    })
}
