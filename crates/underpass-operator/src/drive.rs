//! The loop, written once for every kind: key in, observe, plan, apply, count, look again.
//!
//! Keys come from watches, from plans that ask to be looked at again, from failures after their back-off, and from a period that
//! repairs what a lost signal left behind. One key is never in two passes at once, and the passes of one kind are bounded. kube's
//! `Controller` was rejected: it hands the cached object to the reconciler, and here a key is only a hint.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, Stream, StreamExt};
use k8s_openapi::jiff::Timestamp;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info_span, warn};
use underpass_plan::{Action, Failure};

use crate::apply::{Applied, Applier, ApplyError};
use crate::backoff::Backoff;
use crate::first_look::FirstLook;
use crate::metrics::PassResult;
use crate::queue::Queue;
use crate::reach::chain;
use crate::reconcile::{Key, ObserveError, Reconcile};

/// A pass is a handful of calls with deadlines of their own; this one catches what they miss.
const PASS_DEADLINE: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Passes of one kind at the same time.
    pub workers: usize,
    /// How often an object is looked at when nothing happens, unless it stands alone.
    pub period: Duration,
    pub backoff: Backoff,
}

impl Default for Pace {
    fn default() -> Self {
        Self { workers: 8, period: Duration::from_secs(300), backoff: Backoff::default() }
    }
}

/// Runs until `stop`; passes that have begun are finished.
pub async fn drive<R: Reconcile>(
    reconciler: Arc<R>,
    triggers: impl Stream<Item = Key> + Send,
    applier: Arc<Applier>,
    pace: Pace,
    first_look: Option<FirstLook>,
    stop: CancellationToken,
) {
    let period = (!reconciler.stands_alone()).then_some(pace.period);
    let mut triggers = pin!(triggers.fuse());
    let mut queue = Queue::default();
    let mut memories: HashMap<Key, Memory> = HashMap::new();
    let mut passes = JoinSet::new();
    loop {
        let mut idle = pace.workers - queue.running();
        while let Some(key) = (idle > 0).then(|| queue.take(Instant::now())).flatten() {
            idle -= 1;
            let memory = memories.get(&key).cloned().unwrap_or_default();
            passes.spawn(guarded(Arc::clone(&reconciler), Arc::clone(&applier), key, memory));
        }
        let next = queue.next().filter(|_| idle > 0);
        tokio::select! {
            () = stop.cancelled() => break,
            Some(key) = triggers.next() => queue.ask(key, Instant::now()),
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            Some(Ok((key, memory, result))) = passes.join_next() => {
                if let Some(first_look) = first_look.as_ref().filter(|_| has_told(&result)) {
                    first_look.looked_at(reconciler.kind(), &key);
                }
                let (memory, wait) = memory.after(&result, pace.backoff, period, Timestamp::now());
                if wait.is_some() {
                    memories.insert(key.clone(), memory);
                } else {
                    memories.remove(&key);
                }
                queue.done(key, wait.map(|wait| Instant::now() + wait));
            }
        }
    }
    while passes.join_next().await.is_some() {}
}

/// What is remembered about a key between two passes. It is lost with the process, and nothing depends on it but the back-off and the
/// report of a failure that the next attempt would meet again.
#[derive(Debug, Clone, Default)]
struct Memory {
    /// Passes in a row that did not settle.
    troubles: u32,
    failure: Option<Failure>,
    /// Whether an action has failed since the last pass that settled.
    failing: bool,
    /// What was done since the last pass that settled, each as a number that stands for it: whole objects of ten thousand keys that wait for
    /// their next turn would take hundreds of megabytes.
    acted: HashSet<u64>,
}

#[derive(Debug)]
enum Pass {
    /// The object is as planned; look again after this time, or after the period.
    Settled(Option<Duration>),
    /// Something was done outside of the API: look at once what became of it.
    Acted(Vec<Action>),
    Gone,
}

