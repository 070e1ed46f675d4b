//! Names on a network: each belongs to the oldest object that asks for it, since an engine gives a name to all and answers with any.

use k8s_openapi::jiff::Timestamp;
use underpass_resources::ContainerNetworkTunnelProxy;

use super::observed::Observed;

/// An alias of this object, and the object that has it already.
pub(super) struct Taken<'a> {
    pub(super) alias: &'a str,
    pub(super) owner: &'a str,
}

pub(super) fn taken(observed: &Observed) -> Option<Taken<'_>> {
    let own = &observed.object;
    let mut older: Vec<_> = observed.neighbours.iter().filter(|other| seniority(other) < seniority(own)).collect();
    older.sort_by_key(|other| seniority(other));
    own.spec.aliases.iter().find_map(|alias| {
        let owner = older.iter().find(|other| other.spec.aliases.iter().any(|other| other == alias));
        owner.map(|owner| Taken { alias, owner: seniority(owner).1 })
    })
}

/// Times have whole seconds: names decide between objects of one file.
fn seniority(object: &ContainerNetworkTunnelProxy) -> (Option<Timestamp>, &str) {
    let metadata = &object.metadata;
    (metadata.creation_timestamp.as_ref().map(|time| time.0), metadata.name.as_deref().unwrap_or_default())
}
