//! Every file in `plans/` is one case: what was observed (YAML), a line of dashes, and the plan as a person reads it.
//! `UPDATE=1 cargo test -p underpass-plan` rewrites the plans; read the difference before you commit it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};

use underpass_plan::{Plan, container_network, unbuilt};

const MARK: &str = "\n---- plan\n";

#[test]
fn every_case_gives_its_plan() {
    let mut wrong = Vec::new();
    let cases = cases();
    assert!(cases.len() > 10, "the cases are gone");
    for path in cases {
        let text = std::fs::read_to_string(&path).unwrap();
        let (input, expected) = text.split_once(MARK).unwrap_or((text.trim_end(), ""));
        let actual = plan(&path, input).to_string();
        if actual == expected {
            continue;
        }
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, format!("{input}{MARK}{actual}")).unwrap();
        } else {
            wrong.push(format!("{}:\n--- expected\n{expected}--- actual\n{actual}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn plan(path: &Path, input: &str) -> Plan {
    let name = path.file_name().unwrap().to_str().unwrap();
    if name.starts_with("container-network") {
        let observed = serde_saphyr::from_str(input).unwrap_or_else(|error| panic!("{name}: {error}"));
        return container_network::plan(&observed);
    }
    let observed = serde_saphyr::from_str(input).unwrap_or_else(|error| panic!("{name}: {error}"));
    unbuilt::plan(&observed)
}
