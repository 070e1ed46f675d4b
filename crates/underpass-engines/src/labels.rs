//! The labels on everything that we make in an engine: by them a later process knows what is ours, and whether its maker still lives.

use std::collections::BTreeMap;
use std::{fs, io};

/// The data directory's id: two of them on one host leave each other's things alone.
pub const INSTANCE: &str = "dev.underpass.instance";
pub const KIND: &str = "dev.underpass.kind";
pub const OBJECT: &str = "dev.underpass.object";
pub const UID: &str = "dev.underpass.uid";
pub const CREATOR_PID: &str = "dev.underpass.creator-pid";
/// Ticks since boot: a process id alone comes back.
pub const CREATOR_START: &str = "dev.underpass.creator-start";
/// On images: what is in them.
pub const IMAGE: &str = "dev.underpass.image";

/// Who makes things: one process of one instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maker {
    instance: String,
    pid: u32,
    start: u64,
}

impl Maker {
    /// This process.
    pub fn this_process(instance: &str) -> io::Result<Self> {
        let pid = std::process::id();
        Ok(Self { instance: instance.to_owned(), pid, start: start_ticks(pid)? })
    }

    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }

    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        labels(&[
            (INSTANCE, &self.instance),
            (CREATOR_PID, &self.pid.to_string()),
            (CREATOR_START, &self.start.to_string()),
        ])
    }
}

pub fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// When a process began, in ticks since boot.
pub fn start_ticks(pid: u32) -> io::Result<u64> {
    parse_start(&fs::read_to_string(format!("/proc/{pid}/stat"))?)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat has another shape")))
}

/// Field 22. The second field is the program's name in parentheses, and may contain anything, parentheses too.
fn parse_start(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    after_name.split(' ').nth(19)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_move_the_fields() {
        let numbers: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        let stat = format!("7 (a) 1 (b) R {}\n", numbers.join(" "));
        assert_eq!(parse_start(&stat), Some(22));
        assert_eq!(parse_start("7 (x) R 1"), None);
    }

    #[test]
    fn the_start_of_a_process_does_not_change() {
        let pid = std::process::id();
        assert_eq!(start_ticks(pid).unwrap(), start_ticks(pid).unwrap());
        assert!(start_ticks(0).is_err());
    }
}
