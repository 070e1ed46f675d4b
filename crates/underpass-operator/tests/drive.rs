//! The loop itself, with a reconciler that only observes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, StreamExt};
use support::{Diary, FakeApi, MemoryEngine, outside, pace, until};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use underpass_operator::{Applier, Key, Metrics, ObserveError, Pace, PairError, Reconcile, drive};
use underpass_plan::{Action, Failure, Finalizer, Plan, Subject};

/// Counts the passes that are running, and does what the test says.
#[derive(Default)]
struct Probe {
    running: Mutex<HashMap<Key, usize>>,
    most_together: Mutex<usize>,
    passes: Mutex<Vec<(Key, Instant)>>,
    behaviour: Behaviour,
}

#[derive(Default, Clone, Copy, PartialEq)]
enum Behaviour {
    #[default]
    Settle,
    Fail,
    /// Its plan does what cannot be done, however often that has failed.
    ActInVain,
    Panic,
}

#[async_trait]
impl Reconcile for Probe {
    type Observed = Behaviour;

    fn kind(&self) -> &'static str {
        "Probe"
    }

    async fn observe(&self, key: &Key, _: Option<&Failure>) -> Result<Option<Behaviour>, ObserveError> {
        self.passes.lock().unwrap().push((key.clone(), Instant::now()));
        {
            let mut running = self.running.lock().unwrap();
            *running.entry(key.clone()).or_default() += 1;
            assert_eq!(running[key], 1, "{key} is in two passes");
            let mut most = self.most_together.lock().unwrap();
            *most = (*most).max(running.len());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.running.lock().unwrap().remove(key);
        match self.behaviour {
            Behaviour::Settle | Behaviour::ActInVain => Ok(Some(self.behaviour)),
            Behaviour::Panic => panic!("on purpose"),
            Behaviour::Fail => Err(ObserveError::Pair(PairError::Server("on purpose".into()))),
        }
    }

    fn plan(behaviour: &Behaviour) -> Plan {
        // An object without a uid has no folder.
        let actions = if *behaviour == Behaviour::ActInVain { vec![Action::RemovePairFolder] } else { Vec::new() };
        Plan {
            subject: Subject::new("v1", "Probe", &Default::default()),
            finalizer: Finalizer::Leave,
            status: None,
            events: Vec::new(),
            actions,
            look_again_after: None,
            reasons: Vec::new(),
        }
    }
}

fn start(
    behaviour: Behaviour,
    keys: Vec<Key>,
    pace: Pace,
) -> (Arc<Probe>, CancellationToken, tokio::task::JoinHandle<()>) {
    let probe = Arc::new(Probe { behaviour, ..Probe::default() });
    let diary = Diary::default();
    let engine = Arc::new(MemoryEngine::new(diary.clone()));
    let applier = Arc::new(Applier::new(FakeApi::new(diary).client(), Some(outside(engine)), Metrics::default()));
    let stop = CancellationToken::new();
    let triggers = stream::iter(keys).chain(stream::pending());
    let running = tokio::spawn(drive(Arc::clone(&probe), triggers, applier, pace, None, stop.clone()));
    (probe, stop, running)
}

fn gaps(probe: &Probe) -> Vec<Duration> {
    probe.passes.lock().unwrap().windows(2).map(|pair| pair[1].1 - pair[0].1).collect()
}

#[tokio::test(start_paused = true)]
async fn one_key_is_never_in_two_passes_and_passes_are_bounded() {
    let keys = (0..200).map(|number| Key::cluster(format!("k{}", number % 20))).collect();
    let (probe, _stop, _running) = start(Behaviour::Settle, keys, pace());
    until("every key was looked at", || {
        let passes = probe.passes.lock().unwrap();
        (0..20).all(|number| passes.iter().any(|(key, _)| key.name == format!("k{number}")))
    })
    .await;
    assert_eq!(*probe.most_together.lock().unwrap(), pace().workers);
}

#[tokio::test(start_paused = true)]
async fn signals_that_pile_up_are_one_pass() {
    let keys = vec![Key::cluster("k"); 100];
    let (probe, _stop, _running) = start(Behaviour::Settle, keys, pace());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let passes = probe.passes.lock().unwrap().len();
    assert!((1..=2).contains(&passes), "{passes} passes");
}

#[tokio::test(start_paused = true)]
async fn a_settled_key_is_looked_at_again_after_the_period() {
    let (probe, _stop, _running) = start(Behaviour::Settle, vec![Key::cluster("k")], pace());
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(gaps(&probe).len() >= 4);
    for gap in gaps(&probe) {
        assert!((54.0..=67.0).contains(&gap.as_secs_f64()), "{gap:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_key_waits_longer_and_longer() {
    let (probe, _stop, _running) = start(Behaviour::Fail, vec![Key::cluster("k")], pace());
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_longer_and_longer(&gaps(&probe), 1);
}

/// The first failure is to be told at once; a plan that tries again instead is none that keeps the back-off.
#[tokio::test(start_paused = true)]
async fn an_action_that_always_fails_waits_longer_and_longer_whatever_the_plan() {
    let (probe, _stop, _running) = start(Behaviour::ActInVain, vec![Key::cluster("k")], pace());
    tokio::time::sleep(Duration::from_secs(120)).await;
    let gaps = gaps(&probe);
    assert!(gaps[0] < Duration::from_millis(50), "it is looked at again at once: {:?}", gaps[0]);
    assert_longer_and_longer(&gaps[1..], 2);
}

/// The first of the waits comes after so many troubles.
fn assert_longer_and_longer(waits: &[Duration], troubles: usize) {
    for (number, wait) in waits.iter().enumerate() {
        let doublings = (number + troubles - 1).min(20);
        let full = Duration::from_millis(100).saturating_mul(1 << doublings).min(Duration::from_secs(10));
        let allowed = full.mul_f64(0.5)..=full + Duration::from_millis(50);
        assert!(allowed.contains(wait), "wait {number} is {wait:?}, not in {allowed:?}");
    }
    assert!(waits.len() > 10);
}

#[tokio::test(start_paused = true)]
async fn a_panic_costs_one_pass_and_nothing_else() {
    let (probe, _stop, _running) = start(Behaviour::Panic, vec![Key::cluster("k")], pace());
    until("it is looked at again", || probe.passes.lock().unwrap().len() >= 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_has_begun_is_finished_before_the_loop_ends() {
    let (probe, stop, running) = start(Behaviour::Settle, vec![Key::cluster("k")], pace());
    until("a pass has begun", || !probe.passes.lock().unwrap().is_empty()).await;
    stop.cancel();
    running.await.unwrap();
    assert!(probe.running.lock().unwrap().is_empty());
}
