//! What is measured, and how: each measure gives one sample of one proxy.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use underpass_testbed::load::{Backend, client, cost};
use underpass_testbed::proxies::{Port, Proxy, Route, Routing, Running};
use underpass_testbed::report::Contender;
use underpass_testbed::usage::{at_rest, cpu_of};

const PORT: u16 = 8443;

const ROUND_TRIP_CONNECTIONS: usize = 32;
/// Clients at once when connections are counted.
const CLIENTS: usize = 16;
const WARM_UP: usize = 500;
/// Connections that are open, with a message now and then, while the proxy is changed.
const STANDING: usize = 20;

const CHANGE_PATIENCE: Duration = Duration::from_secs(180);
const REMIND_AFTER: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// How much of everything.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Amounts {
    pub(crate) repeats: usize,
    /// Each way, on each connection.
    pub(crate) bulk_bytes: u64,
    pub(crate) connections: usize,
    /// On each connection.
    pub(crate) round_trips: usize,
    pub(crate) idle: usize,
    pub(crate) many: usize,
    pub(crate) very_many: usize,
    pub(crate) routed: usize,
    pub(crate) changes: usize,
    pub(crate) reloads: usize,
}

impl Amounts {
    pub(crate) const FULL: Self = Self {
        repeats: 5,
        bulk_bytes: 256 << 20,
        connections: 20_000,
        round_trips: 2_000,
        idle: 4_000,
        many: 1_000,
        very_many: 10_000,
        routed: 10_000,
        changes: 2,
        reloads: 100,
    };

    pub(crate) const QUICK: Self = Self {
        repeats: 1,
        bulk_bytes: 64 << 20,
        connections: 4_000,
        round_trips: 500,
        idle: 1_000,
        many: 100,
        very_many: 1_000,
        routed: 2_000,
        changes: 1,
        reloads: 10,
    };
}

/// One column of the table is a proxy, one row is one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Measure {
    CpuPerGib,
    AllCpuPerGib,
    CpuPerConnection,
    CpuPerRoundTrip,
    IdleMemory,
    IdleDescriptors,
    ChangeMany,
    ChangeVeryMany,
    Lost,
    RoutingFew,
    RoutingVeryMany,
}

pub(crate) type Samples = Vec<(Measure, f64)>;

/// A proxy under test, and what stands behind it.
pub(crate) struct Bench<'a> {
    pub(crate) proxy: Proxy,
    pub(crate) program: &'a Path,
    pub(crate) backend: &'a Backend,
    pub(crate) amounts: Amounts,
}

impl Bench<'_> {
    /// Bulk, connections and round trips of a proxy that has just been started and warmed up.
    pub(crate) fn carrying(&self) -> anyhow::Result<Samples> {
        let running = self.start(10)?;
        let (address, amounts) = (running.address(PORT), self.amounts);
        let bulk = cost::bulk(|| running.usage(), address, "bulk.bench.test", amounts.bulk_bytes)?;
        let connections =
            cpu(&running, || client::connections(address, &[route_name(0)], amounts.connections, CLIENTS))?;
        let round_trips = cpu(&running, || {
            client::round_trips(address, "echo.bench.test", ROUND_TRIP_CONNECTIONS, amounts.round_trips)
        })?;
        let all_round_trips = (ROUND_TRIP_CONNECTIONS * amounts.round_trips) as f64;
        Ok(vec![
            (Measure::CpuPerGib, bulk.carriers),
            (Measure::AllCpuPerGib, bulk.everybody),
            (Measure::CpuPerConnection, connections / amounts.connections as f64 * 1e6),
            (Measure::CpuPerRoundTrip, round_trips / all_round_trips * 1e6),
        ])
    }

    /// What an idle connection holds, in a proxy that has just been started.
    pub(crate) fn idling(&self) -> anyhow::Result<Samples> {
        let running = self.start(10)?;
        let (address, count) = (running.address(PORT), self.amounts.idle);
        let each = cost::idle(|| running.usage(), address, "hold.bench.test", count, self.backend)?;
        Ok(vec![(Measure::IdleMemory, each.resident_kib), (Measure::IdleDescriptors, each.descriptors)])
    }

    /// From a change of its files to the first connection that obeys it.
    pub(crate) fn changing(&self, backends: usize) -> anyhow::Result<Vec<f64>> {
        let running = self.start(backends)?;
        let change = |change| {
            at_rest(|| running.usage());
            self.change(&running, backends, change)
        };
        (0..self.amounts.changes).map(change).collect()
    }

    /// Connections that fail or break while the proxy is changed again and again.
    pub(crate) fn losing(&self) -> anyhow::Result<usize> {
        let running = self.start(10)?;
        let address = running.address(PORT);
        let (over, lost) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        lost.fetch_add(
                            usize::from(client::greeted(address, &route_name(1)).is_err()),
                            Ordering::Relaxed,
                        );
                    }
                });
            }
            let standing = scope.spawn(|| client::standing(address, "echo.bench.test", STANDING, &over));
            let changed = (0..self.amounts.reloads).try_for_each(|change| self.change(&running, 10, change).map(drop));
            over.store(true, Ordering::Relaxed);
            let broken = standing.join().expect("clients do not panic")?;
            changed?;
            Ok(lost.load(Ordering::Relaxed) + broken)
        })
    }

    /// Processor time of a connection when the proxy has so many backends, all of them asked for in turn.
    pub(crate) fn routing(&self, backends: usize) -> anyhow::Result<f64> {
        let running = self.start(backends)?;
        let names: Vec<String> = (0..backends).map(route_name).collect();
        let used = cpu(&running, || client::connections(running.address(PORT), &names, self.amounts.routed, CLIENTS))?;
        Ok(used / self.amounts.routed as f64 * 1e6)
    }

    fn start(&self, backends: usize) -> anyhow::Result<Running> {
        let running = Running::start_apart(self.proxy, self.program, &self.routing_of(backends, None));
        client::connections(running.address(PORT), &[route_name(0)], WARM_UP, CLIENTS)?;
        Ok(running)
    }

    fn change(&self, running: &Running, backends: usize, change: usize) -> anyhow::Result<f64> {
        let name = format!("new-{change}.bench.test");
        let changed = running.change(&self.routing_of(backends, Some(&name)));
        let mut reminded = changed;
        while changed.elapsed() < CHANGE_PATIENCE {
            if client::greeted(running.address(PORT), &name).is_ok() {
                return Ok(changed.elapsed().as_secs_f64() * 1e3);
            }
            if reminded.elapsed() > REMIND_AFTER {
                running.remind();
                reminded = Instant::now();
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        bail!("{} does not obey a change after {CHANGE_PATIENCE:?}", self.proxy.name())
    }

    /// The three special services, and backends that greet until there are so many.
    fn routing_of(&self, backends: usize, new: Option<&str>) -> Routing {
        let Backend { greet, hold, echo, bulk, .. } = *self.backend;
        let mut routes = vec![
            Route::new("hold", "hold.bench.test", hold),
            Route::new("echo", "echo.bench.test", echo),
            Route::new("bulk", "bulk.bench.test", bulk),
        ];
        routes.extend((0..backends).map(|index| Route::new(&format!("r{index}"), &route_name(index), greet)));
        routes.extend(new.map(|name| Route::new("new", name, greet)));
        Routing { ports: vec![Port::tls(PORT, routes)] }
    }
}

fn route_name(index: usize) -> String {
    format!("r{index}.bench.test")
}

/// Processor seconds of the proxy for some work.
fn cpu<T>(running: &Running, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<f64> {
    Ok(cpu_of(|| running.usage(), work)?.0)
}
