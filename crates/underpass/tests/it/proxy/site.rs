//! A file with a ProxyServer and what it leads to, in a folder of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Backend, own_address};

/// TLS's unrecognized_name.
pub(super) const UNKNOWN_NAME: u8 = 112;
pub(super) const PORT: u16 = 10_443;

pub(super) struct Site {
    folder: TempDir,
    pub(super) address: Ipv4Addr,
    pub(super) spec: Value,
    targets: Vec<Value>,
}

impl Site {
    pub(super) fn new() -> Self {
        let address = own_address();
        let spec = json!({ "dataPlane": "Native", "networkConfig": { "serverIP": address }, "backends": [] });
        Self { folder: tempfile::tempdir().unwrap(), address, spec, targets: Vec::new() }
    }

    pub(super) fn file(&self) -> PathBuf {
        self.folder.path().join("proxy.yaml")
    }

    pub(super) fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Where clients connect.
    pub(super) fn door(&self) -> SocketAddr {
        SocketAddr::new(self.address.into(), PORT)
    }

    /// A backend for a name, by its Service and its EndpointSlice.
    pub(super) fn with(mut self, name: &str, hostname: &str, backend: &Backend) -> Self {
        self.add(name, hostname, backend, &json!({}));
        self
    }

    pub(super) fn with_options(mut self, name: &str, hostname: &str, backend: &Backend, options: &Value) -> Self {
        self.add(name, hostname, backend, options);
        self
    }

    pub(super) fn add(&mut self, name: &str, hostname: &str, backend: &Backend, options: &Value) {
        let mut entry = json!({
            "name": name, "hostname": hostname, "port": PORT, "protocol": "TLS",
            "targetService": name, "targetNamespace": "cp", "targetPort": 443,
        });
        entry.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        self.spec["backends"].as_array_mut().unwrap().push(entry);
        self.targets.extend(target(name, backend.address));
    }

    /// Says this of a backend, beside what is said of it already.
    pub(super) fn change(&mut self, name: &str, options: &Value) {
        let mut backends = self.spec["backends"].as_array_mut().unwrap().iter_mut();
        let backend = backends.find(|backend| backend["name"] == name).unwrap();
        backend.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.spec["backends"].as_array_mut().unwrap().retain(|backend| backend["name"] != name);
    }

    /// Another endpoint for a backend's Service.
    pub(super) fn move_to(&mut self, name: &str, backend: &Backend) {
        self.targets.retain(|object| object["metadata"]["name"] != name);
        self.targets.extend(target(name, backend.address));
    }

    /// These endpoints for a backend's Service, each with what its EndpointSlice says of it besides.
    pub(super) fn lead_to(&mut self, name: &str, endpoints: &[(&Backend, Value)]) {
        let slice_of = |object: &Value| object["metadata"]["labels"]["kubernetes.io/service-name"] == name;
        self.targets.retain(|object| !slice_of(object));
        for (number, (backend, said)) in endpoints.iter().enumerate() {
            let [_, mut slice] = target(name, backend.address);
            slice["metadata"]["name"] = json!(format!("{name}-{number}"));
            slice["endpoints"][0].as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
            self.targets.push(slice);
        }
    }

    pub(super) fn text(&self) -> String {
        let proxy = json!({
            "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer",
            "metadata": { "name": "edge", "namespace": "cp" }, "spec": self.spec,
        });
        let documents: Vec<String> = std::iter::once(&proxy)
            .chain(&self.targets)
            .map(|object| serde_saphyr::to_string(object).unwrap())
            .collect();
        documents.join("---\n")
    }

    /// As most programs write: the file is emptied and filled.
    pub(super) fn write(&self) {
        std::fs::write(self.file(), self.text()).unwrap();
    }
}

fn target(name: &str, address: SocketAddr) -> [Value; 2] {
    [
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": "cp" },
            "spec": { "ports": [{ "name": "https", "port": 443 }] },
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": { "name": name, "namespace": "cp", "labels": { "kubernetes.io/service-name": name } },
            "ports": [{ "name": "https", "port": address.port() }],
            "endpoints": [{ "addresses": [address.ip()] }],
        }),
    ]
}
