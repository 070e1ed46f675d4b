//! What is said about a proxy, from what its Deployment, its pods and their data planes show.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use underpass_resources::conditions::{self, Finding, READY, Truth};
use underpass_resources::proxy_server::{BackendStatus, DataPlane, PodReport, ProxyServerStatus as Status};

use super::network::{self, NETWORK_READY, Network};
use super::{Observed, changes, deployment, own, place, pods};
use crate::place::Place;
use crate::plan::{Event, Severity};
use crate::proxy_server::{DUPLICATE_MATCH, EXCLUDED};

/// What is not ready is looked at after this time, and then later and later: what its pods and its Deployment do is told anyway.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
const AT_LAST: Duration = Duration::from_secs(300);
/// Nobody tells of a network or a namespace that somebody has still to make, nor of what somebody has to remove, and who does that waits.
const AT_LAST_UNTOLD: Duration = Duration::from_secs(30);

/// A lease that was renewed longer ago has no holder. It lasts two seconds; the rest is for clocks that differ.
const LAPSED: SignedDuration = SignedDuration::from_secs(15);

const CONFIGURATION_VALID: &str = "ConfigurationValid";
const BACKENDS_RESOLVED: &str = "BackendsResolved";
const PROGRESSING: &str = "Progressing";
const DEGRADED: &str = "Degraded";
const NAME_TAKEN: &str = "NameTaken";
const GATEWAY_UNUSED: &str = "GatewayUnused";

/// What is written and said.
pub(super) struct Told {
    pub(super) status: Option<Value>,
    pub(super) events: Vec<Event>,
    pub(super) look_again_after: Option<Duration>,
}

/// Everything at once, so that each part can look at the others.
struct Facts<'a> {
    observed: &'a Observed,
    network: &'a Network,
    deployment: Option<Deployment>,
    /// Of pods that are there.
    reports: Vec<&'a PodReport>,
}

pub(super) fn tell(observed: &Observed, network: &Network) -> Told {
    let facts = Facts { observed, network, deployment: deployment(observed), reports: pods::reports(observed) };
    let parts = [facts.network(), facts.configuration(), facts.backends(), facts.progressing(), facts.degraded()];
    let ready = facts.ready(&parts);
    let look_again_after = facts.look_again_after(&ready);
    let findings = std::iter::once(ready).chain(parts);
    let mut told = record(observed, &facts.shown(), findings);
    told.events.extend(facts.assumed_prefix());
    told.events.extend(facts.scaled_back());
    Told { look_again_after, ..told }
}

/// While it is being deleted, with what is still there.
pub(super) fn tell_of_removal(observed: &Observed, left: &[String]) -> Told {
    let mut message = format!("it is being deleted; still there: {}", left.join(", "));
    if let Some(failure) = &observed.failure {
        message = format!("{message}; {}", failure.message);
    }
    let stored = observed.object.status.clone().unwrap_or_default();
    record(observed, &stored, [Finding::no(READY, "Deleting", message)])
}

/// A finding is news when its status or reason is; what is not good news is a warning, unless it only takes its time.
fn record(observed: &Observed, shown: &Status, findings: impl IntoIterator<Item = Finding>) -> Told {
    let generation = observed.object.metadata.generation;
    let stored = observed.object.status.clone().unwrap_or_default();
    let mut status = Status { observed_generation: generation, pods: Vec::new(), ..shown.clone() };
    status.conditions.clone_from(&stored.conditions);
    let mut events = Vec::new();
    for finding in findings {
        let known = conditions::find(&status.conditions, finding.type_)
            .is_some_and(|old| old.status == finding.status.as_str() && old.reason == finding.reason);
        // What a part says and Ready repeats is told once.
        events.extend((!known).then(|| event(&finding)).flatten().filter(|event| !events.contains(event)));
        conditions::set(&mut status.conditions, finding, generation, &Time(observed.now));
    }
    let told = Status { pods: Vec::new(), ..stored };
    let status = (status != told).then(|| json!(status));
    Told { status, events, look_again_after: None }
}

/// Whether it proceeds is for those who look; the rest is told.
fn event(finding: &Finding) -> Option<Event> {
    let good = (finding.status == Truth::True) != (finding.type_ == DEGRADED);
    let severity = match finding.type_ {
        READY if good || is_patient(finding.reason) => Severity::Normal,
        READY => Severity::Warning,
        PROGRESSING => return None,
        _ if good || is_patient(finding.reason) => return None,
        _ => Severity::Warning,
    };
    Some(Event { severity, reason: finding.reason, note: finding.message.clone() })
}

