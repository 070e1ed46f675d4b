//! Files that cannot be used: each is refused with its own reason and left as it was.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kit;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use kit::{forever, put};
use tempfile::TempDir;
use underpass_store::{At, OpenError, Store};

const ROWS: usize = 40;

fn file(folder: &Path) -> PathBuf {
    folder.join("objects.redb")
}

fn value(row: usize) -> String {
    format!("value-of-row-{row:03}-{}", "x".repeat(row * 7))
}

/// The bytes of a store with a few rows: closed in order, or as a crash leaves them.
async fn sample(crashed: bool) -> Vec<u8> {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path(), forever()).unwrap();
    for row in 0..ROWS {
        put(&store, "things", &format!("name-{row:03}"), &value(row)).await;
    }
    // The last commit alone may be undone after a crash: nothing tells it from one that was cut off.
    put(&store, "things", "last", "").await;
    if !crashed {
        store.close().await;
    }
    fs::read(file(folder.path())).unwrap()
}

enum Verdict {
    Refused(String),
    Opened(Vec<(String, String)>),
}

/// Opens a folder with these bytes; whatever is refused must not be changed.
fn judge(bytes: &[u8]) -> Verdict {
    let folder = TempDir::new().unwrap();
    fs::write(file(folder.path()), bytes).unwrap();
    match Store::open(folder.path(), forever()) {
        Ok(store) => {
            let entries = store.list("things", "name-", None, At::Now).unwrap().entries;
            let text = |entry: &underpass_store::Entry| String::from_utf8(entry.value.to_vec()).unwrap();
            Verdict::Opened(entries.iter().map(|entry| (entry.name.to_string(), text(entry))).collect())
        }
        Err(OpenError::Corrupted { path, what }) => {
            assert_eq!(path, file(folder.path()));
            assert!(fs::read(&path).unwrap() == bytes, "the file was changed although it was refused");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing was left beside it");
            Verdict::Refused(what)
        }
        Err(error) => panic!("expected Corrupted, not {error:?}"),
    }
}

fn expected() -> Vec<(String, String)> {
    (0..ROWS).map(|row| (format!("name-{row:03}"), value(row))).collect()
}

fn positions(bytes: &[u8], wanted: &[u8]) -> Vec<usize> {
    bytes.windows(wanted.len()).enumerate().filter(|(_, window)| *window == wanted).map(|(at, _)| at).collect()
}

async fn flip_in_rows(crashed: bool) {
    let good = sample(crashed).await;
    assert!(matches!(judge(&good), Verdict::Opened(entries) if entries == expected()));
    for row in (0..ROWS).step_by(3) {
        let needle = format!("thingsname-{row:03}{}", value(row));
        let copies = positions(&good, needle.as_bytes());
        assert!(!copies.is_empty());
        // Old copies of a page may lie around in free space, so the same bit is flipped in all of them.
        for (at, bit) in [(0, 0), (8, 3), (needle.len() - 1, 7), (needle.len() + 2, 5)] {
            let mut bad = good.clone();
            copies.iter().for_each(|copy| bad[copy + at] ^= 1 << bit);
            assert!(matches!(judge(&bad), Verdict::Refused(_)), "row {row}, byte {at}, crashed: {crashed}");
        }
    }
}

#[tokio::test]
async fn a_flipped_bit_in_any_row_is_found_after_a_clean_end() {
    flip_in_rows(false).await;
}

#[tokio::test]
async fn a_flipped_bit_in_any_row_is_found_after_a_crash() {
    flip_in_rows(true).await;
}

/// Wherever the damage is, it is found or does no harm: no panic gets out, no row is lost or changed.
#[tokio::test]
async fn damage_anywhere_is_found_or_harmless() {
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    };
    for crashed in [false, true] {
        let good = sample(crashed).await;
        let used: Vec<usize> = (0..good.len()).filter(|at| good[*at] != 0).collect();
        for round in 0..150 {
            let mut bad = good.clone();
            let at = used[random(used.len())];
            if round % 2 == 0 {
                bad[at] ^= 1 << random(8);
            } else {
                bad[at..].iter_mut().take(64).for_each(|b| *b = !*b);
            }
            if let Verdict::Opened(entries) = judge(&bad) {
                assert!(entries == expected(), "round {round}: damage at {at} changed what is read");
            }
        }
    }
}

