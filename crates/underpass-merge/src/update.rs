//! Ownership after a write that is not an apply: what the writer changed is the writer's, whoever had it before.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};
use underpass_schema::Schema;

use crate::compare::{Comparison, compare};
use crate::fieldset::FieldSet;
use crate::managed::{
    DecodeError, Manager, Operation, Owner, OwnerId, Owners, managed_fields, put_managed_fields, take_managed_fields,
};
use crate::path::PathElement;
use crate::walk::collapse;

/// More owners by update than this are rolled into one entry per version, the oldest first.
const MAX_UPDATERS: usize = 10;
const ROLLED_UP: &str = "ancient-changes";

/// Fields that nobody owns: they identify the object or are the server's own.
pub(crate) static UNOWNED: LazyLock<FieldSet> = LazyLock::new(|| {
    FieldSet::from([
        &["apiVersion"][..],
        &["kind"],
        &["metadata"],
        &["metadata", "clusterName"],
        &["metadata", "creationTimestamp"],
        &["metadata", "deletionGracePeriodSeconds"],
        &["metadata", "deletionTimestamp"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "resourceVersion"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
    ])
});

/// Gives what differs between `live` (`None` on create) and `new` to the writer, and takes it from the others.
///
/// `new` still has the `managedFields` of the request: none means those of `live`, a list of its own replaces them (but not
/// through a subresource), and an empty list or `[{}]` resets them. An object that had owners once and has none now is not
/// tracked until it is applied. `reset` names the fields (`status`, `metadata.labels`) that this endpoint does not write.
pub fn track_update(schema: &Schema, live: Option<&Value>, new: &mut Value, manager: &Manager<'_>, reset: &[&str]) {
    let nothing = Value::Object(Map::new());
    let sent = take_managed_fields(new);
    let kept = live.and_then(managed_fields);
    let changes = changes(schema, live.unwrap_or(&nothing), new, reset);
    if changes.is_same() && kept.is_some() && (sent.is_none() || sent.as_ref() == kept) {
        return put_managed_fields(new, sent.or_else(|| kept.cloned()));
    }
    let mut owners = owners_before(schema, kept, sent.filter(|_| manager.subresource.is_none()).as_ref());
    if owners.0.is_empty() && live.is_some() {
        return;
    }
    record(&mut owners, changes, manager);
    roll_up_oldest(&mut owners);
    put_managed_fields(new, owners.encode());
}

/// What differs between two objects, as far as it can be owned and this endpoint writes it.
pub(crate) fn changes(schema: &Schema, old: &Value, new: &Value, reset: &[&str]) -> Comparison {
    let changes = compare(schema, old, new).without(&UNOWNED);
    if reset.is_empty() { changes } else { changes.without_recursive(&reset_fields(reset)) }
}

/// The owners in a `managedFields` list, brought up to the schema of today.
pub(crate) fn read_owners(schema: &Schema, list: Option<&Value>) -> Result<Owners, DecodeError> {
    let mut owners = Owners::decode(list)?;
    for owner in owners.0.values_mut() {
        if collapse(schema, &mut owner.fields) {
            owner.entry = None;
        }
    }
    Ok(owners)
}

/// Makes the writer the owner of what changed.
pub(crate) fn record(owners: &mut Owners, changes: Comparison, manager: &Manager<'_>) {
    disown(owners, &changes);
    let taken = changes.added.union(changes.modified);
    if taken.is_empty() {
        return;
    }
    let mut writer = Owner::new(manager, taken);
    if let Some(before) = owners.0.remove(&manager.id(Operation::Update)) {
        writer.change(|taken| before.fields.union(taken));
    }
    owners.0.insert(manager.id(Operation::Update), writer);
}

/// Takes what changed from everybody. Who is left with nothing is no owner any more.
pub(crate) fn disown(owners: &mut Owners, changes: &Comparison) {
    owners.0.retain(|_, owner| {
        for lost in [&changes.added, &changes.modified, &changes.removed] {
            if owner.fields.intersects(lost) {
                owner.change(|fields| fields.difference(lost));
            }
        }
        !owner.fields.is_empty()
    });
}

/// The set of fields named by dotted paths.
pub(crate) fn reset_fields(paths: &[&str]) -> FieldSet {
    let mut set = FieldSet::new();
    for path in paths {
        let path: Vec<_> = path.split('.').map(|name| PathElement::Field(name.to_owned())).collect();
        set.insert(&path);
    }
    set
}

fn owners_before(schema: &Schema, live: Option<&Value>, sent: Option<&Value>) -> Owners {
    if sent.is_some_and(is_reset) {
        return Owners::default();
    }
    // A client that does not understand the list must not be able to lose it.
    match read_owners(schema, sent) {
        Ok(owners) if !owners.0.is_empty() => owners,
        _ => read_owners(schema, live).unwrap_or_default(),
    }
}

fn is_reset(sent: &Value) -> bool {
    match sent.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// Unites the oldest updaters of each version until there are few enough. The first of a version is only renamed when a second
/// one joins it, so nobody is renamed for nothing.
fn roll_up_oldest(owners: &mut Owners) {
    let mut updaters: Vec<_> = owners
        .0
        .iter()
        .filter(|(id, _)| id.operation == Operation::Update)
        .map(|(id, owner)| (owner.time.clone(), id.clone()))
        .collect();
    let mut left = updaters.len();
    if left <= MAX_UPDATERS {
        return;
    }
    updaters.sort();
    let mut first_of_version = BTreeMap::new();
    for (time, id) in updaters {
        if left <= MAX_UPDATERS {
            break;
        }
        match first_of_version.get(&id.api_version) {
            Some(first) => {
                roll_up(owners, first, &id, time);
                left -= 1;
            }
            None => {
                first_of_version.insert(id.api_version.clone(), id);
            }
        }
    }
}

fn roll_up(owners: &mut Owners, first: &OwnerId, next: &OwnerId, time: String) {
    let bucket_id = OwnerId { name: ROLLED_UP.to_owned(), subresource: String::new(), ..first.clone() };
    if !owners.0.contains_key(&bucket_id)
        && let Some(owner) = owners.0.remove(first)
    {
        owners.0.insert(bucket_id.clone(), owner);
    }
    let Some(next) = owners.0.remove(next) else { return };
    if let Some(bucket) = owners.0.get_mut(&bucket_id) {
        bucket.change(|fields| fields.union(next.fields));
        bucket.time = time;
    }
}
