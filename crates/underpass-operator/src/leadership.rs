//! Work that one process of many does: the one that holds a Lease. What the work is, and what else it takes to stand for it, is an
//! [`Office`].
//!
//! Nobody compares clocks. A candidate takes a lease over when it has not changed for its whole term by the candidate's own clock; the
//! holder stops working some time before that ([`Terms`]), counted from before it asked. So there is always a time
//! in which nobody works between two who do. A holder that ends in order gives the lease back, and the next one need not wait.
//!
//! Renewing is the same step as taking (read, decide, write with the version that was read), but that a holder has read what it wrote
//! last: who deletes or edits the lease by hand confuses nobody, except a candidate that begins while it is not there. A watch alone was
//! rejected, because it hides that the server is gone; there is one that says when to look.

mod news;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::core::response::Status;
use kube::{Api, Client};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::answer::Answer;

/// Which lease, and who wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    pub namespace: String,
    pub name: String,
    /// Told to those who wait. No two processes that run may have the same.
    pub candidate: String,
    pub terms: Terms,
}

/// How long a lease counts, and what is done in that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Nobody else takes a lease for so long after its last renewal; whole seconds.
    pub term: Duration,
    /// How much longer than that a candidate waits, for what a holder leaves to others to end when it cannot do so itself.
    pub grace: Duration,
    /// When a holder renews it again, counted from before it last asked, as below.
    pub renew_after: Duration,
    /// When a holder that cannot renew it stops working: well before the term is over.
    pub stop_after: Duration,
}

/// What a lease is for: what the log says of it, who stands for it, and who is told how it goes.
pub trait Office: Send {
    fn words(&self) -> &'static Words;

    /// Whether this process takes the lease, which it could have now. Not asked of a holder who renews it.
    fn stands(&mut self) -> impl Future<Output = Stands> + Send {
        async { Stands::Yes }
    }

    /// What is to be known of its holder beside who it is: annotations of the lease, at every write of it.
    fn mark(&self, _annotations: &mut BTreeMap<String, String>) {}

    /// The lease is held: newly, or still. Nobody else takes it for a term and the grace, from `asked` on.
    fn holds(&self, asked: Instant);

    fn waits_for(&mut self, holder: &str);

    /// The API server cannot be worked with.
    fn troubled(&self, why: &dyn fmt::Display);

    /// The lease is lost without anybody having it instead.
    fn lost(&self);
}

/// What an office says to a lease that could be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stands {
    Yes,
    /// It is asked again at the pace of the lease.
    No,
    /// What is in the way may go at any moment: it is asked again after this time, if nobody else has taken the lease by then.
    NotYet(Duration),
}

/// What the log says when something changes.
#[derive(Debug)]
pub struct Words {
    /// Another process has the lease.
    pub waits: &'static str,
    /// This one has it now.
    pub leads: &'static str,
    /// This one had it all the time, and can renew it again.
    pub goes_on: &'static str,
    /// Another process has taken it from this one.
    pub is_replaced: &'static str,
    /// It could not be renewed in time.
    pub is_silenced: &'static str,
}

/// Long enough for a busy machine and a restarting server, short enough to wait for.
pub const TERM: Duration = Duration::from_secs(15);

/// Of whoever works for a whole API server.
pub const CONTROLLERS: Terms = Terms {
    term: TERM,
    grace: Duration::ZERO,
    renew_after: Duration::from_millis(3750),
    stop_after: Duration::from_secs(10),
};

/// A request to a server that works takes less, on a busy day too.
const LEAST_PATIENCE: Duration = Duration::from_millis(500);

/// Between the host in the name of a candidate and the rest of it. Names of hosts and pods have none.
const AFTER_HOST: char = '_';

/// A name that tells people where to look, and that no other process has.
pub fn candidate(host: &str) -> String {
    format!("{host}{AFTER_HOST}{}{AFTER_HOST}{:08x}", std::process::id(), rand::random::<u32>())
}

/// The host or pod in the name of a candidate.
pub fn host_of(candidate: &str) -> &str {
    candidate.split(AFTER_HOST).next().unwrap_or(candidate)
}

/// Who holds the lease of that name, if anybody, as far as a single look can tell. The clocks of two machines are compared here, which
/// is good enough for a sentence and for nothing else.
pub async fn holder(client: &Client, namespace: &str, name: &str) -> Result<Option<String>, Answer> {
    Ok(written(client, namespace, name).await?.and_then(|spec| holder_at(spec, Timestamp::now())))
}

