//! Programs that a test writes and then starts, and those that are built beside it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Writes a program that can be started at once. Another process writes it: a file that this one has open for writing is also open in
/// every child that another thread is just starting, and the kernel refuses to start it then ("Text file busy").
pub fn write_program(path: &Path, parts: &[&[u8]]) {
    let mut command = Command::new("sh");
    command.args(["-euc", "cat >\"$0\"; chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut child = command.spawn().expect("a shell can be started");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    for part in parts {
        stdin.write_all(part).expect("a program can be written");
    }
    drop(stdin);
    assert!(child.wait().expect("a shell ends").success(), "cannot write {}", path.display());
}

/// A program of this crate. Cargo builds it for the tests of this crate, two folders above which it then lies, as it does for those of other
/// crates.
pub(crate) fn built_program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a process knows its program");
    let built = test.parent().and_then(Path::parent).expect("tests lie in a folder of what was built");
    let program = built.join(name);
    assert!(program.exists(), "{} is missing: run `cargo build --workspace --bin {name}`", program.display());
    program
}
