//! The commands that need no server: plan, crds, completion, version, help.

use std::process::Command;

use serde_json::Value;
use underpass_testbed::Process;

use super::{assert_contains, launch, network, run, write};
use crate::{BINARY, root};

const COMMANDS: [&str; 12] = [
    "up",
    "apiserver",
    "controllers",
    "operator",
    "plan",
    "status",
    "image",
    "install",
    "uninstall",
    "crds",
    "completion",
    "version",
];

#[test]
fn a_plan_says_what_would_be_done_and_why() {
    let file = root().join("examples/tunnel.yaml");
    let plan = launch("plan").arg("-f").arg(&file).run().ok();
    assert_contains(
        &plan,
        &[
            "Plan for 2 objects, on a",
            "each as if those before it were done",
            "ContainerNetwork web\n",
            "action      create the network",
            "because     ",
        ],
    );
    let document = |format: &str| launch("plan").arg("-f").arg(&file).arg("-o").arg(format).run().ok();
    for format in ["text", "json"] {
        assert_eq!(document(format), document(format), "no clock is in it");
    }
    let json: Value = serde_json::from_str(&document("json")).unwrap();
    let yaml: Value = serde_saphyr::from_str(&document("yaml")).unwrap();
    for plans in [json, yaml] {
        let names: Vec<_> = plans.as_array().unwrap().iter().map(|plan| plan["subject"]["name"].as_str()).collect();
        assert_eq!(names, [Some("web"), Some("web-to-host")]);
        assert!(plans[0]["actions"][0]["createNetwork"].is_object(), "{plans:#}");
    }
}

#[test]
fn every_example_can_be_planned() {
    for entry in std::fs::read_dir(root().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        assert_contains(&launch("plan").arg("-f").arg(&path).run().ok(), &["Plan for "]);
    }
}

#[test]
fn a_plan_lists_all_errors_and_fails() {
    let folder = tempfile::tempdir().unwrap();
    let bad = network("bad").replace("spec: {}", "spec: {mode: sometimes, colour: red}");
    let file = write(folder.path(), "bad.yaml", &format!("{}---\n{bad}", network("good")));
    let ended = launch("plan").arg("-f").arg(&file).run();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended}");
    let place = format!("{}, document 2 (ContainerNetwork bad): ", file.display());
    assert_contains(
        &ended.stderr,
        &[
            &format!("{place}spec.colour: unknown field"),
            &format!("{place}spec.mode: Unsupported value: \"sometimes\""),
        ],
    );
    assert_contains(
        &ended.stderr,
        &["\n2 errors found, nothing was planned; rules between fields are checked after that\n"],
    );
    assert_eq!(ended.stderr.lines().count(), 3, "two errors and their number: {ended}");
    assert_eq!(run("plan -f /nowhere.yaml").code, Some(1));
    assert_eq!(run("plan").code, Some(2), "the command line itself is wrong");
}

#[test]
fn a_plan_says_what_it_did_not_check() {
    let foreign = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n";
    let plan = |text: &str| launch("plan").arg("-f").arg("-").run_with(text);
    let ended = plan(&format!("{foreign}---\n{}", network("net")));
    assert_contains(
        &ended.stderr,
        &["stdin, document 1 (ConfigMap c): not a kind of underpass; it is not checked here"],
    );
    assert_contains(&ended.ok(), &["Plan for 1 of 2 objects, on a"]);
    assert_eq!(plan(foreign).ok(), "Nothing to plan: there is no object of underpass\n");
    assert_contains(
        &words(&run("plan --help").ok()),
        &["Of other kinds, and of names and labels, only their server can judge."],
    );
}

#[test]
fn the_definitions_can_be_given_to_a_cluster() {
    let yaml = run("crds").ok();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&yaml).unwrap();
    assert_eq!(documents.len(), underpass_resources::KINDS.len());
    assert!(documents.iter().all(|document| document["kind"] == "CustomResourceDefinition"));
    let server = crate::server::embedded_apiserver();
    let applied = server.kubectl().ok_with("apply --server-side --force-conflicts -f -", &yaml);
    assert_eq!(applied.matches(" serverside-applied\n").count(), documents.len(), "{applied}");
}

#[test]
fn output_that_cannot_be_written_is_said_with_what_failed() {
    for command in ["crds", "version", "completion bash"] {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{BINARY} {command} > /dev/full")]);
        let said = Process::start(&mut shell).wait().failed();
        assert_eq!(said, "underpass: cannot write to stdout: No space left on device (os error 28)\n");
        shell = Command::new("bash");
        shell.args(["-c", &format!("set -o pipefail; {BINARY} {command} | true")]);
        assert_eq!(Process::start(&mut shell).wait().ok(), "", "a reader that has enough is no failure");
    }
}

#[test]
fn every_command_has_help_with_an_example() {
    for command in COMMANDS {
        let help = run(&format!("{command} --help")).ok();
        assert!(help.contains("Example") && help.contains(&format!("underpass {command}")), "{command}:\n{help}");
    }
    let all = run("--help").ok();
    assert_contains(&all, &COMMANDS);
    assert_contains(&all, &["Exit codes:"]);
    for command in ["up", "apiserver", "controllers", "plan", "status"] {
        assert_contains(&run(&format!("{command} --help")).ok(), &["Exit codes: 0 ", "1 "]);
    }
}

/// However it was broken into lines.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn help_fits_into_a_terminal() {
    for command in COMMANDS {
        let help = launch(command).arg("--help").env("COLUMNS", "100").run().ok();
        let widest = help.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100), "{command} needs {widest:?} columns:\n{help}");
    }
}

#[test]
fn a_wrong_command_line_is_told_how_to_be_right() {
    for (line, words) in [
        ("up --listen 127.0.0.1", "give an IP address and a port, as in 127.0.0.1:6443"),
        ("up --log-level nonsense=x", "\"info\""),
        ("status -o wide", "[possible values: table, yaml, json]"),
        ("plan", "--file <FILE>"),
        ("pln", "a similar subcommand exists: 'plan'"),
    ] {
        let ended = run(line);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended}");
        assert_contains(&ended.stderr, &[words]);
    }
}

#[test]
fn completion_scripts_know_every_command() {
    for (shell, mark) in [("bash", "complete -F"), ("zsh", "#compdef underpass"), ("fish", "complete -c underpass")] {
        let script = run(&format!("completion {shell}")).ok();
        assert_contains(&script, &[mark]);
        assert_contains(&script, &COMMANDS);
    }
    assert_eq!(run("completion cobol").code, Some(2));
}

/// As a shell does it: the script is read, then asked about half a word.
#[test]
fn bash_completes_words() {
    let script = format!(
        r#"eval "$({BINARY} completion bash)"
        ask() {{ COMP_WORDS=(underpass "$@"); COMP_CWORD=$#; COMPREPLY=(); _underpass underpass "${{!#}}" "${{COMP_WORDS[$#-1]}}"; echo "${{COMPREPLY[@]}}"; }}
        ask st; ask status --wa; ask status -o y"#
    );
    let said = Process::start(Command::new("bash").args(["-c", &script])).wait().ok();
    assert_eq!(said, "status\n--watch\nyaml\n");
}

#[test]
fn the_version_is_said_to_people_and_programs() {
    let version = env!("CARGO_PKG_VERSION");
    assert_contains(&run("version").ok(), &[version]);
    let json: Value = serde_json::from_str(&run("version --output json").ok()).unwrap();
    assert!(json.to_string().contains(version), "{json}");
    assert_contains(&run("--version").ok(), &[version]);
}
