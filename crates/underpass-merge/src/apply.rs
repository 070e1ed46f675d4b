//! Server-side apply.
//!
//! What is applied is merged onto the live object. What the same manager applied before and does not apply now goes, unless
//! somebody else owns it too. A value that another owner has and that would change is a conflict, unless forced.

use std::fmt;

use serde_json::{Map, Value};
use underpass_schema::Schema;

use crate::check::{InvalidObject, check};
use crate::compare::Comparison;
use crate::fieldset::FieldSet;
use crate::last_applied;
use crate::managed::{
    DecodeError, Manager, Operation, Owner, OwnerId, Owners, managed_fields, put_managed_fields,
    same_but_managed_fields,
};
use crate::merge::merge;
use crate::path::{PathElement, path_text};
use crate::update::{UNOWNED, changes, disown, read_owners, record, reset_fields};
use crate::walk::{Emptied, to_field_set, with_structs, without};

/// Owns the fields of an object that existed before anybody was tracked.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// One field that somebody else owns with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The owner as Kubernetes prints it: `"kubectl"`, or for an update `"kubectl" with subresource "status" using v1`.
    pub manager: String,
    /// `.spec.replicas`
    pub field: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("metadata.managedFields must be nil")]
    ManagedFields,
    #[error("{0}")]
    Invalid(InvalidObject),
    #[error("failed to decode managed fields")]
    Undecodable(#[source] DecodeError),
    #[error("{}", ConflictMessage(.0))]
    Conflicts(Vec<Conflict>),
}

/// The object to be stored when `applied` is applied onto `live` (`None` on create), its `managedFields` included.
///
/// An apply that changes neither a value nor an owner returns `live` as it is. `reset` names the fields that this endpoint does
/// not write; what is applied to them is ignored.
pub fn apply(
    schema: &Schema,
    live: Option<&Value>,
    applied: &Value,
    manager: &Manager<'_>,
    force: bool,
    reset: &[&str],
) -> Result<Value, ApplyError> {
    if managed_fields(applied).is_some() {
        return Err(ApplyError::ManagedFields);
    }
    check(schema, applied).map_err(ApplyError::Invalid)?;
    let config = writable(schema, applied, reset);
    let nothing = Value::Object(Map::new());
    let step = Step { schema, live: live.unwrap_or(&nothing), config: &config, manager, reset };
    let owners = step.owners_before()?;
    let (mut object, owners) = step.settle(owners, force).map_err(|conflicts| report(&conflicts))?;
    last_applied::refresh(&mut object, applied, manager);
    put_managed_fields(&mut object, owners.encode());
    Ok(object)
}

struct Step<'a> {
    schema: &'a Schema,
    live: &'a Value,
    config: &'a Value,
    manager: &'a Manager<'a>,
    reset: &'a [&'a str],
}

/// A field that another owner has.
type Found = (OwnerId, Vec<PathElement>);

