//! Samples of several contenders side by side, and how they are shown: a table for people, JSON, bars, and a page. A floor is marked,
//! never enforced.

mod plot;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;
use serde_json::{Value, json};

/// One column of the table.
pub trait Contender: Copy + Ord {
    /// The one that floors are about.
    const OURS: Self;

    fn name(self) -> &'static str;
}

/// What is measured, in the order of the table.
pub struct Row<M> {
    pub measure: M,
    pub name: String,
    pub unit: &'static str,
    pub floor: Floor,
}

/// What must hold at least.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Floor {
    None,
    /// Ours needs less than every other.
    LeastOfAll,
    AtMost(f64),
}

/// How the result is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Table,
    Json,
}

/// How thoroughly it is measured, and how the result is told: flags that all such comparisons have.
#[derive(Debug, clap::Args)]
pub struct Settings {
    /// A fraction of everything, once: to see that it works, not to be quoted
    #[arg(long)]
    pub quick: bool,
    /// How often each sample is taken
    #[arg(long)]
    pub repeats: Option<usize>,
    #[arg(short, long, default_value = "table")]
    pub output: Format,
    /// Write the page and its plot into this folder
    #[arg(long)]
    pub docs: Option<PathBuf>,
}

/// Where the page goes and what is in it.
pub struct Page<'a, M> {
    /// Of the page and of its plot, without an ending.
    pub name: &'a str,
    /// Holds `{machine}` and `{table}`.
    pub text: &'a str,
    /// The panels of the plot.
    pub panels: &'a [(M, &'a str)],
}

pub struct Results<C, M> {
    /// With their versions, in the order of the columns.
    contenders: Vec<(C, String)>,
    rows: Vec<Row<M>>,
    machine: String,
    samples: BTreeMap<(M, C), Vec<f64>>,
    notes: Vec<String>,
}

impl<C: Contender, M: Copy + Ord + Serialize> Results<C, M> {
    pub fn new(contenders: Vec<(C, String)>, rows: Vec<Row<M>>) -> Self {
        Self { contenders, rows, machine: machine(), samples: BTreeMap::new(), notes: Vec::new() }
    }

    pub fn add(&mut self, contender: C, samples: Vec<(M, f64)>) {
        for (measure, sample) in samples {
            self.samples.entry((measure, contender)).or_default().push(sample);
        }
    }

