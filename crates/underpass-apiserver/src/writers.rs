//! Who writes right now: so that whoever changes what is served can wait until nobody works by the old rules any more.

use parking_lot::Mutex;
use tokio::sync::mpsc;

/// Those who entered since the last time that somebody waited.
pub(crate) struct Writers(Mutex<Era>);

struct Era {
    token: Writing,
    ended: mpsc::Receiver<()>,
}

/// Held from before a resource is chosen until its object is committed.
#[derive(Clone)]
pub(crate) struct Writing {
    _open: mpsc::Sender<()>,
}

impl Writers {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Era::new()))
    }

    pub(crate) fn enter(&self) -> Writing {
        self.0.lock().token.clone()
    }

    /// Returns when all who entered before have left. Nobody is kept from entering meanwhile.
    pub(crate) async fn left(&self) {
        let Era { token, mut ended } = std::mem::replace(&mut *self.0.lock(), Era::new());
        drop(token);
        // Nothing is ever sent: this ends when the last sender is gone.
        ended.recv().await;
    }
}

impl Era {
    fn new() -> Self {
        let (open, ended) = mpsc::channel(1);
        Self { token: Writing { _open: open }, ended }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn those_who_came_before_are_waited_for() {
        let writers = Writers::new();
        let before = writers.enter();
        let mut left = Box::pin(writers.left());
        assert!((&mut left).now_or_never().is_none());
        let _after = writers.enter();
        drop(before);
        left.await;
    }
}
