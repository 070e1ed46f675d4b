//! What a process of controllers says of itself: does it live, is it ready, does it work or wait.
//!
//! One that waits for the lease is ready: it would work at once. One that works is ready when it has seen every object. One that cannot
//! ask its API server is not, whatever it was before.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::time::Instant;

use crate::leadership::{Office, TERM, Words};

/// A lease is looked at several times per term, whatever comes of it. Who has not done so for two of them hangs.
const LONGEST_SILENCE: Duration = TERM.saturating_mul(2);

const CONTROLLERS: Words = Words {
    waits: "another process runs the controllers of this API server; this one waits and takes over when that one ends",
    leads: "the controllers run here now",
    goes_on: "the lease can be renewed again; the controllers go on",
    is_replaced: "the controllers stop here: another process has taken the lease",
    is_silenced: "the controllers stop until the lease can be renewed: another process could have taken over by now",
};

/// Cheap to clone; all clones are the same.
#[derive(Debug, Clone)]
pub struct Health(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    role: Role,
    /// Why the API server cannot be worked with, if that is so.
    trouble: Option<String>,
    heard: Instant,
}

#[derive(Debug, PartialEq, Eq)]
enum Role {
    Starting,
    Waiting {
        holder: String,
    },
    Working {
        /// The kinds whose objects have not all been seen.
        unseen: BTreeSet<&'static str>,
        /// Whether every watch has begun.
        begun: bool,
    },
}

impl Default for Health {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State { role: Role::Starting, trouble: None, heard: Instant::now() })))
    }
}

impl Health {
    /// `Err`: what is wrong. A process that hangs should be started again.
    pub fn alive(&self) -> Result<(), String> {
        let silence = self.0.lock().heard.elapsed();
        if silence <= LONGEST_SILENCE {
            return Ok(());
        }
        Err(format!("nothing has moved for {} seconds", silence.as_secs()))
    }

    /// `Ok`: what it does. `Err`: what it still lacks.
    pub fn ready(&self) -> Result<String, String> {
        let state = self.0.lock();
        if let Some(trouble) = &state.trouble {
            return Err(trouble.clone());
        }
        match &state.role {
            Role::Starting => Err("starting".to_owned()),
            Role::Waiting { holder } => Ok(format!("waiting, while {holder} works")),
            Role::Working { begun: false, .. } => Err("beginning to work".to_owned()),
            Role::Working { unseen, .. } if unseen.is_empty() => Ok("working".to_owned()),
            Role::Working { unseen, .. } => {
                let kinds: Vec<&str> = unseen.iter().copied().collect();
                Err(format!("not all objects have been seen yet: {}", kinds.join(", ")))
            }
        }
    }

    /// Whether another process works.
    pub fn waits(&self) -> bool {
        matches!(self.0.lock().role, Role::Waiting { .. })
    }

    pub fn works(&self) -> bool {
        matches!(self.0.lock().role, Role::Working { .. })
    }

    /// The API server cannot be worked with.
    pub(crate) fn troubled(&self, why: impl fmt::Display) {
        let mut state = self.0.lock();
        state.heard = Instant::now();
        state.trouble = Some(why.to_string());
    }

    pub(crate) fn waits_for(&self, holder: &str) {
        self.answered(|role| *role = Role::Waiting { holder: holder.to_owned() });
    }

    /// The lease is held: newly, or still.
    pub(crate) fn holds(&self) {
        self.answered(|role| {
            if !matches!(role, Role::Working { .. }) {
                *role = Role::Working { unseen: BTreeSet::new(), begun: false };
            }
        });
    }

    /// The lease is lost without anybody having it instead.
    pub(crate) fn lost(&self) {
        self.0.lock().role = Role::Starting;
    }

    /// A watch of that kind begins: to be said before its first object can come.
    pub(crate) fn watches(&self, kind: &'static str) {
        if let Role::Working { unseen, .. } = &mut self.0.lock().role {
            unseen.insert(kind);
        }
    }

    /// All watches have begun.
    pub(crate) fn began(&self) {
        if let Role::Working { begun, .. } = &mut self.0.lock().role {
            *begun = true;
        }
    }

    /// Every object of that kind has been seen.
    pub(crate) fn saw_all(&self, kind: &'static str) {
        if let Role::Working { unseen, .. } = &mut self.0.lock().role {
            unseen.remove(kind);
        }
    }

    fn answered(&self, change: impl FnOnce(&mut Role)) {
        let mut state = self.0.lock();
        state.heard = Instant::now();
        state.trouble = None;
        change(&mut state.role);
    }
}

/// Whoever can run the controllers stands for it.
impl Office for Health {
    fn words(&self) -> &'static Words {
        &CONTROLLERS
    }

    fn holds(&self, _asked: Instant) {
        self.holds();
    }

    fn waits_for(&mut self, holder: &str) {
        Self::waits_for(self, holder);
    }

    fn troubled(&self, why: &dyn fmt::Display) {
        self.troubled(why);
    }

    fn lost(&self) {
        self.lost();
    }
}

/// What Prometheus is told at each scrape.
impl Collector for Health {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let gauges = [
            ("underpass_leader", "1 in the process that holds the lease and works", self.works()),
            ("underpass_ready", "1 when it works and has seen all objects, or waits to", self.ready().is_ok()),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(i64::from(value));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_ready_when_every_object_was_seen() {
        let health = Health::default();
        assert_eq!(health.ready(), Err("starting".to_owned()));
        health.holds();
        assert!(health.works());
        assert_eq!(health.ready(), Err("beginning to work".to_owned()));
        health.watches("Infra");
        health.saw_all("Infra");
        assert_eq!(health.ready(), Err("beginning to work".to_owned()), "another watch may begin");
        health.watches("DNSServer");
        health.began();
        assert_eq!(health.ready(), Err("not all objects have been seen yet: DNSServer".to_owned()));
        health.holds();
        health.saw_all("DNSServer");
        assert_eq!(health.ready(), Ok("working".to_owned()));
    }

    #[test]
    fn who_waits_is_ready_and_who_gets_no_answer_is_not() {
        let health = Health::default();
        health.waits_for("pod-a");
        assert_eq!(health.ready(), Ok("waiting, while pod-a works".to_owned()));
        health.troubled("connection refused");
        assert_eq!(health.ready(), Err("connection refused".to_owned()));
        assert!(!health.works());
        health.waits_for("pod-a");
        assert!(health.ready().is_ok());
    }

    #[test]
    fn new_work_is_not_ready_by_what_old_work_has_seen() {
        let health = Health::default();
        health.holds();
        health.began();
        health.lost();
        assert!(!health.works());
        health.holds();
        assert_eq!(health.ready(), Err("beginning to work".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_no_sign_of_life() {
        let health = Health::default();
        tokio::time::advance(LONGEST_SILENCE).await;
        assert_eq!(health.alive(), Ok(()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(health.alive(), Err("nothing has moved for 31 seconds".to_owned()));
        health.troubled("no answer");
        assert_eq!(health.alive(), Ok(()), "trying is living");
    }
}
