//! The client proxies' images, made in the background: a slow pull or build of one base holds up no object that wants another, and no
//! pass waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::UnboundedSender;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use tracing::warn;
use underpass_engines::{ContainerEngine, EngineError, Ensured, TunnelImages};
use underpass_plan::tunnel_proxy::Image;

use crate::backoff::Backoff;
use crate::reconcile::Key;

/// What hangs is given up: the object says so, and a later attempt may be luckier. A pull and a build have deadlines of their own, 5 and
/// 10 minutes, which come first: a pull that hangs leads to the local copy.
const LONGEST_WORK: Duration = Duration::from_secs(1200);

pub struct Images {
    engine: Arc<dyn ContainerEngine>,
    recipes: TunnelImages,
    by_base: Mutex<BTreeMap<Option<String>, State>>,
    wake: UnboundedSender<Key>,
    backoff: Backoff,
}

enum State {
    Working { waiting: BTreeSet<Key>, troubles: u32, making: bool },
    Ready { reference: String },
    Failed { message: String, retry_at: Timestamp, troubles: u32 },
}

impl Images {
    pub fn new(
        engine: Arc<dyn ContainerEngine>,
        recipes: TunnelImages,
        backoff: Backoff,
        wake: UnboundedSender<Key>,
    ) -> Arc<Self> {
        Arc::new(Self { engine, recipes, by_base: Mutex::default(), wake, backoff })
    }

    /// What is known of the image on this base. A failure whose time is over is nothing known: it may be tried again.
    pub fn state(&self, base: Option<&str>, now: Timestamp) -> Image {
        match self.by_base.lock().get(&base.map(str::to_owned)) {
            None => Image::Unknown,
            Some(State::Working { making: false, .. }) => Image::Looking,
            Some(State::Working { making: true, .. }) => Image::Working,
            Some(State::Ready { reference }) => Image::Ready { reference: reference.clone() },
            Some(State::Failed { retry_at, .. }) if *retry_at <= now => Image::Unknown,
            Some(State::Failed { message, retry_at, .. }) => {
                Image::Failed { message: message.clone(), retry_at: *retry_at }
            }
        }
    }

    /// Begins, unless somebody has; the key is woken when it is over.
    pub fn ensure(self: &Arc<Self>, base: Option<&str>, key: &Key) {
        let base = base.map(str::to_owned);
        let mut by_base = self.by_base.lock();
        let troubles = match by_base.get_mut(&base) {
            Some(State::Working { waiting, .. }) => {
                waiting.insert(key.clone());
                return;
            }
            Some(State::Failed { troubles, .. }) => *troubles,
            Some(State::Ready { .. }) | None => 0,
        };
        // Of a base the registry is asked first. That may take minutes, and people wait for it as they do for a build.
        let making = base.is_some();
        by_base.insert(base.clone(), State::Working { waiting: [key.clone()].into(), troubles, making });
        tokio::spawn(Arc::clone(self).make(base));
    }

    /// The engine does not have it after all.
    pub fn forget(&self, reference: &str) {
        self.by_base
            .lock()
            .retain(|_, state| !matches!(state, State::Ready { reference: known } if known == reference));
    }

    async fn find_or_make(&self, base: &Option<String>) -> Result<Ensured, EngineError> {
        if let Some(found) = self.recipes.find(&*self.engine, base.as_deref()).await? {
            return Ok(found);
        }
        if let Some(State::Working { making, waiting, .. }) = self.by_base.lock().get_mut(base) {
            *making = true;
            self.wake(waiting.iter());
        }
        self.recipes.ensure(&*self.engine, base.as_deref()).await
    }

    fn wake<'k>(&self, keys: impl Iterator<Item = &'k Key>) {
        for key in keys {
            // Nobody listens at the end of the process.
            let _ = self.wake.unbounded_send(key.clone());
        }
    }

    async fn make(self: Arc<Self>, base: Option<String>) {
        let made = self.find_or_make(&base);
        let made = match tokio::time::timeout(LONGEST_WORK, made).await {
            Ok(made) => made,
            Err(_) => {
                Err(EngineError::Refused(format!("it was not done after {} minutes", LONGEST_WORK.as_secs() / 60)))
            }
        };
        let mut by_base = self.by_base.lock();
        let (waiting, troubles) = match by_base.remove(&base) {
            Some(State::Working { waiting, troubles, .. }) => (waiting, troubles + 1),
            _ => (BTreeSet::new(), 1),
        };
        match made {
            Ok(ensured) => {
                by_base.insert(base, State::Ready { reference: ensured.reference });
            }
            // Whoever looks next sees that the engine is away, and waits for it.
            Err(EngineError::Unavailable(_)) => {}
            Err(error) => {
                warn!(base = base.as_deref().unwrap_or("none"), %error, "the client proxy's image cannot be had");
                let retry_at = Timestamp::now().saturating_add(self.backoff.wait(troubles));
                let retry_at = retry_at.unwrap_or(Timestamp::MAX);
                by_base.insert(base, State::Failed { message: error.to_string(), retry_at, troubles });
            }
        }
        drop(by_base);
        self.wake(waiting.iter());
    }
}
