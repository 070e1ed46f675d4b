//! What a hosted control plane shows to its cluster, in a namespace of the lab: Services whose pods end TLS by themselves.
//!
//! Behind all of them is the program `hosted-service`, which says who it is. Every control plane has an authority of its own, so that a
//! client that verifies knows not only which service answered but also whose.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempDir};

use crate::lab::{Lab, LabNamespace, checkout};
use crate::process::Process;
use crate::program::built_program;

const PROGRAM: &str = "hosted-service";
const IMAGE: &str = "lab.local/hosted-service:1";
/// In the pods: nobody there may listen below 1024.
const PORT: u16 = 8443;
/// Nobody on any node.
const USER: u32 = 65532;

/// A Service to be made, and what is behind it.
#[derive(Clone, Debug)]
pub struct HostedService<'a> {
    name: &'a str,
    port: u16,
    /// In its certificate; without any it has none and speaks plain TCP.
    host_names: Vec<&'a str>,
    replicas: u32,
    /// For how long a pod that is to end goes on.
    grace_seconds: u32,
}

/// Its Services go with their namespace, its authority with this value.
pub struct HostedControlPlane<'a> {
    lab: &'a Lab,
    namespace: &'a LabNamespace,
    authority: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl<'a> HostedService<'a> {
    /// One with a certificate for these host names.
    pub fn tls(name: &'a str, port: u16, host_names: &[&'a str]) -> Self {
        Self { name, port, host_names: host_names.to_vec(), replicas: 1, grace_seconds: 0 }
    }

    /// One that speaks plain TCP.
    pub fn plain(name: &'a str, port: u16) -> Self {
        Self::tls(name, port, &[])
    }

    pub fn replicas(self, replicas: u32) -> Self {
        Self { replicas, ..self }
    }

    /// Its pods serve on for so long when they are to end, as a server does that is replaced without being missed.
    pub fn grace_seconds(self, grace_seconds: u32) -> Self {
        Self { grace_seconds, ..self }
    }
}

impl<'a> HostedControlPlane<'a> {
    /// With these Services, all of whose pods are ready.
    #[track_caller]
    pub fn start(lab: &'a Lab, namespace: &'a LabNamespace, services: &[HostedService<'_>]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let authority = authority(&namespace.name);
        std::fs::write(folder.path().join("ca.pem"), authority.pem()).expect("the folder can be written to");
        let plane = Self { lab, namespace, authority, folder };
        plane.serve(services);
        plane
    }

    /// More Services, or others under the same names.
    #[track_caller]
    pub fn serve(&self, services: &[HostedService<'_>]) {
        image_on(self.lab);
        let items: Vec<Value> = services.iter().flat_map(|service| self.objects(service)).collect();
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
        self.namespace.kubectl.ok_with("apply -f -", &list.to_string());
        for service in services {
            self.namespace.kubectl.ok(&format!("rollout status deployment/{} --timeout=110s", service.name));
        }
    }

    /// The file with the certificate that all others come from.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// How a service's answer to `GET /` begins; a blank and the name of the pod follow.
    pub fn name_of(&self, service: &str) -> String {
        format!("{service}.{}", self.namespace.name)
    }

    fn objects(&self, service: &HostedService<'_>) -> [Value; 3] {
        let metadata = json!({ "name": service.name });
        let labels = json!({ "hosted": service.name });
        let secret =
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": self.identity(service) });
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {
                "replicas": service.replicas,
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": self.pod(service) },
            },
        });
        let ports = json!([{ "port": service.port, "targetPort": PORT }]);
        let front = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": { "selector": labels, "ports": ports },
        });
        [secret, deployment, front]
    }

    fn pod(&self, service: &HostedService<'_>) -> Value {
        let mut command = vec![format!("/{PROGRAM}"), format!("0.0.0.0:{PORT}"), self.name_of(service.name)];
        if !service.host_names.is_empty() {
            command.push("/identity".to_owned());
        }
        json!({
            // The program does not listen to signals: it serves until it is killed.
            "terminationGracePeriodSeconds": service.grace_seconds,
            "securityContext": { "runAsNonRoot": true, "runAsUser": USER, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "service", "image": IMAGE, "imagePullPolicy": "Never", "command": command,
                "readinessProbe": { "tcpSocket": { "port": PORT }, "periodSeconds": 1 },
                "securityContext": {
                    "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] },
                },
                "volumeMounts": [{ "name": "identity", "mountPath": "/identity", "readOnly": true }],
            }],
            "volumes": [{ "name": "identity", "secret": { "secretName": service.name } }],
        })
    }

    /// Certificate and key, by the names of their files.
    fn identity(&self, service: &HostedService<'_>) -> Value {
        if service.host_names.is_empty() {
            return json!({});
        }
        let names: Vec<String> = service.host_names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("host names can be certified");
        params.distinguished_name.push(DnType::CommonName, self.name_of(service.name));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &self.authority).expect("the certificate is complete");
        json!({ "tls.crt": certificate.pem(), "tls.key": key.serialize_pem() })
    }
}

fn authority(namespace: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, format!("authority of {namespace}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().expect("a key can be made");
    CertifiedIssuer::self_signed(params, key).expect("the authority's certificate is complete")
}

/// Puts the program on every node, once: tests that run side by side wait for the first of them.
#[track_caller]
fn image_on(lab: &Lab) {
    static LOADED: OnceLock<()> = OnceLock::new();
    LOADED.get_or_init(|| {
        let archive = NamedTempFile::new().expect("a temporary file can be made");
        let mut command = Command::new("sh");
        command
            .args(["-euc", "lab/image \"$0\" \"$1\" >\"$2\"", IMAGE])
            .arg(built_program(PROGRAM))
            .arg(archive.path());
        Process::start(command.current_dir(checkout())).wait().ok();
        lab.load(archive.path()).ok();
    });
}
