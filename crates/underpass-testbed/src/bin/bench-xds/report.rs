//! What the tables, the plot and the page of control planes show.

use std::path::Path;

use underpass_testbed::report::{Floor, Page, Row, thousands};

use crate::backends::{Change, PER_LISTENER};
use crate::feeds::{CHANGES, IN_CLUSTER, IN_FILES};
use crate::measure::{Amounts, Case, Measure};
use crate::planes::Plane;
use crate::wire::Dialect;

pub(crate) type Results = underpass_testbed::report::Results<Plane, Measure>;

/// By so much may two changes differ that are the same: a counter in them grows.
pub(crate) const SPARE_BYTES: f64 = 16.0;

const LARGE: Case = Case { dialect: Dialect::Delta, backends: 50_000, clients: 10 };
const MANY: Case = Case { dialect: Dialect::Delta, backends: 1_000, clients: 50 };

const PANELS: [(Measure, &str); 6] = [
    (Measure::Half(MANY, Change::Endpoint), "ms, 1,000 backends, 50 clients"),
    (Measure::Half(LARGE, Change::Endpoint), "ms, 50,000 backends, 10 clients"),
    (Measure::Cpu(MANY, Change::Endpoint), "CPU ms, 1,000 backends, 50 clients"),
    (Measure::Cpu(LARGE, Change::Endpoint), "CPU ms, 50,000 backends, 10 clients"),
    (Measure::Bytes(LARGE, Change::Endpoint), "bytes, 50,000 backends, 10 clients"),
    (Measure::Memory(LARGE), "MiB, 50,000 backends, 10 clients"),
];

/// Rows in the order of the tables.
pub(crate) fn rows() -> Vec<Row<Measure>> {
    let row = |measure, name: String, unit, floor| Row { measure, name, unit, floor };
    let win = Floor::LeastOfAll;
    let mut rows = Vec::new();
    for change in Change::ALL {
        for case in Case::ALL {
            rows.push(row(Measure::Half(case, change), format!("{case}: half of them"), "ms", win));
            rows.push(row(Measure::Nearly(case, change), format!("{case}: 99 of 100"), "ms", win));
            rows.push(row(Measure::Cpu(case, change), case.to_string(), "ms", win));
            rows.push(row(Measure::Bytes(case, change), case.to_string(), "bytes", Floor::None));
        }
    }
    rows.extend(Case::ALL.map(|case| row(Measure::Memory(case), case.to_string(), "MiB", win)));
    let from = |measure, place: &str, backends| {
        row(measure, format!("{place}, {} backends", thousands(backends)), "ms", Floor::None)
    };
    rows.extend(IN_FILES.map(|backends| from(Measure::FromFile(backends), "a file", backends)));
    rows.push(from(Measure::FromCluster(IN_CLUSTER), "an EndpointSlice on the embedded API server", IN_CLUSTER));
    rows
}

/// A mark in the page, a title for those who see the table alone, and its rows.
type Table = (&'static str, &'static str, fn(Measure) -> bool);

const TABLES: [Table; 8] = [
    ("{time}", "An endpoint changed: until the last client has it", |it| {
        matches!(it, Measure::Half(_, Change::Endpoint) | Measure::Nearly(_, Change::Endpoint))
    }),
    ("{cpu}", "An endpoint changed: processor time of the control plane", |it| {
        matches!(it, Measure::Cpu(_, Change::Endpoint))
    }),
    ("{bytes}", "An endpoint changed: bytes to each client", |it| matches!(it, Measure::Bytes(_, Change::Endpoint))),
    ("{more time}", "A backend more, or one less: until the last client has it", |it| {
        matches!(it, Measure::Half(_, Change::Backend) | Measure::Nearly(_, Change::Backend))
    }),
    ("{more cpu}", "A backend more, or one less: processor time of the control plane", |it| {
        matches!(it, Measure::Cpu(_, Change::Backend))
    }),
    ("{more bytes}", "A backend more, or one less: bytes to each client", |it| {
        matches!(it, Measure::Bytes(_, Change::Backend))
    }),
    ("{memory}", "Memory with everything loaded and all clients connected", |it| matches!(it, Measure::Memory(_))),
    ("{feeds}", "From where it is said", |it| matches!(it, Measure::FromFile(_) | Measure::FromCluster(_))),
];

/// All tables, for people.
pub(crate) fn text(results: &Results) -> String {
    let table = |(_, title, wanted): Table| format!("## {title}\n\n{}\n", results.table_of(wanted));
    TABLES.map(table).concat() + &results.notes()
}

