//! What the fuzzers found worth keeping: the corpora cannot rot, and a bug that was fuzzed out stays out.

use std::fs;
use std::path::Path;

pub(crate) fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 5, "{} has next to nothing", folder.display());
    for file in files {
        let bytes = fs::read(&file).unwrap();
        assert!(std::panic::catch_unwind(|| check(&bytes)).is_ok(), "{}", file.display());
    }
}
