//! An API server and a container engine in memory, sharing one diary, so that a test can see what was done in which order. The API
//! answers only what the loops ask for; the real server stands behind the same client in the tests of the binary.

#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]

mod api;
mod engine;
mod lease;

pub(crate) use api::FakeApi;
pub(crate) use engine::MemoryEngine;
pub(crate) use lease::{LeaseApi, Line};

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use underpass_engines::{ContainerEngine, TunnelImages};
use underpass_operator::leadership::{CONTROLLERS, Seat};
use underpass_operator::{Backoff, Images, Outside, Pace, Pairs};

/// What was written where, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    pub(crate) fn note(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Everything but the events, which have their own tests.
    pub(crate) fn deeds(&self) -> Vec<String> {
        self.lines().into_iter().filter(|line| !line.starts_with("event ")).collect()
    }
}

pub(crate) fn pace() -> Pace {
    Pace {
        workers: 4,
        period: Duration::from_secs(60),
        backoff: Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(10) },
    }
}

pub(crate) fn seat(candidate: &str) -> Seat {
    Seat {
        namespace: "kube-system".into(),
        name: "controllers".into(),
        candidate: candidate.into(),
        terms: CONTROLLERS,
    }
}

/// What actions reach: this engine, and no pair of proxies.
pub(crate) fn outside(engine: Arc<dyn ContainerEngine>) -> Outside {
    let (wake, _) = futures::channel::mpsc::unbounded();
    let (backoff, nowhere) = (pace().backoff, PathBuf::from("/nowhere"));
    Outside {
        images: Images::new(Arc::clone(&engine), TunnelImages::default(), backoff, wake.clone()),
        pairs: Pairs::new(Arc::clone(&engine), "test".to_owned(), nowhere.clone(), nowhere, backoff, wake),
        engine,
    }
}

/// Lets everything that can happen happen, until `done`; fails when it never does.
pub(crate) async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let waiting = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap_or_else(|_| panic!("never came: {what}"));
}
