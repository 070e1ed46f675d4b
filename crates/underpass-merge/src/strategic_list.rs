//! The lists of a strategic merge patch: merged by a key field or by value, or replaced.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::node::Node;
use crate::path::Scalar;
use crate::strategic::{Object, PATCH, StrategicError, StrategicProblem, merge_object, without_directives};

/// How one list takes a patch.
#[derive(Clone, Copy)]
pub(crate) struct ListPatch<'s> {
    item: Node<'s>,
    merges: bool,
    merge_key: Option<&'s str>,
}

/// The position of each key in a list.
pub(crate) type Positions = BTreeMap<Scalar, usize>;

impl<'s> ListPatch<'s> {
    pub(crate) fn new(list: Node<'s>) -> Self {
        let schema = list.schema();
        Self {
            item: list.item(),
            merges: schema.is_some_and(|schema| schema.patch_merge),
            merge_key: schema.and_then(|schema| schema.patch_merge_key.as_deref()),
        }
    }

    pub(crate) fn merge(self, live: Vec<Value>, patch: &[Value]) -> Result<Vec<Value>, StrategicError> {
        if !self.merges {
            return Ok(patch.to_vec());
        }
        match item_kind(&live, patch)? {
            None => Ok(live),
            Some(ItemKind::Scalar) => unite(live, patch),
            Some(ItemKind::Object) => self.merge_objects(live, patch),
        }
    }

    /// What tells an item from its siblings.
    pub(crate) fn key(self, item: &Value) -> Result<Scalar, StrategicError> {
        let Some(name) = self.merge_key else { return Ok(Scalar(item.clone())) };
        match item.get(name) {
            Some(key) => Ok(Scalar(key.clone())),
            None => Err(StrategicProblem::NoMergeKey(name.to_owned()).into()),
        }
    }

    pub(crate) fn keys(self, items: &[Value]) -> Result<Positions, StrategicError> {
        let mut positions = Positions::new();
        for (position, item) in items.iter().enumerate() {
            positions.entry(self.key(item)?).or_insert(position);
        }
        Ok(positions)
    }

    /// The items of the patch must come in the order that `$setElementOrder` asks for.
    pub(crate) fn check_order(self, patch: &[Value], order: &[Value]) -> Result<(), StrategicError> {
        if order.is_empty() {
            return Ok(());
        }
        let positions = self.keys(order)?;
        let mut last = None;
        for item in patch.iter().filter(|item| directive(item).is_none()) {
            let position = positions.get(&self.key(item)?).copied();
            if position.is_none() || position <= last {
                return Err(StrategicProblem::OrderMismatch.into());
            }
            last = position;
        }
        Ok(())
    }

    /// The order of the live list once the patch is in it, as far as `$setElementOrder` goes by it. Kubernetes edits the list in
    /// place: new items take the room that deleted ones leave at its end, and only those count as live.
    pub(crate) fn order_after(self, live: &[Value], patch: &[Value]) -> Result<Positions, StrategicError> {
        let before = self.keys(live)?;
        let gone = if self.merges && self.merge_key.is_some() { self.deletions(patch)? } else { None };
        let Some(gone) = gone.filter(|gone| !gone.is_empty()) else { return Ok(before) };
        let mut left: Vec<_> = live.iter().map(|item| self.key(item)).collect::<Result<_, _>>()?;
        left.retain(|key| !gone.contains(key));
        for item in patch.iter().filter(|item| directive(item).is_none()) {
            let key = self.key(item)?;
            let is_new = gone.contains(&key) || !before.contains_key(&key);
            if is_new && left.len() < live.len() {
                left.push(key);
            }
        }
        Ok(left.into_iter().enumerate().map(|(position, key)| (key, position)).collect())
    }

    fn merge_objects(self, live: Vec<Value>, patch: &[Value]) -> Result<Vec<Value>, StrategicError> {
        if self.merge_key.is_none() {
            return Err(StrategicProblem::NotMergeable.into());
        }
        let plain: Vec<_> = patch.iter().filter(|item| directive(item).is_none()).collect();
        let Some(gone) = self.deletions(patch)? else {
            return Ok(plain.into_iter().filter_map(without_directives).collect());
        };
        let mut live = live;
        live.retain(|item| !self.key(item).is_ok_and(|key| gone.contains(&key)));
        let (live_keys, patch_keys) = (self.keys(&live)?, self.keys_of(&plain)?);
        let mut merged = live;
        let mut places = live_keys.clone();
        for item in plain {
            self.merge_item(&mut merged, &mut places, item)?;
        }
        reorder(merged, &patch_keys, &live_keys, |item| self.key(item))
    }

