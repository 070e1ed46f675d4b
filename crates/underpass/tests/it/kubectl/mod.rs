//! Every way in which people use kubectl, against the embedded API server. Assertions are on what kubectl prints.

mod apply;
mod change;
mod create;
mod definitions;
mod delete;
mod describe;
mod discovery;
mod generators;
mod get;
mod waiting;

/// A ConfigMap with one key, as YAML.
fn config_map(name: &str, key: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{app: {name}}}}}\ndata: {{{key}: '{value}'}}\n"
    )
}

/// A ContainerNetwork with all defaults, as YAML.
fn network(name: &str) -> String {
    format!("apiVersion: underpass.dev/v1alpha1\nkind: ContainerNetwork\nmetadata: {{name: {name}}}\nspec: {{}}\n")
}

#[track_caller]
fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
}

/// The words of each line, for tables whose widths do not matter.
fn rows(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect()).collect()
}
