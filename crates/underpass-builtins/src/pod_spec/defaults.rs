//! What Kubernetes fills into the spec of a Pod.

use serde_json::{Value, json};

use super::CONTAINER_LISTS;
use crate::facts;
use crate::fields::{each_mut, fill, fill_number, section, text};
use crate::quantity;

/// Permissions of files made from volumes: 0644.
const FILE_MODE: i64 = 0o644;
const GRACE_SECONDS: i64 = 30;
const TOKEN_SECONDS: i64 = 3600;
const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];

pub(crate) fn default(spec: &mut Value) {
    fill(spec, "dnsPolicy", "ClusterFirst");
    fill(spec, "restartPolicy", "Always");
    fill(spec, "securityContext", json!({}));
    fill(spec, "terminationGracePeriodSeconds", GRACE_SECONDS);
    fill(spec, "schedulerName", "default-scheduler");
    // The deprecated name of the same field.
    for (from, to) in [("/serviceAccountName", "serviceAccount"), ("/serviceAccount", "serviceAccountName")] {
        let account = text(spec, from).to_owned();
        if !account.is_empty() {
            fill(spec, to, account);
        }
    }
    for list in CONTAINER_LISTS {
        each_mut(spec, &format!("/{list}")).for_each(default_container);
    }
    each_mut(spec, "/volumes").for_each(default_volume);
    quantity::canonicalize_all(spec, "/overhead");
    default_resources(spec);
}

/// The spec below `template`, in the object that holds it.
pub(crate) fn default_template(owner: &mut Value) {
    if let Some(template) = section(owner, "template")
        && let Some(spec) = section(template, "spec")
    {
        default(spec);
    }
}

fn default_container(container: &mut Value) {
    let policy = pull_policy(text(container, "/image"));
    fill(container, "imagePullPolicy", policy);
    fill(container, "terminationMessagePath", "/dev/termination-log");
    fill(container, "terminationMessagePolicy", "File");
    fill(container, "resources", json!({}));
    default_resources(container);
    for port in each_mut(container, "/ports") {
        facts::defaults("ContainerPort").for_each(|(field, value)| fill(port, field, value));
    }
    for variable in each_mut(container, "/env") {
        variable.pointer_mut("/valueFrom").into_iter().for_each(default_field_source);
    }
    for probe in PROBES {
        container.get_mut(probe).into_iter().for_each(default_probe);
    }
    for hook in ["/lifecycle/postStart", "/lifecycle/preStop"] {
        container.pointer_mut(hook).into_iter().for_each(default_handler);
    }
}

fn default_resources(owner: &mut Value) {
    quantity::canonicalize_all(owner, "/resources/limits");
    quantity::canonicalize_all(owner, "/resources/requests");
}

fn default_probe(probe: &mut Value) {
    fill_number(probe, "timeoutSeconds", 1);
    fill_number(probe, "periodSeconds", 10);
    fill_number(probe, "successThreshold", 1);
    fill_number(probe, "failureThreshold", 3);
    default_handler(probe);
}

fn default_handler(handler: &mut Value) {
    if let Some(get) = handler.get_mut("httpGet") {
        fill(get, "path", "/");
        fill(get, "scheme", "HTTP");
    }
    if let Some(grpc) = handler.get_mut("grpc") {
        fill(grpc, "service", "");
    }
}

/// Of what holds a `fieldRef`.
fn default_field_source(source: &mut Value) {
    if let Some(field) = source.get_mut("fieldRef") {
        fill(field, "apiVersion", "v1");
    }
    if let Some(resource) = source.get_mut("resourceFieldRef") {
        fill(resource, "divisor", "0");
        resource.get_mut("divisor").into_iter().for_each(quantity::canonicalize);
    }
}

