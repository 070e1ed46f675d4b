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

use crate::{assert_contains, network};

/// A ConfigMap with one key, as YAML.
fn config_map(name: &str, key: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{app: {name}}}}}\ndata: {{{key}: '{value}'}}\n"
    )
}

/// The words of each line, for tables whose widths do not matter.
fn rows(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect()).collect()
}
