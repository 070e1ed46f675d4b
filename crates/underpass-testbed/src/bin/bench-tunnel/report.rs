//! What the table, the plot and the page of tunnels show.

use std::path::Path;

use underpass_testbed::load::cost::BULK_CONNECTIONS;
use underpass_testbed::report::{Floor, Page, Row, thousands};

use crate::measure::{Amounts, CLIENTS, Measure, ROUND_TRIP_CONNECTIONS};
use crate::tunnels::Tunnel;

pub(crate) type Results = underpass_testbed::report::Results<Tunnel, Measure>;

/// From apply to the first byte, in milliseconds.
const FIRST_BYTE: f64 = 1_500.0;

const PANELS: [(Measure, &str); 4] = [
    (Measure::CpuPerGib, "CPU seconds per GiB"),
    (Measure::CpuPerStream, "CPU µs per stream"),
    (Measure::CpuPerRoundTrip, "CPU µs per round trip"),
    (Measure::IdleMemory, "KiB per idle stream"),
];

/// Rows in the order of the table.
pub(crate) fn rows() -> Vec<Row<Measure>> {
    let row = |measure, name: &str, unit, floor| Row { measure, name: name.to_owned(), unit, floor };
    vec![
        row(Measure::CpuPerGib, "CPU per GiB, both directions at once", "s", Floor::LeastOfAll),
        row(Measure::AllCpuPerGib, "the same with client and server", "s", Floor::None),
        row(Measure::CpuPerStream, "CPU per stream", "µs", Floor::LeastOfAll),
        row(Measure::StreamsPerSecond, "new streams per second", "", Floor::None),
        row(Measure::CpuPerRoundTrip, "CPU per round trip of 64 bytes", "µs", Floor::None),
        row(Measure::RoundTripMedian, "round trip, half of them below", "ms", Floor::None),
        row(Measure::RoundTripSlow, "round trip, 99 of 100 below", "ms", Floor::None),
        row(Measure::IdleMemory, "memory per idle stream", "KiB", Floor::None),
        row(Measure::IdleDescriptors, "descriptors per idle stream", "", Floor::None),
        row(
            Measure::FirstByteImagePresent,
            "`kubectl apply` to first byte, image present",
            "ms",
            Floor::AtMost(FIRST_BYTE),
        ),
        row(Measure::FirstByteImageAbsent, "`kubectl apply` to first byte, image absent", "ms", Floor::None),
        row(Measure::TunnelReady, "one more tunnel to Ready", "ms", Floor::None),
    ]
}

/// Writes docs/performance-tunnel.md and its plot.
pub(crate) fn write(results: &Results, amounts: &Amounts, engine: &str, folder: &Path) -> std::io::Result<()> {
    let counts = [
        ("{repeats}", amounts.repeats),
        ("{starts}", amounts.starts),
        ("{streams}", amounts.streams),
        ("{clients}", CLIENTS),
        ("{idle}", amounts.idle),
        ("{bulk}", BULK_CONNECTIONS),
        ("{trips}", ROUND_TRIP_CONNECTIONS),
    ];
    let text = counts
        .iter()
        .fold(TEXT.replace("{engine}", engine), |text, (mark, count)| text.replace(mark, &thousands(*count)));
    results.write(folder, &Page { name: "performance-tunnel", text: &text, panels: &PANELS })
}

const TEXT: &str = "# Tunnels beside rathole, bore, frp and chisel

    make bench-tunnel

{machine}
The containers run on {engine}.

{table}
![The same as bars](performance-tunnel.svg)

Written by `bench-tunnel` in `crates/underpass-testbed`; [the same of proxies](performance.md) is measured with the same load. Each figure
is the median of {repeats} samples ({starts} of starts), with the least and the greatest of them behind it; tunnels take turns, so that a slow
minute of the machine meets all of them. Processor time depends less than time on who else uses the machine, but it does:
compare within a run.

A client on the host connects to an address of a container network. There, in a container with nothing but its program, stands one
half of the tunnel; the other half runs on the host and connects to a server on 127.0.0.1. Client and server are threads of the program
that measures; their processor time is not counted, except in the row that says so. Our tunnel is the one that people get: `underpass up`
and two objects that are applied. The others are told the same four tunnels in the words of `src/bin/bench-tunnel/tunnels/`:

- **rathole** over plain TCP, with `nodelay`.
- **bore** as it comes: a process for each tunnel on the host, no setting for `TCP_NODELAY`.
- **frp** without TLS and with a pool of 5 connections, which its documentation recommends for short streams; **frp no mux** is the same
  with `tcpMux` off, which is on as it comes; for bulk it costs less.
- **chisel** as it comes; it cannot do without encryption.
- **underpass** sends data in the clear, too, over connections that were authenticated at their start; only its control connection
  is encrypted.

What is measured:

- **CPU** is user and system time of both halves from `/proc/PID/stat`, until they have come to rest again.
- **CPU per GiB**: {bulk} connections, bulk both ways at once. The row below it adds client and server.
- **CPU per stream**, **new streams per second**: connect, a few hundred bytes there, one byte back, close; {streams} of them, {clients} at once.
- **round trip**: 64 bytes there and back on {trips} connections at once.
- **memory per idle stream**: growth of the proportional resident memory of both halves with {idle} streams, once at rest. What the
  kernel holds for sockets and pipes is not in it; the row of descriptors shows who keeps how many.
- **`kubectl apply` to first byte**: from the start of the client program, which sends a ContainerNetwork and a ContainerNetworkTunnelProxy
  to an `underpass up` without any objects, until a client of the network has got a byte from the server. The image is the one of our half
  in the network.
- **one more tunnel to Ready**: from the write that adds it to the status that says so.
";
