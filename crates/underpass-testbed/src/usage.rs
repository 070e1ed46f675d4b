//! What processes have used and what they hold, as /proc shows it. Children count with their parents.

use std::time::{Duration, Instant};

use crate::wait::{PATIENCE, wait_until};

/// Whoever used nothing for so long has come to rest.
const REST: Duration = Duration::from_millis(500);
/// What Linux counts processor time in, whatever the kernel itself uses.
const TICKS_PER_SECOND: f64 = 100.0;

/// Of a process and all that it started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// User and system time, also of children that have ended.
    pub cpu: Duration,
    /// Resident memory; what processes share is divided among them.
    pub resident_kib: u64,
    pub descriptors: u64,
}

/// Of this process itself.
pub fn own_cpu() -> Duration {
    read(std::process::id()).map(|usage| usage.cpu).unwrap_or_default()
}

/// What processes used during some work and until they have come to rest after it, in seconds of a processor; and what came of the work.
pub fn cpu_of<T>(usage: impl Fn() -> Usage, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(f64, T)> {
    let before = at_rest(&usage).cpu;
    let result = work()?;
    // Less when one of them has ended: then the work has failed, or the next will.
    Ok((at_rest(&usage).cpu.saturating_sub(before).as_secs_f64(), result))
}

/// Waits until the processes use no processor; what they have used and hold then.
pub fn at_rest(usage: impl Fn() -> Usage) -> Usage {
    let (mut last, mut since) = (usage().cpu, Instant::now());
    wait_until("processes to come to rest", PATIENCE, || {
        let now = usage();
        // One tick of the clock now and then is housekeeping.
        if now.cpu > last + Duration::from_millis(10) {
            (last, since) = (now.cpu, Instant::now());
        }
        (since.elapsed() > REST).then_some(now)
    })
}

/// Of these processes together.
pub fn of(pids: impl Iterator<Item = u32>) -> Usage {
    let mut all = Usage::default();
    let mut left: Vec<u32> = pids.collect();
    while let Some(pid) = left.pop() {
        left.extend(children(pid));
        // One that ended in between is in its parent's time.
        if let Some(usage) = read(pid) {
            all.cpu += usage.cpu;
            all.resident_kib += usage.resident_kib;
            all.descriptors += usage.descriptors;
        }
    }
    all
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

fn read(pid: u32) -> Option<Usage> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64;
    Some(Usage { cpu: cpu_time(&stat)?, resident_kib: proportional_kib(&rollup)?, descriptors })
}

fn cpu_time(stat: &str) -> Option<Duration> {
    // The name in the second field may hold blanks; after its closing bracket utime, stime and the same of ended children are the
    // 12th to 15th.
    let fields = stat.rsplit(") ").next()?.split(' ').skip(11).take(4);
    let ticks: Option<Vec<f64>> = fields.map(|field| field.parse().ok()).collect();
    Some(Duration::from_secs_f64(ticks?.iter().sum::<f64>() / TICKS_PER_SECOND))
}

fn proportional_kib(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_children_count() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 1 2 3 4 100 50 25 25 20 0 1 0 0 0 0";
        assert_eq!(cpu_time(stat), Some(Duration::from_secs(2)));
    }

    #[test]
    fn this_process_is_seen() {
        let usage = of(std::iter::once(std::process::id()));
        assert!(usage.resident_kib > 0 && usage.descriptors >= 3, "{usage:?}");
    }
}