#[tokio::test]
async fn a_file_cut_short_anywhere_is_refused() {
    let good = sample(true).await;
    for length in [0, 1, 9, 100, 320, 4095, 4096, 8192, good.len() / 2, good.len() - 4096, good.len() - 1] {
        assert!(matches!(judge(&good[..length]), Verdict::Refused(_)), "cut to {length} of {}", good.len());
    }
}

#[test]
fn a_file_that_is_something_else_is_refused() {
    assert!(matches!(judge(b"once upon a time"), Verdict::Refused(_)));
    assert!(matches!(judge(&vec![0; 1 << 20]), Verdict::Refused(_)));
}

#[test]
fn another_programs_database_is_refused() {
    let folder = TempDir::new().unwrap();
    let table = redb::TableDefinition::<u64, u64>::new("theirs");
    let database = redb::Database::create(file(folder.path())).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(table).unwrap().insert(1, 1).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let bytes = fs::read(file(folder.path())).unwrap();
    assert!(matches!(judge(&bytes), Verdict::Refused(what) if what.contains("not a store")));
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_refused_and_kept() {
    let folder = TempDir::new().unwrap();
    Store::open(folder.path(), forever()).unwrap().close().await;
    let database = redb::Database::create(file(folder.path())).unwrap();
    let transaction = database.begin_write().unwrap();
    let meta = redb::TableDefinition::<&str, u64>::new("meta");
    transaction.open_table(meta).unwrap().insert("format", 7).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let before = fs::read(file(folder.path())).unwrap();
    let error = Store::open(folder.path(), forever()).err().unwrap();
    assert!(matches!(error, OpenError::Newer { found: 7, known: 1, .. }), "{error:?}");
    assert!(fs::read(file(folder.path())).unwrap() == before);
}

#[tokio::test]
async fn a_store_in_use_is_refused_until_it_is_closed() {
    let folder = TempDir::new().unwrap();
    let first = Store::open(folder.path(), forever()).unwrap();
    let error = Store::open(folder.path(), forever()).err().unwrap();
    assert!(matches!(error, OpenError::InUse { .. }), "{error:?}");
    put(&first, "things", "a", "still works").await;
    first.close().await;
    let second = Store::open(folder.path(), forever()).unwrap();
    assert!(second.get("things", "a").is_some());
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    // Root may write anywhere but in the kernel's own folders.
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o500)).unwrap();
    let root = fs::write(folder.path().join("probe"), "").is_ok();
    let folder = if root { Path::new("/sys/kernel") } else { folder.path() };
    let error = Store::open(folder, forever()).err().unwrap();
    assert!(matches!(error, OpenError::NotWritable { .. }), "{error:?}");
    assert!(error.to_string().contains(folder.to_str().unwrap()));
}

#[test]
fn a_file_in_place_of_the_folder_is_named() {
    let folder = TempDir::new().unwrap();
    let place = folder.path().join("data");
    fs::write(&place, "mine").unwrap();
    let error = Store::open(&place, forever()).err().unwrap();
    assert!(matches!(error, OpenError::NotWritable { .. }), "{error:?}");
    assert_eq!(fs::read(&place).unwrap(), b"mine");
}

#[tokio::test]
async fn folder_and_file_are_private() {
    let folder = TempDir::new().unwrap();
    let place = folder.path().join("a/b");
    Store::open(&place, forever()).unwrap().close().await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&place), mode(&file(&place))), (0o700, 0o600));
    assert_eq!(fs::read_dir(&place).unwrap().count(), 1, "no draft is left");
}

#[test]
fn many_who_make_the_same_store_at_once_agree_on_one() {
    let folder = TempDir::new().unwrap();
    let open = || Store::open(folder.path(), forever());
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    assert!(results.iter().filter_map(|result| result.as_ref().err()).all(|e| matches!(e, OpenError::InUse { .. })));
}