/// Writes docs/performance-xds.md and its plot.
pub(crate) fn write(results: &Results, amounts: &Amounts, folder: &Path) -> std::io::Result<()> {
    let counts = [
        ("{repeats}", amounts.repeats),
        ("{per listener}", PER_LISTENER),
        ("{changes}", CHANGES),
        ("{fewest}", amounts.fewest),
        ("{most}", amounts.most),
    ];
    let text = counts.iter().fold(TEXT.replace("{seconds}", &amounts.seconds.to_string()), |text, (mark, count)| {
        text.replace(mark, &thousands(*count))
    });
    let fill = |text: String, (mark, title, wanted): &Table| {
        text.replace(&format!("{mark} title"), title).replace(mark, &results.table_of(wanted))
    };
    let text = TABLES.iter().fold(text, fill) + &results.notes();
    results.write(folder, &Page { name: "performance-xds", text: &text, panels: &PANELS })
}

const TEXT: &str = "# What a change costs the control plane, beside go-control-plane

    make bench-xds

{machine}

![Some of it as bars](performance-xds.svg)

In delta, per change of an endpoint: milliseconds until the last client has it, processor time, bytes to each client; and memory.

Written by `bench-xds` in `crates/underpass-testbed`. [The proxies themselves](performance.md) stand on a page of their own. Each figure is the
median of {repeats} samples, with the least and the greatest of them behind it; control planes take turns, so that a slow minute of the machine
meets both. On a machine that others use too, times are noisy, and processor time is less so: compare within a run.

Both control planes are processes that serve the same resources, byte for byte but for the order of fields in clusters, to the same clients.
Ours translates a relay's table, which is how it learns of a change; the other is given the resources that came of it, ready to be served. A
change is one line on their stdin. From that moment the time counts until the last client has received what changed and has put its
acknowledgement on its stream. In each sample there are as many changes as fit into {seconds} s, at least {fewest} and at most {most}: where a
control plane takes long, \"99 of 100\" is the slowest of those few. Processor time is counted by the kernel in steps of 10 ms, over all changes
of a sample together.

Of go-control-plane it is the snapshot cache that is measured, and as little is asked of it as it allows: one snapshot for all clients, and a
new version only for the kinds that changed. The cache hashes all resources of a new snapshot as soon as a client speaks delta. The library
also has a cache for single resources of one kind (`LinearCache`), which is not measured here.

What is in our favour, and not in the work that people have done by `underpass proxy`: nothing is logged, the tables in memory share the routes
that did not change, where a file or a cluster makes all of them anew, and clients name endpoints in the order of the alphabet, which we
compare fastest. In another order an endpoint's change in \"whole\" took us 1.5 to 1.7 times the processor time, in a few short runs.

Clients are tasks of the program that measures. Each has a connection and a stream of its own, asks for all clusters and listeners and, by
name, for the endpoints of its clusters, and acknowledges everything. \"Delta\" is what our bootstrap configuration tells an Envoy to speak:
answers hold what changed. \"Whole\" is the state of the world: answers hold everything of a kind. Of endpoints an answer may leave out what
did not change; we do so, and go-control-plane's snapshot cache sends all of them. Of \"whole\", not every number of clients is measured with
every number of backends: on two cores, 50 clients that read everything there is would be all that is measured.

A listener holds the filter chains of all names on its port, and here {per listener} backends share one. That matters when a backend comes or goes,
because then its listener is sent anew, whole, in both dialects: with all backends on one port that is as much as all their chains together.
When an endpoint changes, which is the common case, no listener is touched.

## {time} title

{time}
## {cpu} title

{cpu}
## {bytes} title

{bytes}
In delta this must not depend on how many backends there are, but for the digits of a counter: `bench-xds` fails when it does.

## {more time} title

A new backend is told in an order in which no listener leads to nowhere: its cluster, when that is acknowledged its endpoints, and when these
are, the listener; what is gone leaves the listener first. Our control plane waits for each acknowledgement; go-control-plane in delta does
not, which saves it round trips.

{more time}
## {more cpu} title

{more cpu}
## {more bytes} title

{more bytes}
## {memory} title

After the changes, at rest: proportional resident memory of the process, as the allocator and the garbage collector have left it.

{memory}
## {feeds} title

The same of `underpass proxy --xds-port`, which logs warnings only (`RUST_LOG=warn`), with one client in delta: from the moment at which a changed file is in place, of
which an EndpointSlice is other than before, or at which an EndpointSlice is patched on the embedded API server, until the client has
acknowledged. A file is read as a whole, so its time grows with it; only what changed in it is parsed. A ProxyServer on an API server has at
most 256 backends, so that larger numbers come from files only. The median of {changes} changes.

{feeds}";