fn default_volume(volume: &mut Value) {
    // A volume that says nothing but its name is an empty directory.
    if volume.as_object().is_some_and(|fields| fields.keys().all(|key| key == "name")) {
        volume["emptyDir"] = json!({});
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        volume.get_mut(source).into_iter().for_each(|source| fill(source, "defaultMode", FILE_MODE));
    }
    for (source, type_) in [
        ("azureDisk", "AzureDiskVolumeSource"),
        ("iscsi", "ISCSIVolumeSource"),
        ("rbd", "RBDVolumeSource"),
        ("scaleIO", "ScaleIOVolumeSource"),
    ] {
        if let Some(source) = volume.get_mut(source) {
            facts::defaults(type_).for_each(|(field, value)| fill(source, field, value));
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        fill(path, "type", "");
    }
    if let Some(image) = volume.get_mut("image") {
        let policy = pull_policy(text(image, "/reference"));
        fill(image, "pullPolicy", policy);
    }
    volume.pointer_mut("/emptyDir/sizeLimit").into_iter().for_each(quantity::canonicalize);
    each_mut(volume, "/downwardAPI/items").for_each(default_field_source);
    each_mut(volume, "/projected/sources").for_each(default_projection);
    default_claim(volume);
}

fn default_projection(source: &mut Value) {
    if let Some(token) = source.get_mut("serviceAccountToken") {
        fill(token, "expirationSeconds", TOKEN_SECONDS);
    }
    each_mut(source, "/downwardAPI/items").for_each(default_field_source);
}

fn default_claim(volume: &mut Value) {
    if let Some(claim) = volume.pointer_mut("/ephemeral/volumeClaimTemplate/spec") {
        fill(claim, "volumeMode", "Filesystem");
        default_resources(claim);
    }
}

/// An image that may change under its name is pulled anew each time: one tagged `latest`, or not tagged at all.
fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').map_or((image, false), |(name, _)| (name, true));
    let last = name.rsplit('/').next().unwrap_or_default();
    let latest = match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => !digest && !image.is_empty(),
    };
    if latest { "Always" } else { "IfNotPresent" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_pod() {
        let mut spec = json!({"containers": [{"name": "a", "image": "b", "ports": [{"containerPort": 80}]}], "volumes": [{"name": "v"}]});
        default(&mut spec);
        assert_eq!(
            spec,
            json!({
                "dnsPolicy": "ClusterFirst",
                "restartPolicy": "Always",
                "securityContext": {},
                "terminationGracePeriodSeconds": 30,
                "schedulerName": "default-scheduler",
                "containers": [{
                    "name": "a",
                    "image": "b",
                    "imagePullPolicy": "Always",
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "resources": {},
                    "ports": [{"containerPort": 80, "protocol": "TCP"}],
                }],
                "volumes": [{"name": "v", "emptyDir": {}}],
            })
        );
        let once = spec.clone();
        default(&mut spec);
        assert_eq!(spec, once);
    }

    #[test]
    fn deep_fields() {
        let mut spec = json!({
            "serviceAccountName": "builder",
            "containers": [{
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 5},
                "lifecycle": {"preStop": {"httpGet": {"port": 80}}},
                "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}},
            }],
            "volumes": [
                {"name": "a", "secret": {"secretName": "s"}},
                {"name": "b", "hostPath": {"path": "/"}},
                {"name": "c", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
                {"name": "d", "rbd": {"user": "me"}},
            ],
        });
        default(&mut spec);
        let container = &spec["containers"][0];
        assert_eq!(spec["serviceAccount"], "builder");
        assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"], "v1");
        assert_eq!(
            container["livenessProbe"],
            json!({
                "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                "periodSeconds": 5,
                "timeoutSeconds": 1,
                "successThreshold": 1,
                "failureThreshold": 3,
            })
        );
        assert_eq!(container["lifecycle"]["preStop"]["httpGet"]["scheme"], "HTTP");
        assert_eq!(container["resources"]["limits"], json!({"cpu": "500m", "memory": "1Gi"}));
        assert_eq!(spec["volumes"][0]["secret"]["defaultMode"], 420);
        assert_eq!(spec["volumes"][1]["hostPath"]["type"], "");
        assert_eq!(spec["volumes"][2]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"], 3600);
        assert_eq!(spec["volumes"][3]["rbd"], json!({"user": "me", "pool": "rbd", "keyring": "/etc/ceph/keyring"}));
    }

    #[test]
    fn pulled_by_tag() {
        for (image, policy) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1.27", "IfNotPresent"),
            ("host:5000/nginx", "Always"),
            ("host:5000/nginx:1", "IfNotPresent"),
            ("nginx@sha256:00", "IfNotPresent"),
            ("", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }
}