/// The same, in whichever namespace a lease of that name is held.
pub async fn holder_anywhere(client: &Client, name: &str) -> Result<Option<String>, Answer> {
    let mut all = written_anywhere(client, name).await?.into_iter();
    Ok(all.find_map(|spec| holder_at(spec, Timestamp::now())))
}

/// What stands in the lease, whether it counts or not. When it is another at the next look, its holder lives: that takes nobody's clock.
pub async fn written(client: &Client, namespace: &str, name: &str) -> Result<Option<LeaseSpec>, Answer> {
    let lease = Api::<Lease>::namespaced(client.clone(), namespace).get_opt(name).await.map_err(Answer::from)?;
    Ok(lease.and_then(|lease| lease.spec))
}

/// The same, of all leases of that name.
pub async fn written_anywhere(client: &Client, name: &str) -> Result<Vec<LeaseSpec>, Answer> {
    let named = ListParams::default().fields(&format!("metadata.name={name}"));
    let leases = Api::<Lease>::all(client.clone()).list(&named).await.map_err(Answer::from)?;
    Ok(leases.items.into_iter().filter_map(|lease| lease.spec).collect())
}

/// Does `work` while this process holds the lease, from the beginning each time it gets it. `work` ends by itself after `stop`, the
/// lease is kept until it has, and given back; when the lease is lost, `work` is dropped. `None`: stopped while waiting.
pub async fn lead<W: Future>(
    client: &Client,
    seat: Seat,
    office: &mut impl Office,
    stop: &CancellationToken,
    work: impl FnMut() -> W,
) -> Option<W::Output> {
    let changed = Notify::new();
    let candidacy = Candidacy::new(client, seat.clone(), &changed, office);
    tokio::select! {
        done = candidacy.lead(stop, work) => done,
        never = news::follow(client, &seat, &changed) => match never {},
    }
}

struct Candidacy<'a, O> {
    leases: Api<Lease>,
    seat: Seat,
    rival: Option<Rival>,
    /// As it was written last, while it is ours.
    written: Option<Lease>,
    told: Told,
    /// When it may be worth a look.
    changed: &'a Notify,
    office: &'a mut O,
}

/// What another holder last wrote, and since when it stands there by our clock. Known until something else stands there.
#[derive(Debug, Clone)]
struct Rival {
    spec: LeaseSpec,
    since: Instant,
}

/// What is to be done with a lease.
#[derive(Debug, Clone, PartialEq)]
enum Turn {
    Write(Box<Lease>),
    Wait {
        holder: String,
        /// When the lease is over, if nothing changes.
        over: Instant,
    },
}

/// What came of an attempt to have it.
enum Attempt {
    /// Nobody else takes it for a term and the grace, from this time on.
    Ours(Instant),
    Anothers {
        holder: String,
        over: Instant,
    },
    /// It could be ours, and is looked at again after this time.
    Declined(Duration),
}

/// Whether this process is bound to want the lease.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Candidate,
    Holder,
}

/// What was last said, so that it is said once.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    Nothing,
    Waiting(String),
    /// With whoever was waited for before.
    NoAnswer(Option<String>),
    Leading,
}

#[derive(Debug, thiserror::Error)]
enum Unanswered {
    #[error("{0}")]
    Refused(#[from] Answer),
    #[error("no answer within {} seconds", .0.as_secs_f32())]
    TooSlow(Duration),
}

impl Rival {
    /// Whoever else holds the lease by what stands there, whether it is over or not: it stays over if it cannot be taken at once.
    fn seen(seat: &Seat, lease: &Lease, before: Option<Self>, now: Instant) -> Option<Self> {
        // Somebody has made it who knows nothing of its holder.
        let Some(spec) = lease.spec.as_ref().filter(|spec| is_held(spec) || spec.renew_time.is_some()) else {
            return before;
        };
        if !is_held(spec) || is_ours(seat, spec) {
            return None;
        }
        let since = before.filter(|before| before.spec == *spec).map_or(now, |before| before.since);
        Some(Self { spec: spec.clone(), since })
    }
}

impl Unanswered {
    fn trouble(&self) -> String {
        match self {
            Self::Refused(answer) if answer.status().is_some_and(is_verdict) => {
                format!("the API server refuses the lease: {self}")
            }
            Self::Refused(_) | Self::TooSlow(_) => format!("the API server cannot be asked: {self}"),
        }
    }
}

/// Whether it says something about what was asked, and not about the server.
fn is_verdict(status: &Status) -> bool {
    (400..500).contains(&status.code) && ![408, 429].contains(&status.code)
}

impl Told {
    fn without_answer(&self) -> Self {
        match self {
            Self::Waiting(holder) | Self::NoAnswer(Some(holder)) => Self::NoAnswer(Some(holder.clone())),
            Self::Nothing | Self::NoAnswer(None) | Self::Leading => Self::NoAnswer(None),
        }
    }
}

impl<'a, O: Office> Candidacy<'a, O> {
    fn new(client: &Client, seat: Seat, changed: &'a Notify, office: &'a mut O) -> Self {
        let leases = Api::namespaced(client.clone(), &seat.namespace);
        Self { leases, seat, rival: None, written: None, told: Told::Nothing, changed, office }
    }

