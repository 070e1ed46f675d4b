//! Names on a network: each belongs to whoever had it first, since an engine gives a name to all and answers with any.
//!
//! Of this instance's objects the oldest has it. Of other people's containers those have it that stand there before ours is made; from
//! then on only a client proxy of another instance that is older than ours: both were made at once, and the younger gives way.

use k8s_openapi::jiff::Timestamp;
use underpass_resources::ContainerNetworkTunnelProxy;

use super::observed::{Bystander, Observed};
use super::{network, short};

/// An alias of this object, and who has it already.
pub(super) struct Taken<'a> {
    pub(super) alias: &'a str,
    owner: Owner<'a>,
}

enum Owner<'a> {
    Object { name: &'a str, of_the_same_second: bool },
    Container(&'a Bystander),
}

impl Taken<'_> {
    pub(super) fn message(&self) -> String {
        let alias = self.alias;
        match &self.owner {
            Owner::Object { name, of_the_same_second } => {
                let why = if *of_the_same_second {
                    "was created in the same second and has the name that comes first"
                } else {
                    "was there first"
                };
                format!(
                    "the alias {alias} on this network belongs to the ContainerNetworkTunnelProxy {name}, which {why}; \
                     delete that one, or create this one again with another alias"
                )
            }
            Owner::Container(container) => format!(
                "the alias {alias} on this network belongs to the container {} ({}), which was there first; \
                 remove that container, or create this object again with another alias",
                container.name,
                short(&container.id)
            ),
        }
    }
}

pub(super) fn taken(observed: &Observed) -> Option<Taken<'_>> {
    by_object(observed).or_else(|| by_container(observed))
}

/// An alias that the client proxy was started with, and that its network does not know any more.
pub(super) fn lost(observed: &Observed) -> Option<&str> {
    let (_, network) = network(observed).ok()?;
    let container = observed.client().filter(|container| !container.aliases.is_empty() && !container.changing)?;
    let there = container.aliases.get(&network).map(Vec::as_slice).unwrap_or_default();
    let has = |alias: &str| there.iter().any(|name| name.eq_ignore_ascii_case(alias));
    observed.object.spec.aliases.iter().map(|alias| &**alias).find(|alias| !has(alias))
}

fn by_object(observed: &Observed) -> Option<Taken<'_>> {
    let own = &observed.object;
    let mut older: Vec<_> = observed.neighbours.iter().filter(|other| seniority(other) < seniority(own)).collect();
    older.sort_by_key(|other| seniority(other));
    own.spec.aliases.iter().find_map(|alias| {
        let owner = older.iter().find(|other| other.spec.aliases.iter().any(|other| other == alias))?;
        let of_the_same_second = seniority(owner).0 == seniority(own).0;
        Some(Taken { alias, owner: Owner::Object { name: seniority(owner).1, of_the_same_second } })
    })
}

fn by_container(observed: &Observed) -> Option<Taken<'_>> {
    let mut before: Vec<_> = observed.bystanders.iter().filter(|container| was_before(observed, container)).collect();
    before.sort_by_key(|container| (container.created, &container.id));
    observed.object.spec.aliases.iter().find_map(|alias| {
        let owner = before.iter().find(|container| answers_to(container, alias))?;
        Some(Taken { alias, owner: Owner::Container(owner) })
    })
}

fn was_before(observed: &Observed, container: &Bystander) -> bool {
    match (observed.started_client(), observed.client()) {
        (None, _) => true,
        // It died, which is another matter.
        (Some(_), None) => false,
        (Some(_), Some(own)) => container.client_proxy && (container.created, &container.id) < (own.created, &own.id),
    }
}

fn answers_to(container: &Bystander, alias: &str) -> bool {
    let mut names = container.aliases.iter().chain([&container.name]);
    names.any(|name| name.eq_ignore_ascii_case(alias))
}

/// Times have whole seconds: names decide between objects of one file.
fn seniority(object: &ContainerNetworkTunnelProxy) -> (Option<Timestamp>, &str) {
    let metadata = &object.metadata;
    (metadata.creation_timestamp.as_ref().map(|time| time.0), metadata.name.as_deref().unwrap_or_default())
}
