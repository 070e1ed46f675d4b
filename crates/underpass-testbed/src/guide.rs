//! A page of the documentation, pasted into a shell as its readers do: every command works, and shows what the page says.

use std::time::Duration;

use crate::shell::Shell;

/// What a page has people type, and what they should see; nothing is said of some.
struct Step<'a> {
    commands: &'a str,
    shown: Option<&'a str>,
}

/// Runs the `sh` blocks of a page one after another in one shell; each shows what the `text` block that follows it says, if one does,
/// with `...` for anything. `underpass` is a script that is found under that name.
#[track_caller]
pub fn follow_guide(page: &str, underpass: &str, environment: &[(&str, &str)], patience: Duration) {
    let steps = steps(page);
    assert!(steps.iter().any(|step| step.shown.is_some()), "the steps are gone");
    let shell = Shell::new(environment);
    shell.provide("underpass", underpass);
    let ended = shell.start(&script(&steps)).wait_within(patience);
    let shown = |number: usize| std::fs::read_to_string(shell.folder().join(format!("shown.{number}")));
    for (number, step) in steps.iter().enumerate() {
        let Ok(actual) = shown(number) else { panic!("it ended before:\n{}\n{ended}", step.commands) };
        if let Some(expected) = step.shown {
            assert!(matches(expected, &actual), "{}\nshould show\n{expected}\nbut shows\n{actual}", step.commands);
        }
    }
    let last = shown(steps.len() - 1).unwrap_or_default();
    assert_eq!(ended.code, Some(0), "{ended}\nthe last step shows\n{last}");
}

fn steps(page: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for block in page.split("\n```").skip(1).step_by(2) {
        match (block.split_once('\n'), steps.last_mut()) {
            (Some(("sh", commands)), _) => steps.push(Step { commands, shown: None }),
            (Some(("text", shown)), Some(step)) => step.shown = Some(shown),
            (other, _) => panic!("a block that is neither sh nor what a step shows: {other:?}"),
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

/// Line by line.
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
