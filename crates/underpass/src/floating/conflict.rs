//! Somebody else on the network has the address: from when that counts, and where it is told.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::time::{Instant, timeout};
use tracing::warn;
use underpass_address::Mac;
use underpass_operator::Answer;
use underpass_operator::leadership::{Seat, holder_at};

/// On the lease: who has the address and should not. For whoever shows the state of the address.
pub(crate) const ANNOTATION: &str = "underpass.dev/address-conflict";

/// A holder that was killed or stopped has the address for a little longer than its lease, and that is no conflict. Longer than its
/// kernel can be late.
const PREDECESSOR: Duration = Duration::from_secs(2);
/// How long after an answer the network is asked again, once it is a conflict: doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
const PATIENCE: Duration = Duration::from_secs(2);

/// What was heard of others who have the address.
#[derive(Debug, Default)]
pub(super) struct Claims {
    since: Option<Instant>,
    told: Option<Mac>,
    next: Option<(Instant, Duration)>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Free,
    /// A predecessor may have it still.
    StillThere,
    Conflict {
        mac: Mac,
        new: bool,
    },
}

impl Claims {
    /// Whether the network should be asked again.
    pub(super) fn is_time(&self, now: Instant) -> bool {
        self.next.is_none_or(|(next, _)| now >= next)
    }

    pub(super) fn hear(&mut self, claimant: Option<Mac>, now: Instant) -> Verdict {
        let Some(mac) = claimant else {
            *self = Self::default();
            return Verdict::Free;
        };
        let since = *self.since.get_or_insert(now);
        if now.duration_since(since) < PREDECESSOR {
            return Verdict::StillThere;
        }
        let pause = self.next.map_or(FIRST_PAUSE, |(_, pause)| (pause * 2).min(LONGEST_PAUSE));
        self.next = Some((now + pause, pause));
        let new = self.told.replace(mac) != Some(mac);
        Verdict::Conflict { mac, new }
    }
}

/// The annotation on the lease.
pub(super) struct Notice {
    leases: Api<Lease>,
    name: String,
}

impl Notice {
    pub(super) fn new(client: &Client, seat: &Seat) -> Self {
        Self { leases: Api::namespaced(client.clone(), &seat.namespace), name: seat.name.clone() }
    }

    /// Best effort, once: it is told again when the network is asked again. Whoever takes the lease takes it back.
    pub(super) async fn tell(&self, mac: Mac) {
        let written = timeout(PATIENCE, self.write(mac.to_string())).await;
        let written = written.map_err(|_| "no answer".to_owned());
        if let Err(why) = written.and_then(|written| written.map_err(|error| Answer::from(error).to_string())) {
            warn!(lease = self.name, "the conflict cannot be told in the lease: {why}");
        }
    }

    /// A lease that is not there yet is made, without a holder.
    async fn write(&self, value: String) -> kube::Result<()> {
        let found = self.leases.get_opt(&self.name).await?;
        let (new, mut lease) = (found.is_none(), found.unwrap_or_else(|| nobodys(&self.name)));
        // Another pod was faster: it answers for the address by right.
        if lease.spec.clone().and_then(|spec| holder_at(spec, Timestamp::now())).is_some() {
            return Ok(());
        }
        let annotations = lease.metadata.annotations.get_or_insert_with(BTreeMap::new);
        if annotations.get(ANNOTATION) == Some(&value) {
            return Ok(());
        }
        annotations.insert(ANNOTATION.to_owned(), value);
        let as_given = PostParams::default();
        if new {
            self.leases.create(&as_given, &lease).await.map(drop)
        } else {
            self.leases.replace(&self.name, &as_given, &lease).await.map(drop)
        }
    }
}

fn nobodys(name: &str) -> Lease {
    Lease { metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }, spec: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const OTHER: Mac = Mac([2, 0, 0, 0, 0, 2]);

    #[test]
    fn a_predecessor_has_its_time_and_then_it_is_a_conflict() {
        let (mut claims, start) = (Claims::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(claims.hear(Some(ONE), at(0)), Verdict::StillThere);
        assert!(claims.is_time(at(1)), "it is asked for at the pace of the lease");
        assert_eq!(claims.hear(Some(ONE), at(1999)), Verdict::StillThere);
        assert_eq!(claims.hear(Some(ONE), at(2000)), Verdict::Conflict { mac: ONE, new: true });
        assert!(!claims.is_time(at(2999)) && claims.is_time(at(3000)));
        assert_eq!(claims.hear(Some(ONE), at(3000)), Verdict::Conflict { mac: ONE, new: false });
        assert!(!claims.is_time(at(4999)) && claims.is_time(at(5000)), "twice as long");
        assert_eq!(claims.hear(Some(OTHER), at(5000)), Verdict::Conflict { mac: OTHER, new: true });
    }

    #[test]
    fn silence_ends_a_conflict_and_pauses_do_not_grow_for_ever() {
        let (mut claims, start) = (Claims::default(), Instant::now());
        let mut now = start;
        claims.hear(Some(ONE), now);
        for _ in 0..10 {
            now += Duration::from_secs(60);
            claims.hear(Some(ONE), now);
        }
        assert!(claims.is_time(now + LONGEST_PAUSE));
        assert_eq!(claims.hear(None, now), Verdict::Free);
        assert_eq!(claims.hear(Some(ONE), now), Verdict::StillThere, "the next one has its time again");
    }
}
