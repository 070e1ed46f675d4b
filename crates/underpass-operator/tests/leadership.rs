//! Of many processes one works, and another follows it. The clock is the test's.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::{LeaseApi, Line, seat, until};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use underpass_operator::Health;
use underpass_operator::leadership::{Office, Stands, TERM, Words, lead};

/// Who works, and who ever did.
#[derive(Clone, Default)]
struct Shift {
    working: Arc<Mutex<Vec<&'static str>>>,
    began: Arc<Mutex<Vec<&'static str>>>,
}

/// Somebody at work; gone from the shift when dropped, however that comes.
struct AtWork(Shift, &'static str);

impl Shift {
    fn begin(&self, name: &'static str) -> AtWork {
        let mut working = self.working.lock().unwrap();
        assert!(working.is_empty(), "{name} begins while {working:?} works");
        working.push(name);
        self.began.lock().unwrap().push(name);
        AtWork(self.clone(), name)
    }

    fn working(&self) -> Vec<&'static str> {
        self.working.lock().unwrap().clone()
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.working.lock().unwrap().retain(|name| *name != self.1);
    }
}

fn start(
    name: &'static str,
    client: kube::Client,
    shift: &Shift,
    stop: &CancellationToken,
) -> JoinHandle<Option<&'static str>> {
    let (shift, stop) = (shift.clone(), stop.clone());
    tokio::spawn(async move {
        let work = || {
            let (at_work, stop) = (shift.begin(name), stop.clone());
            async move {
                stop.cancelled().await;
                // Work that has begun takes its time, longer than a term.
                tokio::time::sleep(TERM * 2).await;
                drop(at_work);
                name
            }
        };
        lead(&client, seat(name), &mut Health::default(), &stop, work).await
    })
}

#[tokio::test(start_paused = true)]
async fn the_next_one_follows_when_the_first_has_finished_its_work() {
    let (api, shift) = (LeaseApi::default(), Shift::default());
    let (stop_first, stop) = (CancellationToken::new(), CancellationToken::new());
    let first = start("first", api.client().0, &shift, &stop_first);
    until("the first", || shift.working() == ["first"]).await;
    let second = start("second", api.client().0, &shift, &stop);
    tokio::time::sleep(TERM * 10).await;
    assert_eq!(shift.working(), ["first"], "it renews");
    stop_first.cancel();
    assert_eq!(first.await.unwrap(), Some("first"));
    let ended = Instant::now();
    until("the second", || shift.working() == ["second"]).await;
    assert!(ended.elapsed() < TERM / 5, "given back, so that nobody waits for the term: {:?}", ended.elapsed());
    stop.cancel();
    assert_eq!(second.await.unwrap(), Some("second"));
    assert_eq!(api.holder(), None);
}

