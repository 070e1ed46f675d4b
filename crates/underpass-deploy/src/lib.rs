//! What the operator needs on a cluster: one list of objects, from which `underpass install`, the manifests under `deploy/` and the
//! Helm chart are made. Pure: no clock, no I/O.

mod chart;
mod openshift;
mod operator;
mod rights;

use serde_json::{Value, json};

pub use chart::{ChartFile, chart};

/// The namespace of the operator, unless somebody wants another.
pub const NAMESPACE: &str = "underpass-system";
/// The name of the operator's Deployment, ServiceAccount and Lease.
pub const OPERATOR: &str = "underpass-operator";
/// Every object that we install has this label, and nothing else has: not what the operator makes.
pub const INSTALLED: (&str, &str) = ("underpass.dev/installed", "true");
/// An annotation of a namespace that was not there before `underpass install` made it: only such a one may go again.
pub const MADE_BY: (&str, &str) = ("underpass.dev/made-by", "install");
/// The label that says what an object is part of.
pub const COMPONENT: &str = "app.kubernetes.io/component";
/// What the proxies live on that were made for ProxyServers: they need it also when nobody looks after them.
pub const PROXY: &str = "proxy";
/// Who put it there.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub namespace: String,
    pub image: String,
    pub replicas: u16,
    pub platform: Platform,
    /// Where the API server listens behind its Service: what the operator may connect to.
    pub api_server_port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    Kubernetes,
    OpenShift,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: NAMESPACE.to_owned(),
            image: format!("underpass:{VERSION}"),
            replicas: 2,
            platform: Platform::Kubernetes,
            api_server_port: 6443,
        }
    }
}

/// One pod works, and so many others waiting for it would only cost.
pub const MOST_REPLICAS: u16 = 9;

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// All objects, in the order in which they are applied; the reverse is the order in which they go.
pub fn objects(settings: &Settings) -> Vec<Value> {
    let terms = Terms::of(settings);
    let mut all = vec![namespace(&terms)];
    all.extend(definitions(&terms));
    all.extend(in_namespace(&terms));
    all
}

/// What the objects say that is not the same everywhere. In a chart these are words that Helm replaces.
struct Terms {
    namespace: Value,
    image: Value,
    replicas: Value,
    api_server_port: Value,
    managed_by: Value,
    platform: Platform,
}

impl Terms {
    fn of(settings: &Settings) -> Self {
        Self {
            namespace: json!(settings.namespace),
            image: json!(settings.image),
            replicas: json!(settings.replicas),
            api_server_port: json!(settings.api_server_port),
            managed_by: json!("underpass"),
            platform: settings.platform,
        }
    }

    /// Of an object of the component.
    fn metadata(&self, component: &str, name: &str) -> Value {
        let (installed, yes) = INSTALLED;
        json!({
            "name": name,
            "labels": {
                COMPONENT: component,
                MANAGED_BY: self.managed_by,
                "app.kubernetes.io/name": "underpass",
                "app.kubernetes.io/part-of": "underpass",
                "app.kubernetes.io/version": VERSION,
                installed: yes,
            },
        })
    }

    fn namespaced(&self, component: &str, name: &str) -> Value {
        let mut metadata = self.metadata(component, name);
        metadata["namespace"] = self.namespace.clone();
        metadata
    }
}

fn namespace(terms: &Terms) -> Value {
    let mut metadata = terms.metadata("operator", "");
    metadata["name"] = terms.namespace.clone();
    for mode in ["enforce", "audit", "warn"] {
        metadata["labels"][format!("pod-security.kubernetes.io/{mode}")] = json!("restricted");
    }
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata })
}

fn definitions(terms: &Terms) -> Vec<Value> {
    let labels = terms.metadata("definitions", "")["labels"].take();
    let definition = |crd| {
        let mut object = serde_json::to_value(crd).expect("a definition of ours is data");
        object["metadata"]["labels"] = labels.clone();
        object
    };
    underpass_resources::crds().into_iter().map(definition).collect()
}

/// All but the namespace itself and the definitions.
fn in_namespace(terms: &Terms) -> Vec<Value> {
    let mut all = rights::objects(terms);
    if terms.platform == Platform::OpenShift {
        all.extend(openshift::objects(terms));
    }
    all.extend(operator::objects(terms));
    all
}
