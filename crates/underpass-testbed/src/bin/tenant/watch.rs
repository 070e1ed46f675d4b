//! One new connection after the other, all of which are to be answered by the same service.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use underpass_testbed::tenant::Door;

use crate::client::Client;

const PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Watch {
    begun: Instant,
    asked: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

impl Watch {
    /// For as long as the program runs.
    pub(crate) fn start(client: &Arc<Client>, door: Door, who: String) -> Arc<Self> {
        let watch = Arc::new(Self { begun: Instant::now(), asked: AtomicU64::new(0), wrong: Mutex::default() });
        let (kept, client) = (Arc::clone(&watch), Arc::clone(client));
        std::thread::spawn(move || {
            loop {
                kept.note(&door, &who, client.who_answers(&door));
                std::thread::sleep(PAUSE);
            }
        });
        watch
    }

    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    pub(crate) fn wrong(&self) -> Vec<String> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, door: &Door, who: &str, answered: Result<String, String>) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let what = match answered {
            Ok(found) if found == who => return,
            Ok(found) => format!("answered by {found}"),
            Err(why) => why,
        };
        let line = format!("{}:{} after {:.1?}: {what}", door.name, door.port, self.begun.elapsed());
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}
