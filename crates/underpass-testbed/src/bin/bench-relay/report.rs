//! The samples, and how they are shown: a table for people, JSON, and the page in docs/.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};
use underpass_testbed::proxies::{Proxy, WORKERS};

use crate::measure::{Amounts, Measure, Samples};

pub(crate) struct Results {
    /// With their versions, in the order of the columns.
    proxies: Vec<(Proxy, String)>,
    amounts: Amounts,
    machine: String,
    samples: BTreeMap<(Measure, Proxy), Vec<f64>>,
    notes: Vec<String>,
}

/// Rows in the order of the table: what it is, its unit, and whether less is asked of us than of every other.
const ROWS: [(Measure, &str, &str, bool); 11] = [
    (Measure::CpuPerGib, "CPU per GiB, both directions at once", "s", true),
    (Measure::AllCpuPerGib, "the same with client and backend", "s", false),
    (Measure::CpuPerConnection, "CPU per connection", "µs", true),
    (Measure::CpuPerRoundTrip, "CPU per round trip of 64 bytes", "µs", true),
    (Measure::IdleMemory, "memory per idle connection", "KiB", true),
    (Measure::IdleDescriptors, "descriptors per idle connection", "", false),
    (Measure::ChangeMany, "change to first connection, some backends", "ms", false),
    (Measure::ChangeVeryMany, "change to first connection, many backends", "ms", false),
    (Measure::RoutingFew, "CPU per connection, 10 backends", "µs", false),
    (Measure::RoutingVeryMany, "CPU per connection, many backends", "µs", false),
    (Measure::Lost, "connections lost over all changes", "", false),
];

impl Results {
    pub(crate) fn new(programs: &[(Proxy, PathBuf)], amounts: Amounts) -> Self {
        let proxies = programs.iter().map(|(proxy, program)| (*proxy, proxy.version(program))).collect();
        Self { proxies, amounts, machine: machine(), samples: BTreeMap::new(), notes: Vec::new() }
    }

    pub(crate) fn add(&mut self, proxy: Proxy, samples: Samples) {
        for (measure, sample) in samples {
            self.samples.entry((measure, proxy)).or_default().push(sample);
        }
    }

    /// What could not be measured, and why.
    pub(crate) fn note(&mut self, proxy: Proxy, text: &str) {
        let note = format!("{}: {text}", proxy.name());
        eprintln!("{note}");
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    pub(crate) fn proxies(&self) -> impl Iterator<Item = Proxy> {
        self.proxies.iter().map(|(proxy, _)| *proxy)
    }

    pub(crate) fn median(&self, proxy: Proxy, measure: Measure) -> Option<f64> {
        let mut samples = self.samples.get(&(measure, proxy))?.clone();
        samples.sort_by(f64::total_cmp);
        samples.get(samples.len() / 2).copied()
    }

    pub(crate) fn table(&self) -> String {
        let names: Vec<String> =
            self.proxies.iter().map(|(proxy, version)| format!("{} {version}", proxy.name())).collect();
        let mut text = format!("| measure | unit | {} | floor |\n|---|---|", names.join(" | "));
        text.push_str(&"--:|".repeat(names.len()));
        text.push_str("---|\n");
        for (measure, name, unit, must_win) in ROWS {
            let cells: Vec<String> = self.proxies().map(|proxy| self.cell(proxy, measure)).collect();
            if cells.iter().all(|cell| cell == NOTHING) {
                continue;
            }
            let floor = if must_win { self.floor(measure) } else { "" };
            let _ = writeln!(text, "| {} | {unit} | {} | {floor} |", self.row_name(measure, name), cells.join(" | "));
        }
        self.notes.iter().for_each(|note| {
            let _ = writeln!(text, "\nNot measured: {note}");
        });
        text
    }

    pub(crate) fn json(&self) -> Value {
        let mut measures = serde_json::Map::new();
        for (measure, name, unit, _) in ROWS {
            let proxies: BTreeMap<&str, Value> = self
                .proxies()
                .filter_map(|proxy| {
                    let samples = self.samples.get(&(measure, proxy))?;
                    Some((proxy.name(), json!({ "median": self.median(proxy, measure), "samples": samples })))
                })
                .collect();
            let key = serde_json::to_value(measure).ok().and_then(|key| key.as_str().map(str::to_owned));
            let row = json!({ "name": self.row_name(measure, name), "unit": unit, "proxies": proxies });
            measures.insert(key.unwrap_or_default(), row);
        }
        let versions: BTreeMap<&str, &String> =
            self.proxies.iter().map(|(proxy, version)| (proxy.name(), version)).collect();
        json!({ "versions": versions, "machine": self.machine, "amounts": self.amounts, "measures": measures, "not_measured": self.notes })
    }

    pub(crate) fn page(&self) -> String {
        PAGE.replace("{table}", &self.table())
            .replace("{machine}", &self.machine)
            .replace("{workers}", &WORKERS.to_string())
            .replace("{repeats}", &self.amounts.repeats.to_string())
    }

    fn row_name(&self, measure: Measure, name: &str) -> String {
        match measure {
            Measure::ChangeMany => name.replace("some", &thousands(self.amounts.many)),
            Measure::ChangeVeryMany | Measure::RoutingVeryMany => {
                name.replace("many", &thousands(self.amounts.very_many))
            }
            Measure::Lost => name.replace("all", &thousands(self.amounts.reloads)),
            _ => name.to_owned(),
        }
    }

    fn cell(&self, proxy: Proxy, measure: Measure) -> String {
        let (Some(median), Some(samples)) = (self.median(proxy, measure), self.samples.get(&(measure, proxy))) else {
            return NOTHING.to_owned();
        };
        let least = samples.iter().copied().fold(f64::INFINITY, f64::min);
        let most = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if samples.len() == 1 || number(least) == number(most) {
            return number(median);
        }
        format!("{} ({} to {})", number(median), number(least), number(most))
    }

    /// Whether ours needs less than every other.
    fn floor(&self, measure: Measure) -> &'static str {
        let Some(ours) = self.median(Proxy::Underpass, measure) else { return "" };
        let others = self.proxies().filter(|proxy| *proxy != Proxy::Underpass);
        let best = others.filter_map(|proxy| self.median(proxy, measure)).fold(f64::INFINITY, f64::min);
        if ours < best { "holds" } else { "**does not hold**" }
    }
}

