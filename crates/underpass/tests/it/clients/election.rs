//! A Lease held by one of many: what every election on Kubernetes is built from, done by hand.

use futures::future::join_all;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

use super::NAMESPACE;

const TERM: i32 = 15;

fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), NAMESPACE)
}

/// One attempt at `now`: makes the lease, takes it when its term is over, renews it when it is ours. True when we hold it then.
async fn attempt(api: &Api<Lease>, candidate: &str, now: Timestamp) -> bool {
    let written = match api.get_opt("election").await.unwrap() {
        None => {
            let metadata = ObjectMeta { name: Some("election".to_owned()), ..ObjectMeta::default() };
            let spec = Some(term(candidate, now, now, 0));
            api.create(&PostParams::default(), &Lease { metadata, spec }).await
        }
        Some(mut lease) => {
            let before = lease.spec.clone().unwrap();
            let ours = before.holder_identity.as_deref() == Some(candidate);
            if !ours && before.renew_time.unwrap().0 + SignedDuration::from_secs(TERM.into()) > now {
                return false;
            }
            let changes = before.lease_transitions.unwrap_or_default() + i32::from(!ours);
            let since = if ours { before.acquire_time.unwrap().0 } else { now };
            lease.spec = Some(term(candidate, since, now, changes));
            api.replace("election", &PostParams::default(), &lease).await
        }
    };
    match written {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == 409 => false,
        Err(error) => panic!("neither won nor lost: {error}"),
    }
}

fn term(holder: &str, since: Timestamp, now: Timestamp, transitions: i32) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(TERM),
        acquire_time: Some(MicroTime(since)),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(transitions),
        ..LeaseSpec::default()
    }
}

/// Everybody at once; the names of those who believe that they hold it.
async fn everybody(api: &Api<Lease>, now: Timestamp) -> Vec<String> {
    let attempts = (0..16).map(|number| {
        let (api, name) = (api.clone(), format!("candidate-{number}"));
        tokio::spawn(async move { attempt(&api, &name, now).await.then_some(name) })
    });
    join_all(attempts).await.into_iter().filter_map(Result::unwrap).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_candidates_one_leads_and_is_followed_by_one() {
    let server = crate::up();
    let api = leases(&server.client().await);
    let start: Timestamp = "2026-01-01T00:00:00.123456Z".parse().unwrap();

    let first = everybody(&api, start).await;
    assert_eq!(first.len(), 1, "{first:?}");
    let within = start + SignedDuration::from_secs(5);
    assert_eq!(everybody(&api, within).await, first, "within its term it is renewed by its holder only");
    let lease = api.get("election").await.unwrap().spec.unwrap();
    assert_eq!((lease.acquire_time.unwrap().0, lease.renew_time.unwrap().0), (start, within), "to the microsecond");

    for round in 1..=5 {
        let after = within + SignedDuration::from_secs(i64::from(TERM + 1) * round);
        let next = everybody(&api, after).await;
        assert_eq!(next.len(), 1, "when the term is over exactly one takes it: {next:?}");
        let lease = api.get("election").await.unwrap().spec.unwrap();
        assert_eq!(lease.holder_identity.as_ref(), next.first());
    }
}
