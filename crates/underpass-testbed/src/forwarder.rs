//! A Unix socket in front of another, whose connections can be cut while whoever is behind it lives on.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tempfile::TempDir;

pub struct Forwarder {
    folder: TempDir,
    /// Both ends of each connection.
    connections: Arc<Mutex<Vec<UnixStream>>>,
}

impl Forwarder {
    /// `address` is that of an engine, and so is what `address()` returns.
    pub fn to(address: &str) -> Self {
        let target = PathBuf::from(address.strip_prefix("unix://").expect("engines of tests have Unix sockets"));
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let forwarder = Self { folder, connections: Arc::default() };
        let listener = UnixListener::bind(forwarder.path()).expect("a socket can be made in it");
        let connections = Arc::clone(&forwarder.connections);
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let Ok(near) = near else { return };
                // Closed again, as if nobody were there.
                let Ok(far) = UnixStream::connect(&target) else { continue };
                carry(&near, &far);
                connections.lock().unwrap_or_else(PoisonError::into_inner).extend([near, far]);
            }
        });
        forwarder
    }

    pub fn address(&self) -> String {
        format!("unix://{}", self.path().display())
    }

    /// Ends every connection that there is; new ones are carried.
    pub fn cut(&self) {
        let cut = std::mem::take(&mut *self.connections.lock().unwrap_or_else(PoisonError::into_inner));
        assert!(!cut.is_empty(), "nobody is connected");
        for end in cut {
            // The other side may have ended it.
            let _ = end.shutdown(std::net::Shutdown::Both);
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("engine.sock")
    }
}

fn carry(near: &UnixStream, far: &UnixStream) {
    for (from, to) in [(near, far), (far, near)] {
        let (mut from, mut to) = (from.try_clone().expect("a descriptor"), to.try_clone().expect("a descriptor"));
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Write);
        });
    }
}
