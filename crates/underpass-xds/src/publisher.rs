//! From tables to what is handed out, by the way that leads no connection astray.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::info;
use underpass_tables::RelayTable;

use crate::detour::detour;
use crate::envoy::{LONGEST_CHECK, Translator};
use crate::reports::Reports;
use crate::snapshot::{Newest, Snapshot};

/// A detour ends then, though somebody has not taken it who refuses nothing: longer than an Envoy needs that checks new endpoints first.
const LONGEST_DETOUR: Duration = LONGEST_CHECK.saturating_add(Duration::from_secs(10));

/// Hands out the newest table, or what has to be in force before it.
pub struct Publisher {
    translator: Translator,
    newest: watch::Sender<Option<Arc<Snapshot>>>,
    /// What the newest snapshot was made of.
    said: Arc<RelayTable>,
    /// What every Envoy was seen to run last.
    in_force: Arc<RelayTable>,
    /// What follows when that is in force, and when it follows in any case.
    next: Option<(Arc<RelayTable>, Instant)>,
}

impl Publisher {
    pub fn new(translator: Translator) -> Self {
        Self {
            translator,
            newest: watch::Sender::new(None),
            said: Arc::default(),
            in_force: Arc::default(),
            next: None,
        }
    }

    pub fn subscribe(&self) -> Newest {
        self.newest.subscribe()
    }

    /// What is said for the newest table; `None` while something else has to be in force first.
    pub fn newest(&self) -> Option<Arc<Snapshot>> {
        self.newest.borrow().clone().filter(|_| self.next.is_none())
    }

    /// In place of all that was said before.
    pub fn publish(&mut self, table: &Arc<RelayTable>) {
        match detour(&self.in_force, &self.said, table) {
            Some(between) => {
                self.say(&Arc::new(between));
                self.next = Some((table.clone(), Instant::now() + LONGEST_DETOUR));
            }
            None => {
                self.say(table);
                self.next = None;
            }
        }
    }

    /// Goes on when what was said is in force. As long as an Envoy refuses it nothing follows but a newer table: it serves what was before.
    pub fn go_on(&mut self, reports: &Reports) {
        let is_in_force = self.newest.borrow().as_ref().is_none_or(|newest| reports.all_run(newest));
        if is_in_force {
            self.in_force = self.said.clone();
        }
        let Some((table, until)) = &self.next else { return };
        if is_in_force || (Instant::now() >= *until && !reports.any_refusal()) {
            let table = table.clone();
            self.next = None;
            self.say(&table);
        }
    }

    /// Comes back when it is time to go on, whatever was reported; it may be told why not.
    pub async fn is_time(&self) {
        match self.next {
            Some((_, until)) if Instant::now() < until => sleep_until(until).await,
            _ => std::future::pending().await,
        }
    }

    fn say(&mut self, table: &Arc<RelayTable>) {
        let snapshot = self.translator.snapshot(table);
        if self.newest.borrow().as_deref() != Some(&snapshot) {
            info!(
                version = snapshot.version(),
                listeners = table.listeners.len(),
                clusters = table.routes.len(),
                "Generated Envoy configuration"
            );
            self.newest.send_replace(Some(Arc::new(snapshot)));
        }
        self.said = table.clone();
    }
}
