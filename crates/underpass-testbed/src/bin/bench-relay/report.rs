//! What the table, the plot and the page of proxies show.

use underpass_testbed::proxies::{Proxy, WORKERS};
use underpass_testbed::report::{Floor, Page, Row, thousands};

use crate::measure::{Amounts, Measure};

pub(crate) type Results = underpass_testbed::report::Results<Proxy, Measure>;

const PANELS: [(Measure, &str); 4] = [
    (Measure::CpuPerGib, "CPU seconds per GiB"),
    (Measure::CpuPerConnection, "CPU µs per connection"),
    (Measure::CpuPerRoundTrip, "CPU µs per round trip"),
    (Measure::IdleMemory, "KiB per idle connection"),
];

/// Rows in the order of the table.
pub(crate) fn rows(amounts: &Amounts) -> Vec<Row<Measure>> {
    let [many, very_many, changes] = [amounts.many, amounts.very_many, amounts.reloads].map(thousands);
    let row = |measure, name: &str, unit, floor| Row { measure, name: name.to_owned(), unit, floor };
    let win = Floor::LeastOfAll;
    let change = |count| format!("change to first connection, {count} backends");
    vec![
        row(Measure::CpuPerGib, "CPU per GiB, both directions at once", "s", win),
        row(Measure::AllCpuPerGib, "the same with client and backend", "s", Floor::None),
        row(Measure::CpuPerConnection, "CPU per connection", "µs", win),
        row(Measure::CpuPerRoundTrip, "CPU per round trip of 64 bytes", "µs", win),
        row(Measure::IdleMemory, "memory per idle connection", "KiB", win),
        row(Measure::IdleDescriptors, "descriptors per idle connection", "", Floor::None),
        row(Measure::ChangeMany, &change(many), "ms", Floor::None),
        row(Measure::ChangeVeryMany, &change(very_many.clone()), "ms", Floor::None),
        row(Measure::RoutingFew, "CPU per connection, 10 backends", "µs", Floor::None),
        row(Measure::RoutingVeryMany, &format!("CPU per connection, {very_many} backends"), "µs", Floor::None),
        row(Measure::Lost, &format!("connections lost over {changes} changes"), "", Floor::None),
    ]
}

/// Writes docs/performance.md and its plot.
pub(crate) fn write(results: &Results, amounts: &Amounts, folder: &std::path::Path) -> std::io::Result<()> {
    let text = TEXT.replace("{workers}", &WORKERS.to_string()).replace("{repeats}", &amounts.repeats.to_string());
    results.write(folder, &Page { name: "performance", text: &text, panels: &PANELS })
}

const TEXT: &str = "# The relay beside Envoy, HAProxy, nginx and sniproxy

    make bench-relay

{machine}

{table}
![The same as bars](performance.svg)

[The same of tunnels](performance-tunnel.md) stands on a page of its own, and so does [what a change costs](performance-xds.md) where an
Envoy carries.

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
