//! The table for people and the same as JSON. A floor is marked, never enforced.

use serde_json::{Value, json};

use crate::measure::Measured;

struct Row {
    name: &'static str,
    unit: &'static str,
    value: fn(&Measured) -> f64,
    floor: Floor,
}

/// What must hold at least.
#[derive(Clone, Copy)]
enum Floor {
    None,
    AtMost(f64),
    AtLeast(f64),
    /// At least as many as the other server.
    NotFewer,
    /// At most as much as the other server.
    NotMore,
}

const ROWS: [Row; 10] = [
    Row { name: "start to /readyz (median of 5)", unit: "ms", value: |m| m.ready_ms, floor: Floor::AtMost(500.0) },
    Row { name: "idle RSS, all kinds installed", unit: "MiB", value: |m| m.idle_rss_mib, floor: Floor::AtMost(60.0) },
    Row { name: "durable creates, 1 client", unit: "per s", value: |m| m.creates_per_s_alone, floor: Floor::NotFewer },
    Row {
        name: "durable creates, 16 clients",
        unit: "per s",
        value: |m| m.creates_per_s_crowd,
        floor: Floor::NotFewer,
    },
    Row { name: "CPU for 10,000 writes", unit: "s", value: |m| m.cpu_s_per_10k_writes, floor: Floor::NotMore },
    Row { name: "list of 10,000 objects", unit: "ms", value: |m| m.list_ms, floor: Floor::None },
    Row { name: "CPU for that list", unit: "ms", value: |m| m.list_cpu_ms, floor: Floor::None },
    Row { name: "watch latency p50, 100 watchers", unit: "ms", value: |m| m.watch_p50_ms, floor: Floor::None },
    Row { name: "watch latency p99, 100 watchers", unit: "ms", value: |m| m.watch_p99_ms, floor: Floor::None },
    Row {
        name: "writes beside a watcher that never reads",
        unit: "%",
        value: |m| m.writes_beside_stalled_watcher_percent,
        floor: Floor::AtLeast(95.0),
    },
];

impl Floor {
    fn text(self) -> String {
        match self {
            Self::None => String::new(),
            Self::AtMost(limit) => format!("at most {limit}"),
            Self::AtLeast(limit) => format!("at least {limit}"),
            Self::NotFewer => "not fewer".to_owned(),
            Self::NotMore => "not more".to_owned(),
        }
    }

    /// Whether it holds; `None` when there is nothing to hold, or nobody to compare with.
    fn holds(self, ours: f64, theirs: Option<f64>) -> Option<bool> {
        match self {
            Self::None => None,
            Self::AtMost(limit) => Some(ours <= limit),
            Self::AtLeast(limit) => Some(ours >= limit),
            Self::NotFewer => theirs.map(|theirs| ours >= theirs),
            Self::NotMore => theirs.map(|theirs| ours <= theirs),
        }
    }
}

pub(crate) fn table(ours: &Measured, theirs: Option<&Measured>) -> String {
    let mut text =
        "| measure | unit | underpass | kube-apiserver + etcd | floor | holds |\n|---|---|--:|--:|---|---|\n"
            .to_owned();
    for row in &ROWS {
        let (own, other) = ((row.value)(ours), theirs.map(row.value));
        let mark = row.floor.holds(own, other).map_or("", |holds| if holds { "yes" } else { "**no**" });
        let other = other.map_or_else(|| "not measured".to_owned(), number);
        let floor = row.floor.text();
        text.push_str(&format!("| {} | {} | {} | {other} | {floor} | {mark} |\n", row.name, row.unit, number(own)));
    }
    text
}

pub(crate) fn json(ours: &Measured, theirs: Option<&Measured>) -> Value {
    let floors: Vec<Value> = ROWS
        .iter()
        .filter_map(|row| {
            let holds = row.floor.holds((row.value)(ours), theirs.map(row.value))?;
            Some(json!({ "measure": row.name, "floor": row.floor.text(), "holds": holds }))
        })
        .collect();
    json!({ "underpass": ours, "kubernetes": theirs, "floors": floors })
}

/// Three digits say enough.
fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}
