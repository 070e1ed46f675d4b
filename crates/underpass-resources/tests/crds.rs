//! The CRD manifests under `deploy/crds` are what the types say. `UPDATE=1 cargo test -p underpass-resources` rewrites them.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use underpass_resources::{KINDS, crds};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds")
}

fn wanted() -> BTreeMap<String, String> {
    let names = KINDS.iter().map(|kind| format!("{}.yaml", kind.crd_name()));
    names.zip(crds()).map(|(name, crd)| (name, serde_saphyr::to_string(&crd).unwrap())).collect()
}

fn present() -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap()))
        .collect()
}

#[test]
fn the_manifests_are_not_stale() {
    let wanted = wanted();
    if std::env::var_os("UPDATE").is_some() {
        for name in present().keys() {
            std::fs::remove_file(folder().join(name)).unwrap();
        }
        for (name, text) in &wanted {
            std::fs::write(folder().join(name), text).unwrap();
        }
    }
    let present = present();
    assert_eq!(present.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
    for (name, text) in &wanted {
        assert!(present[name] == *text, "deploy/crds/{name} is stale: run UPDATE=1 cargo test -p underpass-resources");
    }
}
