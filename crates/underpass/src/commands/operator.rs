//! `underpass operator`: the controllers on a cluster, as one of several replicas.

use std::path::Path;

use tokio_util::sync::CancellationToken;
use tracing::info;
use underpass_operator::leadership::{self, Seat};
use underpass_operator::{Health, Pace, Settings, host};
use underpass_plan::proxy_deployment::Site;

use super::controllers::until_signalled;
use crate::args::Operator;
use crate::exit::Ended;
use crate::own_pages::OwnPages;
use crate::server;
use crate::signals::Signals;

const LEASE: &str = "underpass-operator";
/// Where it is installed, unless somebody chose another place.
const USUAL_NAMESPACE: &str = "underpass-system";
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

pub(crate) async fn run(args: Operator) -> anyhow::Result<Ended> {
    let mut signals = Signals::listen()?;
    let client = server::from_file_or_pod(args.kubeconfig).await?;
    let health = Health::default();
    let pages = OwnPages::bind(args.listen, &health).await?;
    let seat = seat(|name| std::env::var(name).ok(), Path::new(SERVICE_ACCOUNT));
    info!(listen = %pages.address(), lease = %format_args!("{}/{}", seat.namespace, seat.name), candidate = seat.candidate, "operator started");
    let metrics = pages.metrics();
    let (pace, first_look) = (Pace::default(), None);
    let site = Site { image: args.image, openshift: args.openshift };
    let settings = Settings { machine: None, cluster: None, pace, metrics, health: health.clone(), first_look, seat };
    // Answers for as long as the process does anything, and also while it ends.
    let _pages = tokio::spawn(pages.serve());
    let stop = CancellationToken::new();
    let work = async {
        let is_cluster = tokio::select! {
            is_cluster = underpass_operator::usable(&client, &health) => is_cluster,
            () = stop.cancelled() => return Ok(()),
        };
        let cluster = is_cluster.then_some(site);
        Ok(underpass_operator::run(client.clone(), Settings { cluster, ..settings }, stop.clone()).await?)
    };
    let ended = until_signalled(work, &stop, &mut signals).await;
    info!("operator ended");
    ended
}

/// Which lease the replicas share, and the name of this one.
fn seat(variable: impl Fn(&str) -> Option<String>, service_account: &Path) -> Seat {
    let said = |name| variable(name).filter(|value| !value.is_empty());
    let of_account = || std::fs::read_to_string(service_account.join("namespace")).ok();
    let namespace = said("POD_NAMESPACE").or_else(of_account).unwrap_or_else(|| USUAL_NAMESPACE.to_owned());
    let candidate = leadership::candidate(&said("POD_NAME").unwrap_or_else(host));
    let (namespace, name) = (namespace.trim().to_owned(), LEASE.to_owned());
    Seat { namespace, name, candidate, terms: leadership::CONTROLLERS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lease_is_in_the_pods_own_namespace() {
        let folder = tempfile::tempdir().unwrap();
        let namespace = |variable: Option<&str>| seat(|_| variable.map(str::to_owned), folder.path()).namespace;
        assert_eq!(namespace(None), "underpass-system");
        std::fs::write(folder.path().join("namespace"), "of-the-account\n").unwrap();
        assert_eq!(namespace(None), "of-the-account");
        assert_eq!(namespace(Some("")), "of-the-account");
        assert_eq!(namespace(Some("said")), "said");
    }

    #[test]
    fn two_processes_of_one_pod_are_two_candidates() {
        let candidate =
            || seat(|name| (name == "POD_NAME").then(|| "pod-1".to_owned()), Path::new("/nowhere")).candidate;
        assert!(candidate().starts_with("pod-1_"), "{}", candidate());
        assert_ne!(candidate(), candidate());
    }
}