fn is_patient(reason: &str) -> bool {
    ["DeploymentUnavailable", "Attaching", "WaitingForProof", "Deleting"].contains(&reason)
}

impl Facts<'_> {
    fn look_again_after(&self, ready: &Finding) -> Option<Duration> {
        // Who holds a floating address is not told: its Lease is renewed all the time.
        if matches!(self.network, Network::Joined(joined) if joined.floats) {
            return Some(LOOK_AGAIN);
        }
        let untold = matches!(self.network, Network::Unusable(_))
            || ready.reason == NAME_TAKEN
            || !self.missing_namespaces().is_empty();
        let at_last = if untold { AT_LAST_UNTOLD } else { AT_LAST };
        match ready.status {
            // Nor that a definition goes which stood.
            Truth::True => (untold || matches!(self.network, Network::Joined(_))).then_some(at_last),
            _ => Some(self.unready_for().clamp(LOOK_AGAIN, at_last)),
        }
    }

    fn stored_conditions(&self) -> &[Condition] {
        self.observed.object.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default()
    }

    fn unready_for(&self) -> Duration {
        let since =
            conditions::find(self.stored_conditions(), READY).filter(|ready| ready.status != Truth::True.as_str());
        let since = since.map_or(self.observed.now, |ready| ready.last_transition_time.0);
        self.observed.now.duration_since(since).try_into().unwrap_or_default()
    }

    fn network(&self) -> Finding {
        let joined = match self.network {
            Network::Unusable(finding) => return finding.clone(),
            Network::Pods => {
                let message =
                    "no secondary network is asked for: the proxy is reached by its Service and over the pod network";
                return Finding::yes(NETWORK_READY, "PodNetworkOnly", message);
            }
            Network::Joined(joined) => joined,
        };
        let mut remarks = String::new();
        if joined.prefix_is_assumed {
            let size = joined.prefix;
            remarks =
                format!("; nobody says how large its network is, so /{size} is assumed: write serverIP with a prefix");
        }
        let address = joined.address;
        if joined.floats {
            return self.floating(address, &remarks);
        }
        if let Some(pod) = self.static_holder(address) {
            let message = format!("pod {} has {address}{remarks}", pods::name(pod));
            return Finding::yes(NETWORK_READY, "Attached", message);
        }
        // Those of before had been asked for another.
        let asked = joined.annotation();
        let mut running = self.observed.pods.iter().filter(|pod| pods::runs(pod) && pods::asks_for(pod, &asked));
        match running.find(|pod| pods::has_network_status(pod)) {
            Some(pod) => {
                let others: Vec<String> = pods::addresses(pod).iter().map(ToString::to_string).collect();
                let found = if others.is_empty() { "no address".to_owned() } else { others.join(", ") };
                let message = format!(
                    "pod {} has {found} and not serverIP {address}: look at the ipam of its NetworkAttachmentDefinition",
                    pods::name(pod),
                );
                Finding::no(NETWORK_READY, "IPMismatch", message)
            }
            None => self.attaching(address, &remarks),
        }
    }

    /// Told once, before anything else is known of the network.
    fn assumed_prefix(&self) -> Option<Event> {
        let Network::Joined(joined) = self.network else { return None };
        let is_new = conditions::find(self.stored_conditions(), NETWORK_READY).is_none();
        let note = || {
            let (address, prefix) = (joined.address, joined.prefix);
            format!(
                "nobody says how large the network of serverIP is; it is taken for {address}/{prefix}: write it so, or otherwise"
            )
        };
        let event = || Event { severity: Severity::Warning, reason: "PrefixAssumed", note: note() };
        (joined.prefix_is_assumed && is_new).then(event)
    }

    /// Told as long as it is so, which is until it is mended.
    fn scaled_back(&self) -> Option<Event> {
        let Network::Joined(joined) = self.network else { return None };
        let (wished, granted) = (changes::scaled_by_hand(self.observed)?, changes::replicas(self.observed));
        let why = network::refuses_turns(self.observed).filter(|_| wished != granted)?;
        let (address, why) = (joined.address, why.message);
        let note = format!("scaled by hand to {wished}, and back to {granted}, since all would have {address}: {why}");
        Some(Event { severity: Severity::Warning, reason: "ScaledBack", note })
    }

    /// The pod that was given the address for good.
    fn static_holder(&self, address: IpAddr) -> Option<&Pod> {
        self.observed.pods.iter().find(|pod| pods::runs(pod) && pods::addresses(pod).contains(&address))
    }

    fn attaching(&self, address: IpAddr, remarks: &str) -> Finding {
        let stuck = self.stuck_pod().map(|message| format!("; {message}")).unwrap_or_default();
        Finding::no(NETWORK_READY, "Attaching", format!("no pod has {address} yet{remarks}{stuck}"))
    }

    /// One that waits for its network for too long.
    fn stuck_pod(&self) -> Option<String> {
        let pod = self.observed.pods.iter().find(|pod| pods::waits_for_its_network(pod, self.observed.now))?;
        let (namespace, name) = (pod.metadata.namespace.as_deref().unwrap_or_default(), pods::name(pod));
        Some(format!(
            "the node of pod {name} cannot set up its network: kubectl describe pod -n {namespace} {name} says why"
        ))
    }

    /// Of several pods one holds the address, by a Lease.
    fn floating(&self, address: IpAddr, remarks: &str) -> Finding {
        if let Some(mac) = self.lease_annotation(pods::CONFLICT) {
            let message =
                format!("{address} is in use on the network by {mac}: no pod takes it before that one has gone");
            return Finding::no(NETWORK_READY, "IPConflict", message);
        }
        if let Some((pod, took)) = self.late_holder() {
            let message = format!(
                "no pod has {address}: the API server took {took} to renew the Lease that pod {pod} holds, and longer than 0.25s is too late"
            );
            return Finding::no(NETWORK_READY, "APIServerSlow", message);
        }
        // One of before there were several may have it still.
        match self.holder().or_else(|| self.static_holder(address).map(pods::name)) {
            Some(pod) => Finding::yes(NETWORK_READY, "Attached", format!("pod {pod} has {address}{remarks}")),
            None => self.attaching(address, remarks),
        }
    }

    fn lease(&self) -> Option<&Value> {
        own(self.observed, &place::lease(&self.observed.object))
    }

    fn lease_annotation(&self, name: &str) -> Option<&str> {
        self.lease()?["metadata"]["annotations"][name].as_str()
    }

    /// The pod that holds the lease, if it is there and renews it.
    fn holder(&self) -> Option<&str> {
        let spec = &self.lease()?["spec"];
        let renewed: Timestamp = spec["renewTime"].as_str()?.parse().ok()?;
        if self.observed.now.duration_since(renewed) > LAPSED {
            return None;
        }
        let holder = spec["holderIdentity"].as_str()?;
        let names = self.observed.pods.iter().filter(|pod| pods::runs(pod)).map(pods::name);
        names
            .filter(|name| holder.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('_')))
            .max_by_key(|name| name.len())
    }

    /// Who holds the lease and does not have the address, and how long its renewal took.
    fn late_holder(&self) -> Option<(&str, &str)> {
        Some((self.holder()?, self.lease_annotation(pods::LATE)?))
    }

    fn configuration(&self) -> Finding {
        let generation = self.observed.object.metadata.generation;
        if let Some((pod, why)) = self.reports.iter().find_map(|report| Some((&report.name, report.rejected.as_ref()?)))
        {
            let message = format!("the data plane of pod {pod} refuses it, and goes on with the one before: {why}");
            return Finding::no(CONFIGURATION_VALID, "ConfigRejected", message);
        }
        let left_out: Vec<&BackendStatus> = self.shown_backends().filter(|backend| is_left_out(backend)).collect();
        if let Some(first) = left_out.first() {
            let message = format!("left out of the configuration: {}", troubles(first, &left_out));
            let is_duplicate = first.reason.as_deref() == Some(DUPLICATE_MATCH);
            let reason = if is_duplicate { DUPLICATE_MATCH } else { "BackendExcluded" };
            return Finding::no(CONFIGURATION_VALID, reason, message);
        }
        let current =
            |report: &&&PodReport| report.observed_generation == generation && report.configuration_version.is_some();
        // Among several the one that has the address counts: another may be on a node that is gone.
        let counts = |report: &&&PodReport| self.holder().is_none_or(|holder| report.name == holder);
        let mut reports = self.reports.iter().filter(counts).peekable();
        if reports.peek().is_none() || !reports.all(|report| current(&report)) {
            let message = "no data plane has said yet that it runs the newest configuration";
            return Finding::unknown(CONFIGURATION_VALID, "WaitingForProof", message);
        }
        let whose = match self.observed.object.spec.data_plane {
            DataPlane::Envoy => "Envoy configuration",
            DataPlane::Native => "Configuration",
        };
        Finding::yes(CONFIGURATION_VALID, "ConfigApplied", format!("{whose} applied successfully"))
    }

    fn backends(&self) -> Finding {
        let missing = self.missing_namespaces();
        if let Some(namespace) = missing.first() {
            return Finding::no(BACKENDS_RESOLVED, "ServiceNotFound", self.leads_nowhere(namespace));
        }
        for reason in ["ServiceNotFound", "NoEndpoints"] {
            let these = self.backends_with(reason);
            if let Some(first) = these.first() {
                return Finding::no(BACKENDS_RESOLVED, reason, troubles(first, &these));
            }
        }
        if self.reports.is_empty() {
            return Finding::unknown(BACKENDS_RESOLVED, "WaitingForProof", "no pod has said yet what it has found");
        }
        Finding::yes(BACKENDS_RESOLVED, "AllResolved", "every backend that is served has endpoints")
    }

    fn missing_namespaces(&self) -> Vec<String> {
        place::target_namespaces(&self.observed.object).difference(&self.observed.namespaces).cloned().collect()
    }

    fn leads_nowhere(&self, namespace: &str) -> String {
        let backends = self.observed.object.spec.backends.iter();
        let leading = backends.filter(|backend| *backend.target_namespace == *namespace);
        let names: Vec<&str> = leading.map(|backend| &*backend.name).collect();
        format!("there is no namespace {namespace} (targetNamespace of {})", called(&names))
    }

    fn progressing(&self) -> Finding {
        let Some(deployment) = &self.deployment else {
            return Finding::no(PROGRESSING, "NotStarted", "there is no Deployment yet");
        };
        let wanted = pods::wanted(deployment);
        let (updated, ready) = (pods::updated(deployment), pods::ready(deployment));
        if updated >= wanted && ready >= wanted {
            return Finding::no(PROGRESSING, "RolledOut", format!("{ready} of {wanted} pods are ready"));
        }
        Finding::yes(PROGRESSING, "RollingOut", format!("{updated} of {wanted} pods are new, {ready} are ready"))
    }

    fn degraded(&self) -> Finding {
        if let Some(place) = changes::taken(self.observed, self.network) {
            let message = format!(
                "{place} is there already and belongs to somebody else, so that nothing is made: rename this ProxyServer, or remove that one"
            );
            return Finding::yes(DEGRADED, NAME_TAKEN, message);
        }
        if let Network::Unusable(finding) = self.network {
            return Finding::yes(DEGRADED, finding.reason, finding.message.clone());
        }
        if let Some((reason, message)) = pods::trouble(self.deployment.as_ref(), &self.observed.pods) {
            return Finding::yes(DEGRADED, reason, message);
        }
        if let Some(message) = self.stuck_pod() {
            return Finding::yes(DEGRADED, "PodNetworkFailed", message);
        }
        if let Some(namespace) = self.missing_namespaces().first() {
            return Finding::yes(DEGRADED, "BackendsUnavailable", self.leads_nowhere(namespace));
        }
        let is_stuck = |backend: &&BackendStatus| !backend.ready && backend.reason.as_deref() != Some("NotTried");
        let stuck: Vec<&BackendStatus> = self.shown_backends().filter(is_stuck).collect();
        match stuck.first() {
            Some(first) => Finding::yes(DEGRADED, "BackendsUnavailable", troubles(first, &stuck)),
            None => match self.network {
                Network::Joined(joined) if joined.has_no_neighbours() => {
                    Finding::yes(DEGRADED, "PrefixUnsuitable", joined.who_is_answered())
                }
                Network::Joined(joined) if joined.gateway.is_some() && !joined.gateway_is_used => {
                    Finding::yes(DEGRADED, GATEWAY_UNUSED, joined.how_to_use_the_gateway())
                }
                _ => Finding::no(DEGRADED, "AsExpected", "nothing is known to be wrong"),
            },
        }
    }

    fn ready(&self, [network, configuration, _, _, degraded]: &[Finding; 5]) -> Finding {
        let no = |reason, message: &str| Finding::no(READY, reason, message);
        if let Some(failure) = &self.observed.failure {
            return no(failure.cause.as_str(), &failure.message);
        }
        if degraded.reason == NAME_TAKEN || matches!(self.network, Network::Unusable(_)) {
            return no(degraded.reason, &degraded.message);
        }
        let available = self.deployment.as_ref().is_some_and(pods::is_available);
        if !available {
            return match (degraded.status, degraded.reason) {
                (Truth::True, reason)
                    if !["BackendsUnavailable", "PrefixUnsuitable", GATEWAY_UNUSED].contains(&reason) =>
                {
                    no(reason, &degraded.message)
                }
                _ => no("DeploymentUnavailable", "no pod is ready yet"),
            };
        }
        if network.status != Truth::True {
            return no(network.reason, &network.message);
        }
        match (configuration.status, configuration.reason) {
            (Truth::False, "ConfigRejected") => return no("ConfigRejected", &configuration.message),
            (Truth::Unknown, _) => return no("WaitingForProof", &configuration.message),
            _ => {}
        }
        if self.shown_backends().all(|backend| backend.reason.as_deref() == Some("NotTried")) {
            return no("WaitingForProof", "no connection has been tried yet");
        }
        if !self.shown_backends().any(|backend| backend.ready) {
            if self.shown_backends().any(|backend| backend.reason.as_deref() == Some("NotTried")) {
                return no(
                    "WaitingForProof",
                    "not every backend was tried yet, and to none that was a connection crossed",
                );
            }
            return no("NotCrossed", &format!("no connection has been seen to cross yet; {}", degraded.message));
        }
        Finding::yes(READY, "DeploymentReady", "Proxy deployment is ready")
    }

    /// The report that is shown: that of the pod with the address, or of the first that says something.
    fn shown_report(&self) -> Option<&PodReport> {
        let holder = self.holder();
        let of_holder = self.reports.iter().find(|report| Some(report.name.as_str()) == holder);
        of_holder.or_else(|| self.reports.first()).copied()
    }

    fn shown_backends(&self) -> impl Iterator<Item = &BackendStatus> {
        self.shown_report().into_iter().flat_map(|report| &report.backends)
    }

    fn backends_with(&self, reason: &str) -> Vec<&BackendStatus> {
        self.shown_backends().filter(|backend| backend.reason.as_deref() == Some(reason)).collect()
    }

    /// All but conditions.
    fn shown(&self) -> Status {
        let proxy = &self.observed.object;
        let report = self.shown_report();
        let at = |place: Place| own(self.observed, &place).map(|_| place.name);
        let service = own(self.observed, &place::service(proxy));
        let count = |backends: &[BackendStatus]| {
            let served = backends.iter().filter(|backend| !is_left_out(backend)).count();
            i32::try_from(served).unwrap_or(i32::MAX)
        };
        Status {
            config_map_name: at(place::config_map(proxy)),
            deployment_name: at(place::deployment(proxy)),
            service_name: at(place::service(proxy)),
            service_ip: service.and_then(|service| service["spec"]["clusterIP"].as_str()).map(str::to_owned),
            backend_count: Some(report.map_or(0, |report| count(&report.backends))),
            ready_replicas: Some(self.deployment.as_ref().map_or(0, pods::ready)),
            active_pod: self.active_pod(),
            configuration_version: report.and_then(|report| report.configuration_version.clone()),
            backends: report.map(|report| report.backends.clone()).unwrap_or_default(),
            ..Status::default()
        }
    }

    fn active_pod(&self) -> Option<String> {
        if self.late_holder().is_some() {
            return None;
        }
        if let Some(holder) = self.holder() {
            return Some(holder.to_owned());
        }
        let Network::Joined(joined) = self.network else { return None };
        self.static_holder(joined.address).map(|pod| pods::name(pod).to_owned())
    }
}

