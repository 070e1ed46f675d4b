//! The table of cases and proxies, and what was seen where a case failed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};
use underpass_testbed::fidelity::{Case, Settings, Verdict};
use underpass_testbed::proxies::{HELLO_DEADLINE, Proxy, WORKERS};
use underpass_testbed::report::Contender;

/// What one proxy did.
pub(crate) struct Column {
    pub(crate) proxy: Proxy,
    pub(crate) version: String,
    pub(crate) verdicts: Vec<(&'static Case, Verdict)>,
}

impl Column {
    fn title(&self) -> String {
        format!("{} {}", self.proxy.name(), self.version)
    }

    fn score(&self) -> String {
        let passed = self.verdicts.iter().filter(|(_, verdict)| *verdict == Verdict::Pass).count();
        format!("**{passed} of {}**", self.verdicts.len())
    }
}

pub(crate) fn table(columns: &[Column]) -> String {
    let titles: Vec<String> = columns.iter().map(Column::title).collect();
    let mut text =
        format!("| case | what is owed | {} |\n|---|---|{}\n", titles.join(" | "), "---|".repeat(columns.len()));
    let cases = columns.first().map_or(0, |column| column.verdicts.len());
    for row in 0..cases {
        let case = columns[0].verdicts[row].0;
        let cells: Vec<&str> = columns.iter().map(|column| cell(&column.verdicts[row].1)).collect();
        let _ = writeln!(text, "| {} | {} | {} |", case.name, case.demand, cells.join(" | "));
    }
    let scores: Vec<String> = columns.iter().map(Column::score).collect();
    let _ = writeln!(text, "| **holds** | | {} |", scores.join(" | "));
    let _ = writeln!(text, "\n{}", seen(columns));
    text
}

fn cell(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "yes",
        Verdict::Fail(_) => "**no**",
        Verdict::NotOffered(_) => "not offered",
    }
}

/// What stands behind each `no`.
fn seen(columns: &[Column]) -> String {
    let mut text = String::new();
    for column in columns {
        let (mut failed, mut missing) = (Vec::new(), BTreeMap::<&str, Vec<&str>>::new());
        for (case, verdict) in &column.verdicts {
            match verdict {
                Verdict::Pass => {}
                Verdict::Fail(what) => failed.push(format!("- {}: {what}", case.name)),
                Verdict::NotOffered(why) => missing.entry(why).or_default().push(case.name),
            }
        }
        if failed.is_empty() && missing.is_empty() {
            continue;
        }
        let _ = writeln!(text, "### {}\n", column.title());
        failed.iter().for_each(|line| text.push_str(&format!("{line}\n")));
        for (why, cases) in missing {
            let _ = writeln!(text, "- not offered, it {why}: {}", cases.join("; "));
        }
        text.push('\n');
    }
    text
}

pub(crate) fn json(columns: &[Column]) -> Value {
    let proxies: BTreeMap<&str, Value> = columns
        .iter()
        .map(|column| {
            let cases: BTreeMap<&str, Value> =
                column.verdicts.iter().map(|(case, verdict)| (case.name, as_json(verdict))).collect();
            (column.proxy.name(), json!({ "version": column.version, "cases": cases }))
        })
        .collect();
    json!({ "proxies": proxies })
}

fn as_json(verdict: &Verdict) -> Value {
    match verdict {
        Verdict::Pass => json!({ "verdict": "pass" }),
        Verdict::Fail(seen) => json!({ "verdict": "fail", "seen": seen }),
        Verdict::NotOffered(why) => json!({ "verdict": "not offered", "why": why }),
    }
}

pub(crate) fn page(columns: &[Column], settings: Settings) -> String {
    format!(
        "# What a relay owes to both sides

    make bench-fidelity

Every case is a promise of TCP, TLS or the PROXY protocol to two programs that talk through a proxy, or of our own rules to those who
run one: nothing is routed by guess. The same cases run against underpass in `make test`. Each proxy has {WORKERS} workers, {} seconds
for a hello where it can be told, and the routing that `crates/underpass-testbed/src/proxies/` writes for it: half-close switched on in
nginx, names compared without case and trailing dot where the proxy has a way to say so, all buffers as they come. The case with many
connections makes {}.

{}",
        HELLO_DEADLINE.as_secs(),
        settings.sequential,
        table(columns)
    )
}
