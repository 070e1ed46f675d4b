//! Work that one process of many does: the one that holds a Lease.
//!
//! Nobody compares clocks. A candidate takes a lease over when it has not changed for its whole term by the candidate's own clock; the
//! holder stops working when it has not renewed for two thirds of the term, counted from before it asked. So there is always a time
//! in which nobody works between two who do. A holder that ends in order gives the lease back, and the next one need not wait.
//!
//! Renewing is the same step as taking (read, decide, write with the version that was read): who deletes or edits the lease by hand
//! confuses nobody. A watch was rejected: it would tell of a release a second earlier, and hide that the server is gone.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::core::response::Status;
use kube::{Api, Client};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::answer::Answer;
use crate::health::Health;

/// Which lease, and who wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    pub namespace: String,
    pub name: String,
    /// Told to those who wait. No two processes that run may have the same.
    pub candidate: String,
    /// How long a lease counts that nobody renews; whole seconds, three at least.
    pub term: Duration,
}

/// Long enough for a busy machine and a restarting server, short enough to wait for.
pub const TERM: Duration = Duration::from_secs(15);

/// A name that tells people where to look, and that no other process has.
pub fn candidate(host: &str) -> String {
    format!("{host}_{}_{:08x}", std::process::id(), rand::random::<u32>())
}

/// Who holds the lease of that name, if anybody, as far as a single look can tell. The clocks of two machines are compared here, which
/// is good enough for a sentence and for nothing else.
pub async fn holder(client: &Client, namespace: &str, name: &str) -> Result<Option<String>, Answer> {
    let lease = Api::<Lease>::namespaced(client.clone(), namespace).get_opt(name).await.map_err(Answer::from)?;
    Ok(lease.and_then(|lease| lease.spec).and_then(|spec| holder_at(spec, Timestamp::now())))
}

/// The same, in whichever namespace a lease of that name is held.
pub async fn holder_anywhere(client: &Client, name: &str) -> Result<Option<String>, Answer> {
    let named = ListParams::default().fields(&format!("metadata.name={name}"));
    let leases = Api::<Lease>::all(client.clone()).list(&named).await.map_err(Answer::from)?;
    let mut specs = leases.items.into_iter().filter_map(|lease| lease.spec);
    Ok(specs.find_map(|spec| holder_at(spec, Timestamp::now())))
}

/// Does `work` while this process holds the lease, from the beginning each time it gets it. `work` ends by itself after `stop`, the
/// lease is kept until it has, and given back; when the lease is lost, `work` is dropped. `None`: stopped while waiting.
pub async fn lead<W: Future>(
    client: &Client,
    seat: Seat,
    health: &Health,
    stop: &CancellationToken,
    mut work: impl FnMut() -> W,
) -> Option<W::Output> {
    let mut candidacy = Candidacy::new(client, seat, health.clone());
    loop {
        let renewed = tokio::select! {
            renewed = candidacy.win() => renewed,
            () = stop.cancelled() => return None,
        };
        let done = tokio::select! {
            done = work() => Some(done),
            () = candidacy.hold(renewed) => None,
        };
        if done.is_some() {
            candidacy.give_back().await;
            return done;
        }
    }
}

struct Candidacy {
    leases: Api<Lease>,
    seat: Seat,
    rival: Option<Rival>,
    told: Told,
    health: Health,
}

/// What another holder last wrote, and since when it stands there by our clock.
#[derive(Debug, Clone)]
struct Rival {
    spec: LeaseSpec,
    since: Instant,
}

/// What is to be done with a lease.
#[derive(Debug, Clone, PartialEq)]
enum Turn {
    Write(Box<Lease>),
    Wait { holder: String },
}

/// What was last said, so that it is said once.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    Nothing,
    Waiting(String),
    NoAnswer,
    Leading,
}

#[derive(Debug, thiserror::Error)]
enum Unanswered {
    #[error("{0}")]
    Refused(#[from] Answer),
    #[error("no answer within {} seconds", .0.as_secs_f32())]
    TooSlow(Duration),
}

impl Candidacy {
    fn new(client: &Client, seat: Seat, health: Health) -> Self {
        let leases = Api::namespaced(client.clone(), &seat.namespace);
        Self { leases, seat, rival: None, told: Told::Nothing, health }
    }

    /// Until the lease is ours. Returns a time at which it was not over.
    async fn win(&mut self) -> Instant {
        loop {
            let asked = Instant::now();
            match self.attempt().await {
                Ok(None) => {
                    self.tell(Told::Leading, None);
                    return asked;
                }
                Ok(Some(holder)) => self.tell(Told::Waiting(holder), None),
                Err(error) => self.tell(Told::NoAnswer, Some(&error)),
            }
            sleep(self.again()).await;
        }
    }

    /// Renews the lease until it is lost.
    async fn hold(&mut self, mut renewed: Instant) {
        loop {
            sleep_until(renewed + self.seat.term / 3).await;
            let Some(again) = self.renew(renewed + self.seat.term * 2 / 3).await else { return };
            renewed = again;
        }
    }

    /// Tries until `give_up`. `None`: the lease is lost.
    async fn renew(&mut self, give_up: Instant) -> Option<Instant> {
        loop {
            let asked = Instant::now();
            let attempt = tokio::select! {
                attempt = self.attempt() => attempt,
                () = sleep_until(give_up) => Err(Unanswered::TooSlow(give_up - asked)),
            };
            match attempt {
                Ok(None) => {
                    self.tell(Told::Leading, None);
                    return Some(asked);
                }
                Ok(Some(holder)) => {
                    warn!(holder, "the controllers stop here: another process has taken the lease");
                    self.told = Told::Waiting(holder);
                    return None;
                }
                Err(error) => self.tell(Told::NoAnswer, Some(&error)),
            }
            let again = Instant::now() + self.again();
            if again >= give_up {
                sleep_until(give_up).await;
                self.health.lost();
                warn!(
                    "the controllers stop until the API server answers: another process could have taken over by now"
                );
                return None;
            }
            sleep_until(again).await;
        }
    }