    fn merge_item(self, merged: &mut Vec<Value>, places: &mut Positions, patch: &Value) -> Result<(), StrategicError> {
        let key = self.key(patch)?;
        let live = places.get(&key).and_then(|place| merged.get_mut(*place));
        match (live, patch) {
            (Some(Value::Object(live)), Value::Object(patch)) => merge_object(self.item, live, patch)?,
            _ => {
                places.insert(key, merged.len());
                merged.extend(without_directives(patch));
            }
        }
        Ok(())
    }

    /// The keys of the items to delete; `None` if the patch is to replace the list.
    fn deletions(self, patch: &[Value]) -> Result<Option<BTreeSet<Scalar>>, StrategicError> {
        let mut gone = BTreeSet::new();
        let mut replaces = false;
        for item in patch {
            match directive(item) {
                None => {}
                Some(Value::String(delete)) if delete == "delete" => {
                    gone.insert(self.key(item)?);
                }
                Some(Value::String(replace)) if replace == "replace" => replaces = true,
                Some(Value::String(merge)) if merge == "merge" => {
                    return Err(StrategicProblem::MergeDirectiveInList.into());
                }
                Some(other) => return Err(StrategicProblem::UnknownPatchType(other.to_string()).into()),
            }
        }
        Ok((!replaces).then_some(gone))
    }

    fn keys_of(self, items: &[&Value]) -> Result<Positions, StrategicError> {
        let keys = items.iter().enumerate().map(|(position, item)| Ok((self.key(item)?, position)));
        keys.collect()
    }
}

/// The items that the patch names in its order, and the others in theirs, woven together by the order of the live list. What
/// the live list does not have comes before what only it has.
pub(crate) fn reorder(
    items: Vec<Value>,
    patch: &Positions,
    live: &Positions,
    key: impl Fn(&Value) -> Result<Scalar, StrategicError>,
) -> Result<Vec<Value>, StrategicError> {
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for item in items {
        let key = key(&item)?;
        let place = live.get(&key).copied();
        match patch.get(&key) {
            Some(order) => named.push((*order, place, item)),
            None => others.push((place, item)),
        }
    }
    named.sort_by_key(|(order, ..)| *order);
    others.sort_by_key(|(place, _)| *place);
    Ok(weave(named.into_iter().map(|(_, place, item)| (place, item)).collect(), others))
}

type Placed = (Option<usize>, Value);

fn weave(named: Vec<Placed>, others: Vec<Placed>) -> Vec<Value> {
    let mut woven = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (place, item) in named {
        while let Some((_, other)) = others.next_if(|(other, _)| other.is_some() && place.is_some() && *other < place) {
            woven.push(other);
        }
        woven.push(item);
    }
    woven.extend(others.map(|(_, item)| item));
    woven
}

enum ItemKind {
    Scalar,
    Object,
}

/// What the items are; all must be of one type. `None` is no item at all.
fn item_kind(live: &[Value], patch: &[Value]) -> Result<Option<ItemKind>, StrategicError> {
    let mut all = live.iter().chain(patch);
    let Some(first) = all.next() else { return Ok(None) };
    if all.any(|item| std::mem::discriminant(item) != std::mem::discriminant(first)) {
        return Err(StrategicProblem::MixedItems.into());
    }
    match first {
        Value::Array(_) => Err(StrategicProblem::ListOfLists.into()),
        Value::Object(_) => Ok(Some(ItemKind::Object)),
        _ => Ok(Some(ItemKind::Scalar)),
    }
}

fn unite(live: Vec<Value>, patch: &[Value]) -> Result<Vec<Value>, StrategicError> {
    let by_value = |item: &Value| Ok(Scalar(item.clone()));
    let positions = |items: &[Value]| {
        let mut positions = Positions::new();
        for (position, item) in items.iter().enumerate() {
            positions.entry(Scalar(item.clone())).or_insert(position);
        }
        positions
    };
    let (live_keys, patch_keys) = (positions(&live), positions(patch));
    let mut seen = BTreeSet::new();
    let united =
        live.into_iter().chain(patch.iter().cloned()).filter(|item| seen.insert(Scalar(item.clone()))).collect();
    reorder(united, &patch_keys, &live_keys, by_value)
}

fn directive(item: &Value) -> Option<&Value> {
    item.as_object().and_then(|object: &Object| object.get(PATCH))
}