impl Step<'_> {
    fn owners_before(&self) -> Result<Owners, ApplyError> {
        let mut owners = read_owners(self.schema, managed_fields(self.live)).map_err(ApplyError::Undecodable)?;
        if owners.0.is_empty() {
            let all = self.changes(&Value::Object(Map::new()), self.live);
            record(&mut owners, all, &Manager { name: BEFORE_FIRST_APPLY, ..*self.manager });
        }
        Ok(owners)
    }

    /// The new object and its owners, or the conflicts in the way.
    fn settle(&self, mut owners: Owners, force: bool) -> Result<(Value, Owners), Vec<Found>> {
        let id = self.manager.id(Operation::Apply);
        let before = owners.0.remove(&id);
        let fields = to_field_set(self.schema, self.config);
        let object = merge(self.schema, self.live, self.config);
        let object = match &before {
            Some(before) => self.prune(object, &owners, &before.fields, &fields),
            None => object,
        };
        let changes = self.changes(self.live, &object);
        if !force {
            self.refuse(conflicts(&owners, &changes))?;
        }
        disown(&mut owners, &changes);
        let fields = fields.difference(&UNOWNED);
        if !fields.is_empty() {
            let changed = !same_but_managed_fields(self.live, &object);
            owners.0.insert(id, self.owner(before, fields, changed));
        }
        Ok((object, owners))
    }

    /// The applier's entry: the old one if nothing happened. Its time is that of the last apply that changed the object: whoever applies
    /// what is there already has none.
    fn owner(&self, before: Option<Owner>, fields: FieldSet, changed: bool) -> Owner {
        match before {
            Some(before) if !changed && before.fields == fields && before.api_version == self.manager.api_version => {
                before
            }
            _ if changed => Owner::new(self.manager, fields),
            before => {
                let time = before.map(|before| before.time).unwrap_or_default();
                Owner { time, ..Owner::new(self.manager, fields) }
            }
        }
    }

    /// Removes what was applied before, is not applied now, and belongs to nobody else.
    fn prune(&self, merged: Value, others: &Owners, before: &FieldSet, now: &FieldSet) -> Value {
        if before.clone().difference(now).is_empty() {
            return merged;
        }
        let all = |set: &FieldSet| with_structs(self.schema, set);
        let fields_of = |object: &Value| all(&to_field_set(self.schema, object));
        let (before, in_merged) = (all(before), fields_of(&merged));
        let owned = others.0.values().fold(now.clone(), |owned, owner| owned.union(owner.fields.clone()));
        // First all that was applied goes; then what has an owner comes back; and what nobody ever applied was never to go.
        let pruned = without(self.schema, merged.clone(), &before, Emptied::Nulled);
        let kept = fields_of(&pruned).union(all(&owned));
        let pruned = without(self.schema, merged.clone(), &in_merged.clone().difference(&kept), Emptied::Nulled);
        let gone = in_merged.difference(&fields_of(&pruned)).intersection(&before);
        without(self.schema, merged, &gone, Emptied::GoneUnless(&owned))
    }

    /// What `kubectl` applied from the client's side before is its own.
    fn refuse(&self, conflicts: Vec<Found>) -> Result<(), Vec<Found>> {
        if conflicts.is_empty() {
            return Ok(());
        }
        let takeable = last_applied::takeable(self.schema, self.live, self.manager);
        let real: Vec<_> = conflicts.into_iter().filter(|(_, path)| !takeable.has(path)).collect();
        if real.is_empty() { Ok(()) } else { Err(real) }
    }

    fn changes(&self, old: &Value, new: &Value) -> Comparison {
        changes(self.schema, old, new, self.reset)
    }
}

/// What is applied, without the fields that are not this endpoint's. Clients print a creation time of `null`, meaning none.
fn writable(schema: &Schema, applied: &Value, reset: &[&str]) -> Value {
    let mut config = without(schema, applied.clone(), &reset_fields(reset), Emptied::GoneUnless(&FieldSet::new()));
    if let Some(metadata) = config.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, value| {
            !(value.is_null() && ["creationTimestamp", "managedFields"].contains(&name.as_str()))
        });
    }
    config
}

fn conflicts(owners: &Owners, changes: &Comparison) -> Vec<Found> {
    let wanted = changes.modified.clone().union(changes.added.clone());
    let mut found = Vec::new();
    for (id, owner) in &owners.0 {
        owner.fields.intersection(&wanted).for_each(|path| found.push((id.clone(), path.to_vec())));
    }
    found
}

fn report(found: &[Found]) -> ApplyError {
    let conflict = |(id, path): &Found| Conflict { manager: id.describe(), field: path_text(path) };
    ApplyError::Conflicts(found.iter().map(conflict).collect())
}

/// All conflicts in the words of kube-apiserver, by owner.
struct ConflictMessage<'a>(&'a [Conflict]);

impl fmt::Display for ConflictMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [Conflict { manager, field }] = self.0 {
            return write!(f, "Apply failed with 1 conflict: conflict with {manager}: {field}");
        }
        write!(f, "Apply failed with {} conflicts:", self.0.len())?;
        let mut separator = ' ';
        for group in self.0.chunk_by(|a, b| a.manager == b.manager) {
            write!(f, "{separator}conflicts with {}:", group[0].manager)?;
            group.iter().try_for_each(|conflict| write!(f, "\n- {}", conflict.field))?;
            separator = '\n';
        }
        Ok(())
    }
}
