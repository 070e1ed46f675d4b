//! A signal ends the measuring after the sample that is under way: whatever was made is removed by the values that made it.

#![expect(clippy::print_stderr, reason = "programs for people use it")]

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};

/// The exit code of a program that ended so, as of a shell.
pub const EXIT_CODE: u8 = 130;

static CAME: AtomicBool = AtomicBool::new(false);

/// Whether somebody wants this to end.
pub fn came() -> bool {
    CAME.load(Ordering::Relaxed)
}

/// On a thread of its own, for as long as the process lives.
pub fn listen() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                CAME.store(true, Ordering::Relaxed);
                eprintln!("ending after this sample; what was started is being removed");
            }
        });
    });
    Ok(())
}