#[tokio::test(start_paused = true)]
async fn who_ends_while_it_asks_for_the_lease_leaves_it_to_others() {
    let (api, shift, stop) = (LeaseApi::default(), Shift::default(), CancellationToken::new());
    let (client, line) = api.client();
    line.deafen();
    let first = start("first", client, &shift, &stop);
    until("the lease", || api.holder().is_some()).await;
    stop.cancel();
    line.mend();
    assert_eq!((first.await.unwrap(), api.holder()), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_is_killed_is_followed_within_the_term() {
    let (api, shift, stop) = (LeaseApi::default(), Shift::default(), CancellationToken::new());
    let first = start("first", api.client().0, &shift, &stop);
    until("the first", || shift.working() == ["first"]).await;
    start("second", api.client().0, &shift, &stop);
    tokio::time::sleep(TERM * 2).await;
    first.abort();
    let killed = Instant::now();
    // The term, and the look at which the second has seen the last renewal.
    tokio::time::timeout(TERM + TERM / 10, async {
        while shift.working() != ["second"] {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    assert!(killed.elapsed() > TERM * 7 / 10, "not before the term can be over: {:?}", killed.elapsed());
}

/// `Shift::begin` fails if the two ever overlap.
#[tokio::test(start_paused = true)]
async fn a_holder_that_cannot_renew_stops_before_another_begins() {
    let (api, shift, stop) = (LeaseApi::default(), Shift::default(), CancellationToken::new());
    let (client, line) = api.client();
    start("first", client, &shift, &stop);
    until("the first", || shift.working() == ["first"]).await;
    start("second", api.client().0, &shift, &stop);
    tokio::time::sleep(TERM).await;
    line.cut();
    until("nobody", || shift.working().is_empty()).await;
    until("the second", || shift.working() == ["second"]).await;
    line.mend();
    tokio::time::sleep(TERM * 3).await;
    assert_eq!(shift.working(), ["second"], "the first waits");
}

#[tokio::test(start_paused = true)]
async fn a_short_silence_of_the_server_stops_nobody() {
    let (api, shift, stop) = (LeaseApi::default(), Shift::default(), CancellationToken::new());
    let (client, line) = api.client();
    start("first", client, &shift, &stop);
    until("the first", || shift.working() == ["first"]).await;
    for _ in 0..5 {
        line.cut();
        tokio::time::sleep(TERM / 4).await;
        line.mend();
        tokio::time::sleep(TERM).await;
    }
    api.delete();
    tokio::time::sleep(TERM).await;
    assert_eq!(*shift.began.lock().unwrap(), ["first"], "it never began anew");
    assert_eq!(api.holder().as_deref(), Some("first"), "and made the lease again that somebody deleted");
}

/// `Shift::begin` fails if the second makes the lease that the first has held a moment ago.
#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_deletes_is_its_holder_s_still() {
    let (api, shift, stop) = (LeaseApi::default(), Shift::default(), CancellationToken::new());
    let first = start("first", api.client().0, &shift, &stop);
    until("the first", || shift.working() == ["first"]).await;
    start("second", api.client().0, &shift, &stop);
    for _ in 0..10 {
        tokio::time::sleep(TERM / 10).await;
        api.delete();
        until("the lease", || api.holder().as_deref() == Some("first")).await;
    }
    first.abort();
    api.delete();
    until("the second", || shift.working() == ["second"]).await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_can_be_stopped() {
    let (api, shift, stop) = (LeaseApi::default(), Shift::default(), CancellationToken::new());
    start("first", api.client().0, &shift, &CancellationToken::new());
    until("the first", || shift.working() == ["first"]).await;
    let second = start("second", api.client().0, &shift, &stop);
    tokio::time::sleep(TERM).await;
    stop.cancel();
    assert_eq!(second.await.unwrap(), None);
    assert_eq!(api.holder().as_deref(), Some("first"));
}

const WANTS: &str = "underpass.dev/wants";

/// An office that is taken by whoever wants it at that time.
#[derive(Clone)]
struct Reluctant {
    wants: Arc<Mutex<Stands>>,
    /// How often it was asked whether it does.
    asked: Arc<AtomicUsize>,
    /// When the renewals were asked for.
    renewed: Arc<Mutex<Vec<Instant>>>,
    waited_for: Arc<Mutex<Vec<String>>>,
}

impl Reluctant {
    fn new(wants: Stands) -> Self {
        let (asked, renewed, waited_for) = Default::default();
        Self { wants: Arc::new(Mutex::new(wants)), asked, renewed, waited_for }
    }

    fn now_wants(&self, wants: Stands) {
        *self.wants.lock().unwrap() = wants;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Office for Reluctant {
    fn words(&self) -> &'static Words {
        &Words { waits: "waits", leads: "leads", goes_on: "goes on", is_replaced: "replaced", is_silenced: "silenced" }
    }

    async fn stands(&mut self) -> Stands {
        self.asked.fetch_add(1, Ordering::Relaxed);
        *self.wants.lock().unwrap()
    }

    fn mark(&self, annotations: &mut BTreeMap<String, String>) {
        annotations.insert(WANTS.to_owned(), format!("{:?}", self.wants.lock().unwrap()));
    }

    fn holds(&self, asked: Instant) {
        self.renewed.lock().unwrap().push(asked);
    }

    fn waits_for(&mut self, holder: &str) {
        self.waited_for.lock().unwrap().push(holder.to_owned());
    }

    fn troubled(&self, _why: &dyn fmt::Display) {}

    fn lost(&self) {}
}

#[tokio::test(start_paused = true)]
async fn who_does_not_stand_takes_nothing_and_who_holds_is_not_asked_again() {
    let (api, office, stop) = (LeaseApi::default(), Reluctant::new(Stands::No), CancellationToken::new());
    let (client, mut standing, stopped) = (api.client().0, office.clone(), stop.clone());
    let leading =
        tokio::spawn(async move { lead(&client, seat("only"), &mut standing, &stopped, || stopped.cancelled()).await });
    tokio::time::sleep(TERM * 2).await;
    assert_eq!(api.holder(), None);
    office.now_wants(Stands::Yes);
    until("the lease", || api.holder().as_deref() == Some("only")).await;
    assert_eq!(api.annotation(WANTS).as_deref(), Some("Yes"), "marked when it was taken");
    office.now_wants(Stands::No);
    tokio::time::sleep(TERM * 2).await;
    assert_eq!(api.holder().as_deref(), Some("only"));
    assert_eq!(api.annotation(WANTS).as_deref(), Some("No"), "and at every renewal");
    let renewed = office.renewed.lock().unwrap().clone();
    assert!(renewed.len() >= 7 && renewed.is_sorted(), "{renewed:?}");
    stop.cancel();
    assert_eq!(leading.await.unwrap(), Some(()));
    assert_eq!(api.holder(), None);
}

/// One that has waited for a holder that is dead by now, and could have the lease for the first time at the moment at which this returns.
async fn heir(office: &Reluctant, api: &LeaseApi) -> Line {
    let (shift, (client, line)) = (Shift::default(), api.client());
    let dead = start("dead", api.client().0, &shift, &CancellationToken::new());
    until("the first", || shift.working() == ["dead"]).await;
    dead.abort();
    let (mut standing, forever) = (office.clone(), CancellationToken::new());
    line.forbid_writes();
    tokio::spawn(async move { lead(&client, seat("heir"), &mut standing, &forever, || forever.cancelled()).await });
    until("the end of the term", || office.asked() > 0).await;
    line
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_over_stays_over_when_the_write_fails_that_would_take_it() {
    let (api, office) = (LeaseApi::default(), Reluctant::new(Stands::Yes));
    let line = heir(&office, &api).await;
    line.mend();
    let mended = Instant::now();
    until("the heir", || api.holder().as_deref() == Some("heir")).await;
    assert!(mended.elapsed() < TERM / 5, "at the next attempt, not a term later: {:?}", mended.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_over_stays_over_for_who_does_not_stand_at_once() {
    let (api, office) = (LeaseApi::default(), Reluctant::new(Stands::No));
    let line = heir(&office, &api).await;
    line.mend();
    office.now_wants(Stands::Yes);
    let wanted = Instant::now();
    until("the heir", || api.holder().as_deref() == Some("heir")).await;
    assert!(wanted.elapsed() < TERM / 5, "when it is asked again, not a term later: {:?}", wanted.elapsed());
}

/// No watch tells it anything here.
#[tokio::test(start_paused = true)]
async fn who_does_not_stand_yet_is_asked_at_a_pace_of_its_own_until_another_has_the_lease() {
    const PAUSE: Duration = Duration::from_millis(20);
    let (api, shift, office) = (LeaseApi::default(), Shift::default(), Reluctant::new(Stands::NotYet(PAUSE)));
    let line = heir(&office, &api).await;
    let before = office.asked();
    tokio::time::sleep(PAUSE * 50).await;
    assert!((40..60).contains(&(office.asked() - before)), "{}", office.asked() - before);
    let other = start("other", api.client().0, &shift, &CancellationToken::new());
    until("the other", || shift.working() == ["other"]).await;
    until("the heir to know", || office.waited_for.lock().unwrap().last().is_some_and(|holder| holder == "other"))
        .await;
    let before = office.asked();
    line.mend();
    office.now_wants(Stands::Yes);
    tokio::time::sleep(TERM * 2).await;
    assert_eq!((office.asked(), api.holder().as_deref()), (before, Some("other")));
    other.abort();
    tokio::time::sleep(TERM + TERM / 5).await;
    assert_eq!(api.holder().as_deref(), Some("heir"), "it has seen every renewal");
}