    /// Takes or renews the lease. `Some`: it is another's.
    async fn attempt(&mut self) -> Result<Option<String>, Unanswered> {
        let limit = self.patience();
        let attempt = timeout(limit, self.step()).await.unwrap_or(Err(Unanswered::TooSlow(limit)));
        match &attempt {
            Ok(None) => self.health.holds(),
            Ok(Some(holder)) => self.health.waits_for(holder),
            Err(error) => self.health.troubled(error),
        }
        attempt
    }

    async fn step(&mut self) -> Result<Option<String>, Unanswered> {
        loop {
            let lease = self.leases.get_opt(&self.seat.name).await.map_err(Answer::from)?;
            let lease = match turn(&self.seat, &mut self.rival, lease, Instant::now(), Timestamp::now()) {
                Turn::Wait { holder } => return Ok(Some(holder)),
                Turn::Write(lease) => lease,
            };
            let new = lease.metadata.resource_version.is_none();
            let written = if new {
                self.leases.create(&PostParams::default(), &lease).await
            } else {
                self.leases.replace(&self.seat.name, &PostParams::default(), &lease).await
            };
            match written.map_err(Answer::from) {
                Ok(_) => return Ok(None),
                Err(answer) if answer.status().is_some_and(|status| somebody_was_faster(status, new)) => {}
                Err(answer) => return Err(answer.into()),
            }
        }
    }

    /// Best effort: a lease that is not given back is over when its term is.
    async fn give_back(&self) {
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
        let (again, lease) = (self.again().as_secs_f32(), &self.seat.name);
        match (&news, &self.told) {
            (Told::Waiting(holder), _) => info!(
                holder,
                lease,
                "another process runs the controllers of this API server; this one waits and takes over when that one ends"
            ),
            (Told::NoAnswer, _) => {
                let why = error.map(ToString::to_string).unwrap_or_default();
                warn!("the API server cannot be asked: {why}; trying again every {again} s");
            }
            (Told::Leading, Told::NoAnswer) => info!("the API server answers again; the controllers go on"),
            (Told::Leading, Told::Waiting(before)) => info!(before, "the controllers run here now"),
            (Told::Leading | Told::Nothing, _) => {}
        }
        self.told = news;
    }

    /// Between two attempts.
    fn again(&self) -> Duration {
        self.seat.term / 10
    }

    /// For one attempt.
    fn patience(&self) -> Duration {
        self.seat.term / 5
    }
}

fn turn(seat: &Seat, rival: &mut Option<Rival>, lease: Option<Lease>, now: Instant, time: Timestamp) -> Turn {
    let Some(mut lease) = lease else {
        *rival = None;
        return Turn::Write(Box::new(first(seat, time)));
    };
    let spec = lease.spec.take().unwrap_or_default();
    if let Some(holder) = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty() && !is_ours(seat, &spec)) {
        let since = match rival {
            Some(rival) if rival.spec == spec => rival.since,
            _ => now,
        };
        if now.duration_since(since) < term(&spec) {
            let holder = holder.to_owned();
            *rival = Some(Rival { spec, since });
            return Turn::Wait { holder };
        }
    }
    *rival = None;
    lease.spec = Some(renewed(seat, &spec, time));
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
        lease_duration_seconds: Some(i32::try_from(seat.term.as_secs()).unwrap_or(i32::MAX)),
        acquire_time: Some(MicroTime(since)),
        renew_time: Some(MicroTime(time)),
        ..LeaseSpec::default()
    }
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

fn holder_at(spec: LeaseSpec, now: Timestamp) -> Option<String> {
    let age = now.duration_since(spec.renew_time.as_ref()?.0);
    let over = Duration::try_from(age).is_ok_and(|age| age > term(&spec));
    spec.holder_identity.filter(|holder| !holder.is_empty() && !over)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::UNIX_EPOCH;

    fn seat(candidate: &str) -> Seat {
        Seat { namespace: "n".into(), name: "l".into(), candidate: candidate.into(), term: Duration::from_secs(15) }
    }

    fn after(seconds: u64) -> Timestamp {
        START + Duration::from_secs(seconds)
    }

    #[track_caller]
    fn written(turn: Turn) -> Lease {
        match turn {
            Turn::Write(lease) => *lease,
            Turn::Wait { holder } => panic!("waits for {holder}"),
        }
    }

    fn waits_for(holder: &str) -> Turn {
        Turn::Wait { holder: holder.to_owned() }
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
        assert_eq!(look(&lease, 0), waits_for("a"));
        assert_eq!(look(&lease, 14), waits_for("a"));
        let renewed = Lease { spec: Some(renewed(&seat("a"), lease.spec.as_ref().unwrap(), after(10))), ..lease };
        assert_eq!(look(&renewed, 15), waits_for("a"), "it was renewed meanwhile");
        assert_eq!(look(&renewed, 29), waits_for("a"));
        let spec = written(look(&renewed, 30)).spec.unwrap();
        assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("b"), Some(1)));
        assert_eq!(spec.acquire_time.unwrap().0, after(86_430));
    }

    #[test]
    fn a_lease_that_was_given_back_is_free_at_once() {
        let mut lease = first(&seat("a"), START);
        lease.spec.as_mut().unwrap().holder_identity = None;
        let spec = written(turn(&seat("b"), &mut None, Some(lease), Instant::now(), START)).spec.unwrap();
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
