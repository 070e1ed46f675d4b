//! What is measured, and how: a control plane is started, clients connect and load everything, then one thing changes again and again.

use std::fmt;
use std::time::{Duration, Instant};

use serde::{Serialize, Serializer};
use tokio::runtime::Runtime;
use underpass_testbed::report::thousands;
use underpass_testbed::usage::{at_rest, cpu_of};

use crate::backends::Change;
use crate::client::Sign;
use crate::clients::Clients;
use crate::planes::Running;
use crate::resources::Served;
use crate::wire::Dialect;

/// Each there and back, before anything counts.
const WARM_UP: usize = 2;

/// How much of everything.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Amounts {
    pub(crate) repeats: usize,
    /// Changes in a row, at least and at most, and how long they may take.
    pub(crate) fewest: usize,
    pub(crate) most: usize,
    pub(crate) seconds: f64,
}

impl Amounts {
    pub(crate) const FULL: Self = Self { repeats: 3, fewest: 6, most: 3_000, seconds: 1.0 };
    pub(crate) const QUICK: Self = Self { repeats: 1, fewest: 4, most: 100, seconds: 0.3 };
}

/// How much there is to serve, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Case {
    pub(crate) dialect: Dialect,
    pub(crate) backends: usize,
    pub(crate) clients: usize,
}

/// One column of the table is a control plane, one row is one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Measure {
    /// Half of all changes were in effect at the last client after so long.
    Half(Case, Change),
    /// 99 of 100 were.
    Nearly(Case, Change),
    Cpu(Case, Change),
    /// To each client.
    Bytes(Case, Change),
    Memory(Case),
    FromFile(usize),
    FromCluster(usize),
}

pub(crate) type Samples = Vec<(Measure, f64)>;

impl Case {
    const fn new(dialect: Dialect, backends: usize, clients: usize) -> Self {
        Self { dialect, backends, clients }
    }

    /// In delta all; of whole worlds not the largest of both, which on two cores would measure how long 50 clients take to read.
    pub(crate) const ALL: [Self; 16] = [
        Self::new(Dialect::Delta, 10, 1),
        Self::new(Dialect::Delta, 10, 10),
        Self::new(Dialect::Delta, 10, 50),
        Self::new(Dialect::Delta, 1_000, 1),
        Self::new(Dialect::Delta, 1_000, 10),
        Self::new(Dialect::Delta, 1_000, 50),
        Self::new(Dialect::Delta, 10_000, 1),
        Self::new(Dialect::Delta, 10_000, 10),
        Self::new(Dialect::Delta, 10_000, 50),
        Self::new(Dialect::Delta, 50_000, 1),
        Self::new(Dialect::Delta, 50_000, 10),
        Self::new(Dialect::Delta, 50_000, 50),
        Self::new(Dialect::World, 10, 1),
        Self::new(Dialect::World, 1_000, 10),
        Self::new(Dialect::World, 10_000, 10),
        Self::new(Dialect::World, 50_000, 1),
    ];
}

impl fmt::Display for Case {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dialect = match self.dialect {
            Dialect::Delta => "delta",
            Dialect::World => "whole",
        };
        let clients = if self.clients == 1 { "client" } else { "clients" };
        write!(formatter, "{dialect}, {} backends, {} {clients}", thousands(self.backends), self.clients)
    }
}

/// As a word, for JSON.
impl Serialize for Measure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let of = |what: &str, case: &Case, change: &Change| format!("{what}, {case}, {}", change.word());
        serializer.serialize_str(&match self {
            Self::Half(case, change) => of("median time", case, change),
            Self::Nearly(case, change) => of("99th percentile of time", case, change),
            Self::Cpu(case, change) => of("cpu", case, change),
            Self::Bytes(case, change) => of("bytes", case, change),
            Self::Memory(case) => format!("memory, {case}"),
            Self::FromFile(backends) => format!("from a file, {backends} backends"),
            Self::FromCluster(backends) => format!("from a cluster, {backends} backends"),
        })
    }
}

/// One sample of everything in one case.
pub(crate) fn samples(
    runtime: &Runtime,
    case: Case,
    amounts: &Amounts,
    mut plane: Running,
    served: &Served,
) -> anyhow::Result<Samples> {
    let how = (case.dialect, case.clients);
    let node = |number| format!("bench/proxy-{number}");
    let mut clients = Clients::connect(runtime, plane.address, how, node, &served.loaded())?;
    let mut samples = Vec::new();
    for change in Change::ALL {
        let signs = [true, false].map(|is_changed| served.signs(change, is_changed));
        changes(&mut plane, &mut clients, (change, &signs), |count| count < WARM_UP)?;
        let before = clients.received();
        let (usage, mut began) = (plane.usage_source(), None);
        let go_on = |count| {
            let began: Instant = *began.get_or_insert_with(Instant::now);
            count < amounts.fewest || count < amounts.most && began.elapsed().as_secs_f64() < amounts.seconds
        };
        let (cpu, times) = cpu_of(usage, || changes(&mut plane, &mut clients, (change, &signs), go_on))?;
        let count = times.len() as f64;
        let bytes = (clients.received() - before) as f64 / case.clients as f64;
        samples.extend([
            (Measure::Half(case, change), at_share(&times, 0.5)),
            (Measure::Nearly(case, change), at_share(&times, 0.99)),
            (Measure::Cpu(case, change), cpu / count * 1e3),
            (Measure::Bytes(case, change), bytes / count),
        ]);
    }
    samples.push((Measure::Memory(case), at_rest(plane.usage_source()).resident_kib as f64 / 1024.0));
    Ok(samples)
}

/// Changes there and back, one after the other; how long each took, sorted.
fn changes(
    plane: &mut Running,
    clients: &mut Clients<'_>,
    (change, signs): (Change, &[Vec<Sign>; 2]),
    mut go_on: impl FnMut(usize) -> bool,
) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    while go_on(times.len()) {
        for signs in signs {
            clients.expect(signs)?;
            let told = plane.tell(change)?;
            times.push(clients.wait()?.saturating_duration_since(told));
        }
    }
    times.sort();
    Ok(times)
}

/// In milliseconds.
pub(crate) fn at_share(sorted: &[Duration], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize].as_secs_f64() * 1e3
}
