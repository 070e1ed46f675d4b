//! What is measured, and how: each measure gives one sample of one tunnel.

use std::time::{Duration, Instant};

use underpass_testbed::load::{Backend, client, cost};
use underpass_testbed::usage::cpu_of;

use crate::tunnels::{Bed, Ours, Running, Tunnel};

pub(crate) const ROUND_TRIP_CONNECTIONS: usize = 32;
/// Clients at once when streams are counted.
pub(crate) const CLIENTS: usize = 16;
const WARM_UP: usize = 200;
/// What clients ask for in their first bytes. Nobody looks at it: the port says which server is meant.
const NAME: &str = "bench.test";

/// How much of everything.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Amounts {
    pub(crate) repeats: usize,
    /// From a declaration to a byte, and to one more tunnel.
    pub(crate) starts: usize,
    /// Each way, on each connection.
    pub(crate) bulk_bytes: u64,
    pub(crate) streams: usize,
    /// On each connection.
    pub(crate) round_trips: usize,
    pub(crate) idle: usize,
}

impl Amounts {
    pub(crate) const FULL: Self =
        Self { repeats: 3, starts: 5, bulk_bytes: 128 << 20, streams: 5_000, round_trips: 1_000, idle: 1_000 };

    pub(crate) const QUICK: Self =
        Self { repeats: 1, starts: 1, bulk_bytes: 32 << 20, streams: 1_000, round_trips: 200, idle: 200 };
}

/// One column of the table is a tunnel, one row is one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Measure {
    CpuPerGib,
    AllCpuPerGib,
    StreamsPerSecond,
    CpuPerStream,
    RoundTripMedian,
    RoundTripSlow,
    CpuPerRoundTrip,
    IdleMemory,
    IdleDescriptors,
    FirstByteImagePresent,
    FirstByteImageAbsent,
    TunnelReady,
}

pub(crate) type Samples = Vec<(Measure, f64)>;

/// A tunnel under test, and what stands behind it.
pub(crate) struct Bench<'a> {
    pub(crate) tunnel: Tunnel,
    pub(crate) bed: Bed<'a>,
    pub(crate) backend: &'a Backend,
    pub(crate) amounts: Amounts,
}

impl Bench<'_> {
    /// Bulk, streams and round trips of a tunnel that has just been started and warmed up.
    pub(crate) fn carrying(&self) -> anyhow::Result<Samples> {
        let running = self.start()?;
        Ok([self.bulk(&running)?, self.streams(&running)?, self.round_trips(&running)?].concat())
    }

    /// What an idle stream holds, in a tunnel that has just been started.
    pub(crate) fn idling(&self) -> anyhow::Result<Samples> {
        let running = self.start()?;
        let (at, count) = (running.services.hold, self.amounts.idle);
        let each = cost::idle(|| running.usage(), at, NAME, count, self.backend)?;
        Ok(vec![(Measure::IdleMemory, each.resident_kib), (Measure::IdleDescriptors, each.descriptors)])
    }

    /// From a declaration to the first byte, by our own processes that have just been started.
    pub(crate) fn starting(&self) -> anyhow::Result<Samples> {
        let ours = Ours::up(&self.bed)?;
        let image = ours.first_byte()?.image;
        drop(ours);
        self.bed.site.forget_image(&image)?;
        self.bed.site.forget_at_the_end(self.bed.program, image);
        let absent = Ours::up(&self.bed)?.first_byte()?.first_byte;
        let ours = Ours::up(&self.bed)?;
        let present = ours.first_byte()?.first_byte;
        Ok(vec![
            (Measure::FirstByteImageAbsent, milliseconds(absent)),
            (Measure::FirstByteImagePresent, milliseconds(present)),
            (Measure::TunnelReady, milliseconds(ours.add_tunnel()?)),
        ])
    }

    fn start(&self) -> anyhow::Result<Running<'_>> {
        let running = self.tunnel.start(&self.bed)?;
        client::connections(running.services.greet, &[NAME.to_owned()], WARM_UP, CLIENTS)?;
        Ok(running)
    }

    fn bulk(&self, running: &Running<'_>) -> anyhow::Result<Samples> {
        let bulk = cost::bulk(|| running.usage(), running.services.bulk, NAME, self.amounts.bulk_bytes)?;
        Ok(vec![(Measure::CpuPerGib, bulk.carriers), (Measure::AllCpuPerGib, bulk.everybody)])
    }

    fn streams(&self, running: &Running<'_>) -> anyhow::Result<Samples> {
        let (at, count) = (running.services.greet, self.amounts.streams);
        let work = || {
            let began = Instant::now();
            client::connections(at, &[NAME.to_owned()], count, CLIENTS)?;
            Ok(began.elapsed())
        };
        let (used, time) = cpu_of(|| running.usage(), work)?;
        Ok(vec![
            (Measure::StreamsPerSecond, count as f64 / time.as_secs_f64()),
            (Measure::CpuPerStream, used / count as f64 * 1e6),
        ])
    }

    fn round_trips(&self, running: &Running<'_>) -> anyhow::Result<Samples> {
        let (at, each) = (running.services.echo, self.amounts.round_trips);
        let work = || client::round_trips(at, NAME, ROUND_TRIP_CONNECTIONS, each);
        let (used, mut times) = cpu_of(|| running.usage(), work)?;
        times.sort();
        let at_share = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        Ok(vec![
            (Measure::RoundTripMedian, milliseconds(at_share(0.5))),
            (Measure::RoundTripSlow, milliseconds(at_share(0.99))),
            (Measure::CpuPerRoundTrip, used / times.len() as f64 * 1e6),
        ])
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