    async fn lead<W: Future>(mut self, stop: &CancellationToken, mut work: impl FnMut() -> W) -> Option<W::Output> {
        loop {
            let renewed = tokio::select! {
                renewed = self.win() => renewed,
                () = stop.cancelled() => {
                    // What was asked for last may have been granted without our hearing of it.
                    self.give_back().await;
                    return None;
                }
            };
            let done = tokio::select! {
                done = work() => Some(done),
                () = self.hold(renewed) => None,
            };
            if done.is_some() {
                self.give_back().await;
                return done;
            }
        }
    }

    /// Until the lease is ours. Returns a time at which it was not over.
    async fn win(&mut self) -> Instant {
        loop {
            let attempt = self.attempt(Role::Candidate).await;
            let mut next = Instant::now() + self.again();
            match attempt {
                Ok(Attempt::Ours(asked)) => {
                    self.tell(Told::Leading, None);
                    return asked;
                }
                Ok(Attempt::Anothers { holder, over }) => {
                    self.tell(Told::Waiting(holder), None);
                    next = next.min(over);
                }
                Ok(Attempt::Declined(pause)) => next = Instant::now() + pause,
                Err(error) => self.tell(self.told.without_answer(), Some(&error)),
            }
            tokio::select! {
                () = sleep_until(next) => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Renews the lease until it is lost.
    async fn hold(&mut self, mut renewed: Instant) {
        loop {
            sleep_until(renewed + self.seat.terms.renew_after).await;
            let Some(again) = self.renew(renewed + self.seat.terms.stop_after).await else { return };
            renewed = again;
        }
    }

    /// Tries until `give_up`. `None`: the lease is lost.
    async fn renew(&mut self, give_up: Instant) -> Option<Instant> {
        loop {
            let asked = Instant::now();
            let attempt = tokio::select! {
                attempt = self.attempt(Role::Holder) => attempt,
                () = sleep_until(give_up) => Err(Unanswered::TooSlow(give_up - asked)),
            };
            match attempt {
                Ok(Attempt::Ours(asked)) => {
                    self.tell(Told::Leading, None);
                    return Some(asked);
                }
                Ok(Attempt::Anothers { holder, .. }) => {
                    warn!(holder, "{}", self.office.words().is_replaced);
                    self.told = Told::Waiting(holder);
                    return None;
                }
                Ok(Attempt::Declined(_)) => {}
                Err(error) => self.tell(self.told.without_answer(), Some(&error)),
            }
            let again = Instant::now() + self.again();
            if again >= give_up {
                sleep_until(give_up).await;
                self.office.lost();
                warn!("{}", self.office.words().is_silenced);
                return None;
            }
            sleep_until(again).await;
        }
    }

    /// Takes or renews the lease, and tells what came of it.
    async fn attempt(&mut self, role: Role) -> Result<Attempt, Unanswered> {
        let attempt = self.step(role).await;
        match &attempt {
            Ok(Attempt::Ours(asked)) => self.office.holds(*asked),
            Ok(Attempt::Anothers { holder, .. }) => self.office.waits_for(holder),
            Ok(Attempt::Declined(_)) => {}
            Err(error) => self.office.troubled(error),
        }
        attempt
    }

    async fn step(&mut self, role: Role) -> Result<Attempt, Unanswered> {
        loop {
            let lease = match self.written.take() {
                Some(lease) => Some(lease),
                None => self.answered(self.leases.get_opt(&self.seat.name)).await?,
            };
            let mut lease = match turn(&self.seat, &mut self.rival, lease, Instant::now(), Timestamp::now()) {
                Turn::Wait { holder, over } => return Ok(Attempt::Anothers { holder, over }),
                Turn::Write(lease) => lease,
            };
            if role == Role::Candidate {
                match self.office.stands().await {
                    Stands::Yes => {}
                    Stands::No => return Ok(Attempt::Declined(self.again())),
                    Stands::NotYet(pause) => return Ok(Attempt::Declined(pause)),
                }
            }
            let mut marks = lease.metadata.annotations.take().unwrap_or_default();
            self.office.mark(&mut marks);
            lease.metadata.annotations = Some(marks).filter(|marks| !marks.is_empty());
            let (asked, new) = (Instant::now(), lease.metadata.resource_version.is_none());
            let as_given = PostParams::default();
            let written = if new {
                self.answered(self.leases.create(&as_given, &lease)).await
            } else {
                self.answered(self.leases.replace(&self.seat.name, &as_given, &lease)).await
            };
            match written {
                Ok(lease) => {
                    (self.written, self.rival) = (Some(lease), None);
                    return Ok(Attempt::Ours(asked));
                }
                Err(Unanswered::Refused(answer))
                    if answer.status().is_some_and(|status| somebody_was_faster(status, new)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn answered<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, Unanswered> {
        let limit = self.patience();
        let answer = timeout(limit, request).await.map_err(|_| Unanswered::TooSlow(limit))?;
        answer.map_err(|error| Answer::from(error).into())
    }

    /// Best effort: a lease that is not given back is over when its term is.
    async fn give_back(&mut self) {
        self.written = None;
        let release = async {
            let Some(mut lease) = self.leases.get_opt(&self.seat.name).await? else { return Ok(()) };
            let Some(spec) = lease.spec.as_mut().filter(|spec| is_ours(&self.seat, spec)) else { return Ok(()) };
            spec.holder_identity = None;
            self.leases.replace(&self.seat.name, &PostParams::default(), &lease).await.map(|_| ())
        };
        if let Ok(Err(error)) = timeout(self.patience(), release).await {
            warn!(why = %Answer::from(error), "the lease is not given back: others wait until it is over");
        }
    }

    fn tell(&mut self, news: Told, error: Option<&Unanswered>) {
        if news == self.told {
            return;
        }
        let (again, lease, words) = (self.again().as_secs_f32(), &self.seat.name, self.office.words());
        match (&news, &self.told) {
            (Told::Waiting(holder), _) => info!(holder, lease, "{}", words.waits),
            (Told::NoAnswer(_), _) => {
                let trouble = error.map(Unanswered::trouble).unwrap_or_default();
                warn!("{trouble}; trying again every {again} s");
            }
            (Told::Leading, Told::NoAnswer(None)) => info!("{}", words.goes_on),
            (Told::Leading, Told::Waiting(before) | Told::NoAnswer(Some(before))) => info!(before, "{}", words.leads),
            (Told::Leading | Told::Nothing, _) => {}
        }
        self.told = news;
    }

    /// Between two attempts.
    fn again(&self) -> Duration {
        self.seat.terms.term / 10
    }

    /// For one request.
    fn patience(&self) -> Duration {
        (self.seat.terms.term / 5).max(LEAST_PATIENCE)
    }
}

fn turn(seat: &Seat, rival: &mut Option<Rival>, lease: Option<Lease>, now: Instant, time: Timestamp) -> Turn {
    // A lease that somebody has deleted is its holder's still, whoever makes it again.
    if let Some(lease) = &lease {
        *rival = Rival::seen(seat, lease, rival.take(), now);
    }
    if let Some(rival) = rival {
        let over = rival.since + term(&rival.spec) + seat.terms.grace;
        if now < over {
            return Turn::Wait { holder: rival.spec.holder_identity.clone().unwrap_or_default(), over };
        }
    }
    let Some(mut lease) = lease else { return Turn::Write(Box::new(first(seat, time))) };
    lease.spec = Some(renewed(seat, &lease.spec.unwrap_or_default(), time));
    Turn::Write(Box::new(lease))
}

fn first(seat: &Seat, time: Timestamp) -> Lease {
    let metadata = ObjectMeta { name: Some(seat.name.clone()), ..ObjectMeta::default() };
    let spec = LeaseSpec { lease_transitions: Some(0), ..ours(seat, time, time) };
    Lease { metadata, spec: Some(spec) }
}

fn renewed(seat: &Seat, before: &LeaseSpec, time: Timestamp) -> LeaseSpec {
    let transitions = before.lease_transitions.unwrap_or_default();
    match &before.acquire_time {
        Some(MicroTime(since)) if is_ours(seat, before) => {
            LeaseSpec { lease_transitions: Some(transitions), ..ours(seat, *since, time) }
        }
        _ => LeaseSpec { lease_transitions: Some(transitions.saturating_add(1)), ..ours(seat, time, time) },
    }
}

fn ours(seat: &Seat, since: Timestamp, time: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(seat.candidate.clone()),
        lease_duration_seconds: Some(i32::try_from(seat.terms.term.as_secs()).unwrap_or(i32::MAX)),
        acquire_time: Some(MicroTime(since)),
        renew_time: Some(MicroTime(time)),
        ..LeaseSpec::default()
    }
}

fn is_held(spec: &LeaseSpec) -> bool {
    spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty())
}

fn is_ours(seat: &Seat, spec: &LeaseSpec) -> bool {
    spec.holder_identity.as_deref() == Some(seat.candidate.as_str())
}

fn term(spec: &LeaseSpec) -> Duration {
    spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).map_or(TERM, Duration::from_secs)
}

/// Whether another look tells more. A new lease for which there is no place is not found either, and stays so.
fn somebody_was_faster(status: &Status, new: bool) -> bool {
    if new { status.is_already_exists() } else { status.is_conflict() || status.is_not_found() }
}

/// Who holds such a lease, by the same comparison of clocks as in [`holder`].
pub fn holder_at(spec: LeaseSpec, now: Timestamp) -> Option<String> {
    let age = now.duration_since(spec.renew_time.as_ref()?.0);
    let over = Duration::try_from(age).is_ok_and(|age| age > term(&spec));
    spec.holder_identity.filter(|holder| !holder.is_empty() && !over)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::UNIX_EPOCH;

    fn seat(candidate: &str) -> Seat {
        Seat { namespace: "n".into(), name: "l".into(), candidate: candidate.into(), terms: CONTROLLERS }
    }

    fn after(seconds: u64) -> Timestamp {
        START + Duration::from_secs(seconds)
    }

    #[track_caller]
    fn written(turn: Turn) -> Lease {
        match turn {
            Turn::Write(lease) => *lease,
            Turn::Wait { holder, .. } => panic!("waits for {holder}"),
        }
    }

    #[track_caller]
    fn assert_waits(turn: &Turn, until: Instant) {
        assert_eq!(*turn, Turn::Wait { holder: "a".to_owned(), over: until });
    }

    #[test]
    fn the_first_makes_the_lease_and_renews_it() {
        let lease = written(turn(&seat("a"), &mut None, None, Instant::now(), START));
        let next = written(turn(&seat("a"), &mut None, Some(lease), Instant::now(), after(5)));
        let spec = next.spec.unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some("a"));
        assert_eq!((spec.acquire_time.unwrap().0, spec.renew_time.unwrap().0), (START, after(5)));
        assert_eq!((spec.lease_duration_seconds, spec.lease_transitions), (Some(15), Some(0)));
    }

    /// The other's clock is a day behind: it does not matter.
    #[test]
    fn a_term_counts_from_when_the_candidate_saw_the_change() {
        let (now, later) = (Instant::now(), |seconds| Duration::from_secs(seconds));
        let lease = first(&seat("a"), START);
        let mut rival = None;
        let mut look = |lease: &Lease, seconds| {
            turn(&seat("b"), &mut rival, Some(lease.clone()), now + later(seconds), after(86_400 + seconds))
        };
        assert_waits(&look(&lease, 0), now + later(15));
        assert_waits(&look(&lease, 14), now + later(15));
        let renewed = Lease { spec: Some(renewed(&seat("a"), lease.spec.as_ref().unwrap(), after(10))), ..lease };
        // It was renewed meanwhile.
        assert_waits(&look(&renewed, 15), now + later(30));
        assert_waits(&look(&renewed, 29), now + later(30));
        let spec = written(look(&renewed, 30)).spec.unwrap();
        assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("b"), Some(1)));
        assert_eq!(spec.acquire_time.unwrap().0, after(86_430));
    }

    #[test]
    fn a_grace_comes_on_top_of_the_term() {
        let (now, grace) = (Instant::now(), Duration::from_millis(350));
        let (patient, mut rival) = (Seat { terms: Terms { grace, ..CONTROLLERS }, ..seat("b") }, None);
        let over = now + Duration::from_secs(15) + grace;
        let mut look = |at| turn(&patient, &mut rival, Some(first(&seat("a"), START)), at, START);
        assert_waits(&look(now), over);
        assert_waits(&look(over - Duration::from_millis(1)), over);
        assert_eq!(written(look(over)).spec.unwrap().holder_identity.as_deref(), Some("b"));
    }

    /// What would have taken it has failed: it is as over as before, until its holder has written again.
    #[test]
    fn a_lease_that_is_over_is_so_at_the_next_look() {
        let (now, lease, mut rival) = (Instant::now(), first(&seat("a"), START), None);
        let mut look = |lease: &Lease, seconds| {
            turn(&seat("b"), &mut rival, Some(lease.clone()), now + Duration::from_secs(seconds), START)
        };
        assert_waits(&look(&lease, 0), now + Duration::from_secs(15));
        written(look(&lease, 15));
        written(look(&lease, 16));
        let renewed = Lease { spec: Some(renewed(&seat("a"), lease.spec.as_ref().unwrap(), after(10))), ..lease };
        assert_waits(&look(&renewed, 17), now + Duration::from_secs(32));
    }

    /// As the operator makes it that somebody has deleted: its holder works on, and takes it again.
    #[test]
    fn a_lease_that_nobody_ever_had_does_not_make_its_holder_forgotten() {
        let (now, lease, mut rival) = (Instant::now(), first(&seat("a"), START), None);
        let mut look = |spec: Option<LeaseSpec>, seconds| {
            let found = Lease { spec, ..lease.clone() };
            turn(&seat("b"), &mut rival, Some(found), now + Duration::from_secs(seconds), START)
        };
        let held = lease.spec.clone().unwrap();
        assert_waits(&look(Some(held.clone()), 0), now + Duration::from_secs(15));
        assert_waits(&look(None, 1), now + Duration::from_secs(15));
        assert_waits(&look(Some(LeaseSpec::default()), 2), now + Duration::from_secs(15));
        written(look(Some(LeaseSpec { holder_identity: None, ..held }), 3));
    }

    #[test]
    fn who_takes_over_after_a_silence_is_not_said_to_have_had_it() {
        let waited = Told::NoAnswer(Some("a".to_owned()));
        assert_eq!(Told::Waiting("a".to_owned()).without_answer(), waited);
        assert_eq!(waited.without_answer(), waited);
        assert_eq!(Told::Leading.without_answer(), Told::NoAnswer(None));
    }

    #[test]
    fn what_the_server_says_is_not_told_as_silence() {
        let status = Status { code: 403, message: "cannot create leases".into(), ..Status::default() };
        let refused = Unanswered::from(Answer::from(kube::Error::Api(Box::new(status))));
        assert_eq!(refused.trouble(), "the API server refuses the lease: cannot create leases");
        let status = Status { code: 503, message: "the leader changed".into(), ..Status::default() };
        let busy = Unanswered::from(Answer::from(kube::Error::Api(Box::new(status))));
        assert_eq!(busy.trouble(), "the API server cannot be asked: the leader changed");
        let silent = Unanswered::TooSlow(Duration::from_millis(500));
        assert_eq!(silent.trouble(), "the API server cannot be asked: no answer within 0.5 seconds");
    }

    #[test]
    fn the_name_of_a_candidate_tells_its_pod() {
        assert_eq!(host_of(&candidate("proxy-5d9c7-x2x4k")), "proxy-5d9c7-x2x4k");
        assert_eq!(host_of("made-by-hand"), "made-by-hand");
    }

    #[test]
    fn a_lease_that_was_given_back_is_free_at_once() {
        let mut lease = first(&seat("a"), START);
        lease.spec.as_mut().unwrap().holder_identity = None;
        let patient = Seat { terms: Terms { grace: Duration::from_secs(1), ..CONTROLLERS }, ..seat("b") };
        let spec = written(turn(&patient, &mut None, Some(lease), Instant::now(), START)).spec.unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some("b"));
    }

    #[test]
    fn a_reader_is_told_who_holds_it_while_it_counts() {
        let spec = first(&seat("a"), START).spec.unwrap();
        assert_eq!(holder_at(spec.clone(), after(15)).as_deref(), Some("a"));
        assert_eq!(holder_at(spec.clone(), after(16)), None);
        assert_eq!(holder_at(LeaseSpec { holder_identity: None, ..spec }, START), None);
    }
}