    /// What could not be measured, and why.
    pub fn note(&mut self, contender: C, text: &str) {
        let note = format!("{}: {text}", contender.name());
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    pub fn table(&self) -> String {
        self.table_of(|_| true) + &self.notes()
    }

    /// What could not be measured, as it stands below a table.
    pub fn notes(&self) -> String {
        self.notes.iter().map(|note| format!("\nNot measured: {note}\n")).collect()
    }

    /// Only some of the rows, for a page with several tables.
    pub fn table_of(&self, wanted: impl Fn(M) -> bool) -> String {
        let names: Vec<String> =
            self.contenders.iter().map(|(contender, version)| format!("{} {version}", contender.name())).collect();
        let mut text = format!("| measure | unit | {} | floor |\n|---|---|", names.join(" | "));
        text.push_str(&"--:|".repeat(names.len()));
        text.push_str("---|\n");
        for row in self.rows.iter().filter(|row| wanted(row.measure)) {
            let cells: Vec<String> = self.contenders().map(|contender| self.cell(contender, row.measure)).collect();
            if cells.iter().any(|cell| cell != NOTHING) {
                let _ = writeln!(text, "| {} | {} | {} | {} |", row.name, row.unit, cells.join(" | "), self.floor(row));
            }
        }
        text
    }

    /// The same for programs; `amounts` is how much of everything there was.
    pub fn json(&self, amounts: impl Serialize) -> Value {
        let mut measures = serde_json::Map::new();
        for row in &self.rows {
            let contenders: BTreeMap<&str, Value> = self
                .contenders()
                .filter_map(|contender| {
                    let samples = self.samples.get(&(row.measure, contender))?;
                    let median = self.median(contender, row.measure);
                    Some((contender.name(), json!({ "median": median, "samples": samples })))
                })
                .collect();
            let key = serde_json::to_value(row.measure).ok().and_then(|key| key.as_str().map(str::to_owned));
            let row = json!({ "name": row.name, "unit": row.unit, "contenders": contenders });
            measures.insert(key.unwrap_or_default(), row);
        }
        let versions: BTreeMap<&str, &String> =
            self.contenders.iter().map(|(contender, version)| (contender.name(), version)).collect();
        json!({ "versions": versions, "machine": self.machine, "amounts": json!(amounts), "measures": measures, "not_measured": self.notes })
    }

    /// Writes the page and its plot into a folder.
    pub fn write(&self, folder: &Path, page: &Page<'_, M>) -> std::io::Result<()> {
        let text = page.text.replace("{table}", &self.table()).replace("{machine}", &self.machine);
        std::fs::write(folder.join(format!("{}.md", page.name)), text)?;
        std::fs::write(folder.join(format!("{}.svg", page.name)), plot::svg(self, page.panels))
    }

    fn contenders(&self) -> impl Iterator<Item = C> {
        self.contenders.iter().map(|(contender, _)| *contender)
    }

    pub fn median(&self, contender: C, measure: M) -> Option<f64> {
        let mut samples = self.samples.get(&(measure, contender))?.clone();
        samples.sort_by(f64::total_cmp);
        samples.get(samples.len() / 2).copied()
    }

    fn cell(&self, contender: C, measure: M) -> String {
        let (Some(median), Some(samples)) = (self.median(contender, measure), self.samples.get(&(measure, contender)))
        else {
            return NOTHING.to_owned();
        };
        let least = samples.iter().copied().fold(f64::INFINITY, f64::min);
        let most = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if samples.len() == 1 || number(least) == number(most) {
            return number(median);
        }
        format!("{} ({} to {})", number(median), number(least), number(most))
    }

    fn floor(&self, row: &Row<M>) -> String {
        let (limit, text) = match row.floor {
            Floor::None => return String::new(),
            Floor::LeastOfAll => {
                let others = self.contenders().filter(|contender| *contender != C::OURS);
                let best = others.filter_map(|contender| self.median(contender, row.measure)).reduce(f64::min);
                let Some(best) = best else { return String::new() };
                (best, String::new())
            }
            Floor::AtMost(limit) => (limit, format!("at most {}: ", number(limit))),
        };
        match self.median(C::OURS, row.measure) {
            None => String::new(),
            Some(ours) if ours < limit => format!("{text}holds"),
            Some(_) => format!("{text}**does not hold**"),
        }
    }
}

const NOTHING: &str = "-";

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

/// The version that a program tells when it is asked with `argument`, as short as possible.
pub fn said_version(program: &Path, argument: &str) -> String {
    let output = Command::new(program).arg(argument).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run {}: {error}", program.display()));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let numbers = text.split(|c: char| c.is_whitespace() || c == '/');
    // A time begins like one, and ends otherwise.
    let is_version =
        |word: &&str| word.contains('.') && !word.contains(':') && word.starts_with(|c: char| c.is_ascii_digit());
    numbers.into_iter().find(is_version).unwrap_or("of unknown version").to_owned()
}

/// Three digits say enough.
pub fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// A count, as people write it.
pub fn thousands(value: usize) -> String {
    match (value / 1000, value % 1000) {
        (0, rest) => rest.to_string(),
        (thousands, rest) => format!("{thousands},{rest:03}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Side {
        Ours,
        Theirs,
    }

    impl Contender for Side {
        const OURS: Self = Self::Ours;

        fn name(self) -> &'static str {
            if self == Self::Ours { "ours" } else { "theirs" }
        }
    }

    fn results(floor: Floor, ours: &[f64], theirs: &[f64]) -> Results<Side, &'static str> {
        let contenders = vec![(Side::Ours, "1".to_owned()), (Side::Theirs, "2".to_owned())];
        let row = Row { measure: "cost", name: "cost".to_owned(), unit: "s", floor };
        let mut results = Results::new(contenders, vec![row]);
        results.add(Side::Ours, ours.iter().map(|sample| ("cost", *sample)).collect());
        results.add(Side::Theirs, theirs.iter().map(|sample| ("cost", *sample)).collect());
        results
    }

    fn last_line(results: &Results<Side, &'static str>) -> String {
        results.table().lines().last().unwrap().to_owned()
    }

    #[test]
    fn a_row_shows_the_median_and_how_far_samples_were_from_it() {
        let line = last_line(&results(Floor::LeastOfAll, &[3.0, 1.0, 2.0], &[4.0]));
        assert_eq!(line, "| cost | s | 2.00 (1.00 to 3.00) | 4.00 | holds |");
    }

    #[test]
    fn a_floor_that_does_not_hold_is_marked() {
        let line = last_line(&results(Floor::LeastOfAll, &[4.0], &[4.0]));
        assert_eq!(line, "| cost | s | 4.00 | 4.00 | **does not hold** |");
        let line = last_line(&results(Floor::AtMost(5.0), &[4.0], &[]));
        assert_eq!(line, "| cost | s | 4.00 | - | at most 5.00: holds |");
        let line = last_line(&results(Floor::LeastOfAll, &[4.0], &[]));
        assert_eq!(line, "| cost | s | 4.00 | - |  |", "nobody to compare with");
    }

    #[test]
    fn what_was_not_measured_is_no_row_but_is_said() {
        let mut results = results(Floor::None, &[], &[]);
        results.note(Side::Theirs, "it broke");
        results.note(Side::Theirs, "it broke");
        assert_eq!(results.table().lines().skip(2).collect::<Vec<_>>(), ["", "Not measured: theirs: it broke"]);
    }
}
