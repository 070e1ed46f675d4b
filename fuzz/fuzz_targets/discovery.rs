#![no_main]

#[path = "../../crates/underpass-address/tests/frames/invariants.rs"]
#[allow(dead_code, reason = "one target checks one of them")]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::discovery(bytes));