/// Whether the data plane was not told of it.
fn is_left_out(backend: &BackendStatus) -> bool {
    [Some(DUPLICATE_MATCH), Some(EXCLUDED)].contains(&backend.reason.as_deref())
}

/// The trouble of the first, with all that have the same; others are named alone.
fn troubles(first: &BackendStatus, backends: &[&BackendStatus]) -> String {
    let (same, others): (Vec<_>, Vec<_>) =
        backends.iter().copied().partition(|backend| backend.last_error == first.last_error);
    let why = first.last_error.as_deref().unwrap_or("not served");
    let names =
        |backends: &[&BackendStatus]| called(&backends.iter().map(|backend| backend.name.as_str()).collect::<Vec<_>>());
    let more = if others.is_empty() { String::new() } else { format!("; {} for another reason", names(&others)) };
    format!("{}: {why}{more}", names(&same))
}

/// `backend a`, or `backends a, b and 7 more`.
fn called(backends: &[&str]) -> String {
    const NAMED: usize = 3;
    match backends {
        [one] => format!("backend {one}"),
        [first @ .., _] if first.len() >= NAMED => {
            format!("backends {} and {} more", backends[..NAMED].join(", "), backends.len() - NAMED)
        }
        _ => format!("backends {}", backends.join(", ")),
    }
}
