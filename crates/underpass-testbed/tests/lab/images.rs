use std::path::Path;
use std::process::Command;

use underpass_testbed::{Lab, LabNamespace};

fn shell(script: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    assert!(Command::new("bash").args(["-euc", script]).current_dir(folder).status().unwrap().success(), "{script}");
}

/// On every node, from an image that is never pulled.
fn runs_everywhere(lab: &Lab, namespace: &LabNamespace, image: &str) {
    let nodes = lab.kubectl().ok("get nodes -o jsonpath={.items[*].metadata.name}");
    for node in nodes.split(' ') {
        let place = format!(r#"{{"spec":{{"nodeName":"{node}","terminationGracePeriodSeconds":0}}}}"#);
        let line = format!("run on-{node} --image {image} --image-pull-policy Never --overrides '{place}'");
        namespace.kubectl.ok(&line);
        namespace.kubectl.ok(&format!("wait pod/on-{node} --for condition=Ready --timeout 60s"));
    }
}

#[test]
fn a_docker_archive_is_loaded_on_every_node() {
    let lab = Lab::running();
    let namespace = lab.namespace("docker-archive");
    let image = format!("lab.local/{}:1", namespace.name);
    let archive = tempfile::NamedTempFile::new().unwrap();
    shell(&format!("lab/image {image} /bin/busybox sleep infinity >{}", archive.path().display()));
    lab.load(archive.path()).ok();
    runs_everywhere(&lab, &namespace, &image);
}

#[test]
fn an_oci_archive_is_loaded_on_every_node() {
    let lab = Lab::running();
    let namespace = lab.namespace("oci-archive");
    let image = format!("lab.local/{}:1", namespace.name);
    let archive = tempfile::NamedTempFile::new().unwrap();
    let ctr = "scripts/lab on node-0 ctr -n k8s.io images";
    shell(&format!(
        "{ctr} tag {} {image} >/dev/null; {ctr} export --skip-manifest-json - {image} >{}; {ctr} rm {image} >/dev/null",
        Lab::BUSYBOX,
        archive.path().display()
    ));
    lab.load(archive.path()).ok();
    runs_everywhere(&lab, &namespace, &image);
}

#[test]
fn what_is_no_archive_is_refused() {
    let lab = Lab::running();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "not an archive").unwrap();
    let said = lab.load(file.path()).failed();
    assert!(said.contains("cannot be loaded on node-0"), "{said}");
    let said = lab.load(Path::new("/nowhere/image.tar")).failed();
    assert!(said.contains("there is no archive '/nowhere/image.tar'"), "{said}");
}
