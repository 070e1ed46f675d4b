//! The addresses of names outside of the cluster, asked for again and again, beside everything else.
//!
//! A name server that does not answer for a while takes no endpoints away: what a name led to holds until it leads somewhere else, or has led
//! nowhere for so long that its addresses may be somebody else's.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep, timeout};
use tracing::{info, warn};

/// How often names are resolved again.
const RESOLVE_EVERY: Duration = Duration::from_secs(30);
/// For how many rounds what a name led to holds while it is said to lead nowhere: about ten minutes, which is longer than name servers that were
/// started anew mostly know nothing.
const ROUNDS_TO_HOLD: u32 = 20;
/// How soon is asked again for what somebody waits for.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How it is said that no name server has answered, which says nothing about the name: by us, and by the C library.
const NO_ANSWER: &str = "no answer in time";
const NO_ANSWER_YET: [&str; 2] = ["Temporary failure", "Try again"];
/// For one name.
const RESOLVE_TIME: Duration = Duration::from_secs(2);
/// Each of them takes a thread.
const AT_ONCE: usize = 32;

/// The addresses of a name, or why there are none.
type Answer = Result<Vec<IpAddr>, String>;
type Resolve = fn(String) -> BoxFuture<'static, Answer>;

pub(super) struct Names {
    resolve: Resolve,
    known: BTreeMap<String, Known>,
    /// Ends with this value.
    asked: JoinSet<(String, Answer)>,
    turns: Arc<Semaphore>,
    again: Interval,
}

/// What is known of one name.
#[derive(Default)]
struct Known {
    /// The one that holds; None: there was none yet.
    answer: Option<Answer>,
    /// None: the last round found addresses.
    failure: Option<String>,
    failed_rounds: u32,
}

impl Names {
    pub(super) fn new() -> Self {
        Self::resolved_by(|name| resolve(name).boxed())
    }

    pub(super) fn resolved_by(resolve: Resolve) -> Self {
        let mut again = interval_at(Instant::now() + RESOLVE_EVERY, RESOLVE_EVERY);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        Self { resolve, known: BTreeMap::new(), asked: JoinSet::new(), turns, again }
    }

    /// Asks for those that are new, and forgets all that are not among these.
    pub(super) fn follow(&mut self, wanted: BTreeSet<String>) {
        self.known.retain(|name, _| wanted.contains(name));
        for name in wanted {
            if !self.known.contains_key(&name) {
                self.known.insert(name.clone(), Known::default());
                self.ask(name);
            }
        }
    }

    /// Those that were answered.
    pub(super) fn answers(&self) -> BTreeMap<String, Answer> {
        self.known.iter().filter_map(|(name, known)| Some((name.clone(), known.answer.clone()?))).collect()
    }

    /// Comes back when there is an answer for each. Nothing is lost when this is dropped.
    pub(super) async fn all_answered(&mut self) {
        while self.known.values().any(|known| known.answer.is_none()) {
            self.next().await;
        }
    }

    /// Comes back when there are addresses for each. Nothing is lost when this is dropped.
    pub(super) async fn all_found(&mut self) {
        loop {
            while !self.asked.is_empty() {
                self.next().await;
            }
            let missing = self.known.iter().filter(|(_, known)| !known.has_addresses());
            let missing: Vec<String> = missing.map(|(name, _)| name.clone()).collect();
            if missing.is_empty() {
                return;
            }
            sleep(TRY_AGAIN).await;
            missing.into_iter().for_each(|name| self.ask(name));
        }
    }

    /// Waits for something to happen: whether that changed an answer. Nothing is lost when this is dropped.
    pub(super) async fn next(&mut self) -> bool {
        tokio::select! {
            Some(Ok((name, answer))) = self.asked.join_next() => self.hear(&name, answer),
            _ = self.again.tick() => {
                self.ask_again();
                false
            }
        }
    }

    /// Not before the last round is over: it may have more names than can be asked for in the time.
    fn ask_again(&mut self) {
        if self.asked.is_empty() {
            let names: Vec<String> = self.known.keys().cloned().collect();
            names.into_iter().for_each(|name| self.ask(name));
        }
    }

    fn ask(&mut self, name: String) {
        let (resolve, turns) = (self.resolve, self.turns.clone());
        self.asked.spawn(async move {
            let _turn = turns.acquire().await;
            let answer = resolve(name.clone()).await;
            (name, answer)
        });
    }

    fn hear(&mut self, name: &str, answer: Answer) -> bool {
        self.known.get_mut(name).is_some_and(|known| known.hear(name, answer))
    }
}

impl Known {
    fn has_addresses(&self) -> bool {
        matches!(self.answer, Some(Ok(_)))
    }

    /// Whether another answer holds from now on.
    fn hear(&mut self, name: &str, answer: Answer) -> bool {
        self.tell(name, answer.as_ref().err());
        self.failed_rounds = match &answer {
            Ok(_) => 0,
            Err(reason) => self.failed_rounds + u32::from(is_verdict(reason)),
        };
        let holds = self.has_addresses() && answer.is_err() && self.failed_rounds < ROUNDS_TO_HOLD;
        if holds || self.answer.as_ref() == Some(&answer) {
            return false;
        }
        self.answer = Some(answer);
        true
    }

