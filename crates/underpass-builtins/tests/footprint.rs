//! What the schemas cost. A process of its own, so that nothing else is measured.

use std::time::Instant;

use underpass_builtins::{all, definitions};

/// Of the 60 MiB that the whole process may take when idle.
const MOST_KIB: u64 = 20 * 1024;

#[test]
fn all_schemas_fit() {
    let (before, start) = (resident_kib(), Instant::now());
    for builtin in all() {
        let (before, start) = (resident_kib(), Instant::now());
        builtin.schema();
        println!("{:26} {:6} KiB {:?}", builtin.kind, resident_kib().saturating_sub(before), start.elapsed());
    }
    let schemas = resident_kib().saturating_sub(before);
    println!("all schemas: {schemas} KiB in {:?}", start.elapsed());
    let (before, start) = (resident_kib(), Instant::now());
    let count = definitions().len();
    println!("{count} definitions: {} KiB in {:?}", resident_kib().saturating_sub(before), start.elapsed());
    assert!(schemas < MOST_KIB, "the schemas take {schemas} KiB");
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or_default()
}
