//! What an Infra says of itself: how each component is, and whether all of them work.

use serde_json::{Value, json};
use underpass_resources::Infra;
use underpass_resources::conditions::READY;
use underpass_resources::infra::{ComponentStatus, InfraStatus};

use super::{Component, Observed};
use crate::plan::{Event, Failure};
use crate::ready::Ready;

/// The status to write, unless it is the one that stands, and what is to be told.
pub(super) fn tell(observed: &Observed, proxy: &Component) -> (Option<Value>, Vec<Event>) {
    let infra = &observed.object;
    let stored = infra.status.clone().unwrap_or_default();
    let mut conditions = stored.conditions.clone();
    conditions.retain(|condition| condition.type_ == READY);
    let generation = infra.metadata.generation;
    let event = ready(observed, proxy).record(&mut conditions, generation, observed.now);
    let components = ComponentStatus {
        // Nothing builds them yet.
        dhcp_ready: infra.spec.dhcp().map(|_| false),
        dns_ready: infra.spec.dns().map(|_| false),
        proxy_ready: infra.spec.proxy().map(|_| matches!(proxy, Component::Ready)),
    };
    let status = InfraStatus {
        observed_generation: generation,
        conditions,
        // An API server makes null of an object of which everything is taken back, and refuses that.
        component_status: Some(components).filter(|components| *components != ComponentStatus::default()),
    };
    ((status != stored).then(|| json!(status)), event.into_iter().collect())
}

fn ready(observed: &Observed, proxy: &Component) -> Ready {
    if let Some(Failure { cause, message, .. }) = &observed.failure {
        return Ready::no(cause.as_str(), message.clone());
    }
    match proxy {
        Component::Unspoken => unspoken(&observed.object),
        Component::Taken(place) => Ready::no(
            "NameTaken",
            format!("{place} is somebody else's, and stays as it is: delete or rename it, or rename this Infra"),
        ),
        Component::Leaving(place) => Ready::not_yet("ComponentsLeaving", format!("{place} is being removed")),
        Component::NotReady { place, said } => {
            let said = said.as_deref().unwrap_or("it has not said anything yet about what was asked of it");
            Ready::not_yet("ProxyNotReady", format!("{place} is not ready: {said}"))
        }
        Component::Absent | Component::Ready => others(observed),
    }
}

/// What is missing, so that nothing can be made of it.
fn unspoken(infra: &Infra) -> Ready {
    if infra.spec.domain().is_none() {
        return Ready::no(
            "DomainMissing",
            "the names that lead through the proxy end in clusterName.baseDomain: write dns.clusterName and dns.baseDomain, with enabled: false \
             if no DNS server is wanted",
        );
    }
    let namespace = infra.control_plane_namespace();
    let message = format!(
        "the proxy would lead to Services in namespace {namespace}, and no namespace has a name that long: write proxy.controlPlaneNamespace"
    );
    Ready::no("NamespaceMissing", message)
}

/// With a proxy that works, or none that is wanted.
fn others(observed: &Observed) -> Ready {
    let spec = &observed.object.spec;
    let unbuilt = match (spec.dhcp(), spec.dns()) {
        (Some(_), Some(_)) => "DHCP and DNS servers",
        (Some(_), None) => "DHCP server",
        (None, Some(_)) => "DNS server",
        (None, None) if spec.proxy().is_some() => return Ready::yes("ComponentsReady", "the proxy works"),
        (None, None) => return Ready::yes("NothingWanted", "no component is enabled, and none is there"),
    };
    let proxy = if spec.proxy().is_some() { "the proxy works; " } else { "" };
    Ready::no(
        "NotInThisVersion",
        format!(
            "{proxy}this version of underpass does not build the {unbuilt} yet: a version that can will find this object here"
        ),
    )
}