const NOTHING: &str = "-";

const PAGE: &str = "# The relay beside Envoy, HAProxy, nginx and sniproxy

    make bench-relay

{machine}

{table}
![The same as bars](performance.svg)

Written by `bench-relay` in `crates/underpass-testbed`. Each figure is the median of {repeats} samples, with the least and the greatest
of them behind it; proxies take turns, so that a slow minute of the machine meets all of them. Every proxy has {workers} workers (sniproxy,
which has none: {workers} instances on one port, as its documentation has it), no access log, and the same routing, in the words of
`src/proxies/`. Clients and backends are threads of the program that measures; their processor time is not counted, except in the row that
says so.

- **CPU** is user and system time of all processes of the proxy from `/proc/PID/stat`, until it has come to rest again.
- **CPU per GiB**: 4 connections, bulk both ways at once. The row below it adds client and backend: a proxy that only
  moved its work into the kernel's share of others would be seen there.
- **CPU per connection**: connect, hello, connect to the backend, one byte back, close.
- **CPU per round trip**: 64 bytes there and back on 32 connections. HAProxy splices these too; with `splice-auto` it took
  less here and more per GiB in the few runs that were made so.
- **memory per idle connection**: growth of the proportional resident memory of all processes, once at rest. What the kernel holds for
  sockets and pipes is not in it; the row of descriptors shows who keeps how many.
- **change to first connection**: to the first answered connection under a new name. Envoy and underpass watch their files: from the moment
  these are in place. HAProxy, nginx and sniproxy get the signal that their documentation names for it: from that moment.
- **CPU per connection, 10 and many backends**: all names are asked for in turn.
- **connections lost**: new connections that were not answered and standing ones that broke, while the routing is changed again and again.
";

/// What it was measured on, and how busy that was when it began.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (processor, load) = (read("/proc/cpuinfo"), read("/proc/loadavg"));
    let model = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = load.split(' ').next().unwrap_or_default();
    format!("Measured on {cores} cores ({model}), Linux {}, with a load of {load} at the beginning.", kernel.trim())
}

/// Three digits say enough.
pub(crate) fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

fn thousands(value: usize) -> String {
    match (value / 1000, value % 1000) {
        (0, rest) => rest.to_string(),
        (thousands, rest) => format!("{thousands},{rest:03}"),
    }
}
