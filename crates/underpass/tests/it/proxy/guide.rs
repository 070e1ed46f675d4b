//! `docs/proxy.md`, pasted into a shell as its readers do: every command works, and shows what the page says.

use std::path::Path;
use std::process::Command;

use underpass_testbed::Process;

use super::own_address;
use crate::{BINARY, root};

/// What the page has people type, and what they should see; nothing is said of some.
struct Step<'a> {
    commands: &'a str,
    shown: Option<&'a str>,
}

#[test]
fn every_command_of_the_guide_shows_what_the_guide_says() {
    let address = own_address().to_string();
    let page = std::fs::read_to_string(root().join("docs/proxy.md")).unwrap().replace("127.0.0.1", &address);
    let steps = steps(&page);
    assert!(steps.iter().filter(|step| step.shown.is_some()).count() > 12, "the steps are gone");
    let folder = tempfile::tempdir().unwrap();
    let ended = shell(folder.path(), &address, &script(&steps)).wait();
    let shown = |number: usize| std::fs::read_to_string(folder.path().join(format!("shown.{number}")));
    for (number, step) in steps.iter().enumerate() {
        let Ok(actual) = shown(number) else { panic!("it ended before:\n{}\n{ended}", step.commands) };
        if let Some(expected) = step.shown {
            assert!(matches(expected, &actual), "{}\nshould show\n{expected}\nbut shows\n{actual}", step.commands);
        }
    }
    assert_eq!(ended.code, Some(0), "{ended}\nthe last step shows\n{}", shown(steps.len() - 1).unwrap());
}

/// The `sh` blocks, each with the `text` block that follows it, if one does.
fn steps(page: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for block in page.split("\n```").skip(1).step_by(2) {
        match block.split_once('\n').unwrap() {
            ("sh", commands) => steps.push(Step { commands, shown: None }),
            ("text", shown) => steps.last_mut().unwrap().shown = Some(shown),
            (other, _) => panic!("a block of {other}: is it to be run?"),
        }
    }
    steps
}

/// All steps in one shell, what each shows in a file of its own. Whatever runs in the background ends with it.
fn script(steps: &[Step<'_>]) -> String {
    let mut script = "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n".to_owned();
    for (number, step) in steps.iter().enumerate() {
        script.push_str(&format!("exec > shown.{number} 2>&1\n{}\n", step.commands));
    }
    script
}

/// A shell with `underpass` on its path, whose admin port has the test's own address too.
fn shell(folder: &Path, address: &str, script: &str) -> Process {
    let bin = folder.join("bin");
    std::fs::create_dir(&bin).unwrap();
    let underpass = format!(
        "#!/bin/sh\nif [ \"$1\" = proxy ]; then shift; set -- proxy --admin {address}:9901 \"$@\"; fi\nexec {BINARY} \"$@\"\n"
    );
    std::fs::write(bin.join("underpass"), underpass).unwrap();
    std::fs::set_permissions(bin.join("underpass"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command.args(["-c", script]).current_dir(folder).env("PATH", path).env("HOME", folder);
    for variable in ["RUST_LOG", "http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(variable);
    }
    Process::start(&mut command)
}

/// Line by line; `...` stands for anything.
fn matches(expected: &str, actual: &str) -> bool {
    let (expected, actual): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), actual.lines().collect());
    expected.len() == actual.len()
        && expected.iter().zip(&actual).all(|(expected, actual)| line_matches(expected, actual))
}

fn line_matches(expected: &str, actual: &str) -> bool {
    let mut pieces = expected.split("...");
    let Some(mut rest) = pieces.next().and_then(|first| actual.strip_prefix(first)) else { return false };
    let mut open = false;
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
        open = piece.is_empty();
    }
    open || rest.is_empty()
}