#[derive(Debug, thiserror::Error)]
enum PassError {
    #[error(transparent)]
    Observe(#[from] ObserveError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error("the pass took longer than {} seconds and was given up", PASS_DEADLINE.as_secs())]
    TooSlow,
    #[error("the pass panicked, which is a defect of underpass")]
    Panicked,
}

type Done = (Key, Memory, Result<Pass, PassError>);

impl Memory {
    /// What to remember, and when to look again; `None` for never.
    fn after(
        mut self,
        result: &Result<Pass, PassError>,
        backoff: Backoff,
        period: Option<Duration>,
        now: Timestamp,
    ) -> (Self, Option<Duration>) {
        let wait = match result {
            Ok(Pass::Gone) => return (Self::default(), None),
            Ok(Pass::Settled(wait)) => {
                if self.failure.as_ref().is_none_or(|failure| failure.wait(now).is_none()) {
                    self = Self::default();
                }
                self.failing = false;
                let usual = || period.map(|period| period.mul_f64(rand::random_range(0.9..=1.1)));
                return (self, wait.or_else(usual));
            }
            Ok(Pass::Acted(actions)) => {
                self.failure = None;
                // A step that was done already has had no visible effect, or leads in a circle: no reason to repeat it fast.
                if self.acted.insert(number(actions)) {
                    Duration::ZERO
                } else {
                    self.troubles += 1;
                    backoff.wait(self.troubles)
                }
            }
            Err(error) => {
                self.troubles += 1;
                let wait = backoff.wait(self.troubles);
                match error {
                    // Back at once to report it. From then on the plan keeps the back-off; where it tries again instead, this loop does.
                    PassError::Apply(ApplyError::Action(source)) => {
                        self.failure = Some(Failure {
                            cause: source.cause(),
                            message: source.to_string(),
                            failed_at: Some(now),
                            retry_at: now.saturating_add(wait).unwrap_or(Timestamp::MAX),
                        });
                        if std::mem::replace(&mut self.failing, true) { wait } else { Duration::ZERO }
                    }
                    _ => wait,
                }
            }
        };
        (self, Some(wait))
    }
}

fn number(actions: &[Action]) -> u64 {
    let mut hasher = DefaultHasher::new();
    actions.hash(&mut hasher);
    hasher.finish()
}

/// A pass that always comes back, whatever happens in it: a key that stayed marked as running would never be looked at again.
async fn guarded<R: Reconcile>(reconciler: Arc<R>, applier: Arc<Applier>, key: Key, memory: Memory) -> Done {
    let kind = reconciler.kind();
    let span = info_span!("reconcile", kind, object = %key);
    let started = Instant::now();
    let pass = pass(&*reconciler, &applier, &key, memory.failure.as_ref());
    let pass = AssertUnwindSafe(tokio::time::timeout(PASS_DEADLINE, pass)).catch_unwind().instrument(span.clone());
    let result = match pass.await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(PassError::TooSlow),
        Err(_) => Err(PassError::Panicked),
    };
    span.in_scope(|| report(&result));
    applier.metrics().passed(kind, label(&result), started.elapsed());
    (key, memory, result)
}

async fn pass<R: Reconcile>(
    reconciler: &R,
    applier: &Applier,
    key: &Key,
    failure: Option<&Failure>,
) -> Result<Pass, PassError> {
    let Some(observed) = reconciler.observe(key, failure).await? else { return Ok(Pass::Gone) };
    let plan = R::plan(&observed);
    Ok(match applier.apply(&plan).await? {
        Applied::Gone => Pass::Gone,
        Applied::Done if plan.actions.is_empty() => Pass::Settled(plan.look_again_after),
        Applied::Done => Pass::Acted(plan.actions),
    })
}

/// Whether the object's status says what this pass has seen, or there is no object. It is written before anything is done.
fn has_told(result: &Result<Pass, PassError>) -> bool {
    matches!(result, Ok(_) | Err(PassError::Apply(ApplyError::Action(_))))
}

fn report(result: &Result<Pass, PassError>) {
    match result {
        Ok(pass) => debug!(?pass, "passed"),
        Err(PassError::Apply(error)) if error.is_conflict() => debug!("somebody else wrote first: looking again"),
        Err(error) => warn!(error = chain(error), "pass failed, will be repeated"),
    }
}

fn label(result: &Result<Pass, PassError>) -> PassResult {
    match result {
        Ok(Pass::Settled(_)) => PassResult::Settled,
        Ok(Pass::Acted(_)) => PassResult::Acted,
        Ok(Pass::Gone) => PassResult::Gone,
        Err(PassError::Apply(error)) if error.is_conflict() => PassResult::Conflict,
        Err(_) => PassResult::Failed,
    }
}