    /// Once, however long it fails.
    fn tell(&mut self, name: &str, failure: Option<&String>) {
        if self.failure.as_ref() == failure {
            return;
        }
        match failure {
            Some(reason) => warn!("{name} cannot be resolved: {reason}"),
            None => info!("{name} is resolved again"),
        }
        self.failure = failure.cloned();
    }
}

fn is_verdict(reason: &str) -> bool {
    reason != NO_ANSWER && !NO_ANSWER_YET.iter().any(|words| reason.contains(words))
}

async fn resolve(name: String) -> Answer {
    let found = timeout(RESOLVE_TIME, tokio::net::lookup_host((name, 0))).await;
    let found = found.map_err(|_| NO_ANSWER.to_owned())?.map_err(|error| error.to_string())?;
    // Name servers like to give them in another order each time.
    let found: BTreeSet<IpAddr> = found.map(|address| address.ip()).collect();
    Ok(found.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Barrier;

    use super::*;

    fn wanted(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// It was deleted: its addresses are given to somebody else one day.
    #[tokio::test]
    async fn what_a_name_led_to_does_not_hold_for_ever() {
        let mut names = Names::resolved_by(|_| std::future::pending().boxed());
        names.follow(wanted(&["a.example.com"]));
        let (good, failed) = (Ok(vec![[192, 0, 2, 1].into()]), || Err("no such name".to_owned()));
        let changed_in_round = |names: &mut Names| (1..100).find(|_| names.hear("a.example.com", failed()));
        for _ in 0..2 {
            assert!(names.hear("a.example.com", good.clone()), "it is there again");
            assert!(!names.hear("a.example.com", failed()), "nothing changes for a moment");
            assert!(!names.hear("a.example.com", good.clone()), "nor when it has passed, which counts no more");
            for nobody_says in [NO_ANSWER, "failed to lookup address information: Temporary failure in name resolution"]
            {
                let changes = (1..100).any(|_| names.hear("a.example.com", Err(nobody_says.to_owned())));
                assert!(!changes, "nobody has said that it leads nowhere");
            }
            assert_eq!(changed_in_round(&mut names), Some(ROUNDS_TO_HOLD));
            assert_eq!(names.answers()["a.example.com"], failed());
        }
    }

    #[tokio::test]
    async fn what_a_name_led_to_holds_until_it_leads_somewhere_else() {
        let mut names = Names::resolved_by(|_| std::future::pending().boxed());
        names.follow(wanted(&["a.example.com"]));
        let (good, other) = (Ok(vec![[192, 0, 2, 1].into()]), Ok(vec![[192, 0, 2, 2].into()]));
        let failed = || Err("no answer in time".to_owned());
        assert!(names.answers().is_empty());
        for (answer, is_news, expected) in [
            (failed(), true, failed()),
            (failed(), false, failed()),
            (good.clone(), true, good.clone()),
            (failed(), false, good),
            (other.clone(), true, other),
        ] {
            assert_eq!(names.hear("a.example.com", answer.clone()), is_news, "{answer:?}");
            assert_eq!(names.answers()["a.example.com"], expected);
        }
        names.follow(wanted(&["b.example.com"]));
        assert!(!names.hear("a.example.com", failed()), "nobody wants to know any more");
        assert!(names.answers().is_empty(), "what nobody wants is forgotten");
    }

    /// Nobody here is answered before the last one asks.
    #[tokio::test(start_paused = true)]
    async fn names_do_not_wait_for_each_other() {
        static ALL: LazyLock<Barrier> = LazyLock::new(|| Barrier::new(10));
        let mut names = Names::resolved_by(|name| {
            let answer = async move {
                ALL.wait().await;
                Err(name)
            };
            answer.boxed()
        });
        names.follow((0..10).map(|number| format!("{number}.invalid")).collect());
        timeout(RESOLVE_TIME, names.all_answered()).await.expect("all of them are asked at once");
        assert_eq!(names.answers().len(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn what_somebody_waits_for_is_asked_for_again_soon() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let mut names = Names::resolved_by(|_| {
            let is_early = ASKED.fetch_add(1, Ordering::Relaxed) < 3;
            let answer = if is_early { Err("no answer in time".to_owned()) } else { Ok(vec![[192, 0, 2, 1].into()]) };
            std::future::ready(answer).boxed()
        });
        names.follow(wanted(&["a.example.com"]));
        timeout(RESOLVE_EVERY / 2, names.all_found()).await.expect("it is resolved in the end");
        assert_eq!(names.answers()["a.example.com"], Ok(vec![[192, 0, 2, 1].into()]));
        assert_eq!(ASKED.load(Ordering::Relaxed), 4, "what is known is not asked for");
    }

    #[tokio::test(start_paused = true)]
    async fn names_are_resolved_again() {
        let mut names = Names::new();
        names.follow(wanted(&["192.0.2.7"]));
        names.all_answered().await;
        assert_eq!(names.answers()["192.0.2.7"], Ok(vec![[192, 0, 2, 7].into()]));
        let begun = Instant::now();
        names.resolve = |_| std::future::ready(Ok(vec![[192, 0, 2, 8].into()])).boxed();
        while !names.next().await {}
        assert!(begun.elapsed() >= RESOLVE_EVERY - RESOLVE_TIME, "{:?}", begun.elapsed());
    }
}
