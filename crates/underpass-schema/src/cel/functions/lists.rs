//! Lists, maps and sets.

use std::cmp::Ordering;
use std::sync::Arc;

use super::truth;
use crate::cel::EvalError;
use crate::cel::eval::{Evaluator, Outcome, no_overload};
use crate::cel::value::{List, Value};

pub(super) fn call(evaluator: &mut Evaluator<'_>, name: &str, args: &[Value]) -> Option<Outcome> {
    Some(match (name, args) {
        ("size", [Value::Map(map)]) => Ok(Value::Int(map.len() as i64)),
        ("size", [Value::Bytes(bytes)]) => Ok(Value::Int(bytes.len() as i64)),
        ("flatten", [Value::List(list)]) => flatten(evaluator, list, 1),
        ("flatten", [Value::List(list), Value::Int(depth)]) => flatten(evaluator, list, *depth),
        ("distinct", [Value::List(list)]) => distinct(evaluator, list),
        ("sets.contains" | "sets.equivalent" | "sets.intersects", [Value::List(left), Value::List(right)]) => {
            sets(evaluator, name, left, right)
        }
        (_, [Value::List(list), rest @ ..]) => return of_items(name, list, rest),
        _ => return None,
    })
}

fn of_items(name: &str, list: &Arc<List>, rest: &[Value]) -> Option<Outcome> {
    let items = &list.items;
    Some(match (name, rest) {
        ("size", []) => Ok(Value::Int(items.len() as i64)),
        ("isSorted", []) => is_sorted(items),
        ("sum", []) => sum(items),
        ("min", []) => extreme(items, Ordering::Less, "min"),
        ("max", []) => extreme(items, Ordering::Greater, "max"),
        ("indexOf", [item]) => index(items.iter().position(|known| known == item)),
        ("lastIndexOf", [item]) => index(items.iter().rposition(|known| known == item)),
        ("slice", [Value::Int(from), Value::Int(to)]) => slice(items, *from, *to),
        ("reverse", []) => Ok(Value::list(items.iter().rev().cloned().collect())),
        ("sort", []) => sort(items),
        ("first", []) => Ok(items.first().map_or(Value::NONE, |item| Value::some(item.clone()))),
        ("last", []) => Ok(items.last().map_or(Value::NONE, |item| Value::some(item.clone()))),
        _ => return None,
    })
}

fn is_sorted(items: &[Value]) -> Outcome {
    for pair in items.windows(2) {
        match pair[0].compare(&pair[1]) {
            Some(Ordering::Greater) => return truth(false),
            Some(_) => {}
            None => return Err(no_overload()),
        }
    }
    truth(true)
}

fn sum(items: &[Value]) -> Outcome {
    let mut total = match items.first() {
        None | Some(Value::Int(_)) => Value::Int(0),
        Some(Value::Uint(_)) => Value::Uint(0),
        Some(Value::Double(_)) => Value::Double(0.0),
        Some(Value::Duration(_)) => Value::Duration(0),
        Some(_) => return Err(no_overload()),
    };
    for item in items {
        let next = match (&total, item) {
            (Value::Int(left), Value::Int(right)) => left.checked_add(*right).map(Value::Int),
            (Value::Uint(left), Value::Uint(right)) => left.checked_add(*right).map(Value::Uint),
            (Value::Double(left), Value::Double(right)) => Some(Value::Double(left + right)),
            (Value::Duration(left), Value::Duration(right)) => left.checked_add(*right).map(Value::Duration),
            _ => return Err(no_overload()),
        };
        total = next.ok_or_else(|| EvalError::failed("overflow in sum"))?;
    }
    Ok(total)
}

fn extreme(items: &[Value], want: Ordering, name: &str) -> Outcome {
    let (first, rest) = items.split_first().ok_or_else(|| EvalError::failed(format!("{name} called on empty list")))?;
    let mut best = first;
    for item in rest {
        if item.compare(best).ok_or_else(no_overload)? == want {
            best = item;
        }
    }
    Ok(best.clone())
}

fn index(position: Option<usize>) -> Outcome {
    Ok(Value::Int(position.map_or(-1, |position| position as i64)))
}

fn slice(items: &[Value], from: i64, to: i64) -> Outcome {
    let range = usize::try_from(from).ok().zip(usize::try_from(to).ok());
    let part = range.and_then(|(from, to)| items.get(from..to));
    let part =
        part.ok_or_else(|| EvalError::failed(format!("cannot slice({from}, {to}), list is length {}", items.len())))?;
    Ok(Value::list(part.to_vec()))
}

fn flatten(evaluator: &mut Evaluator<'_>, list: &List, depth: i64) -> Outcome {
    if depth < 0 {
        return Err(EvalError::failed("level must be non-negative"));
    }
    let mut flat = list.items.clone();
    // Each round opens one level; there cannot be more levels than a document has.
    for _ in 0..depth.min(128) {
        evaluator.spend(flat.iter().map(Value::size).sum())?;
        if !flat.iter().any(|item| matches!(item, Value::List(_))) {
            break;
        }
        flat = flat
            .into_iter()
            .flat_map(|item| match item {
                Value::List(list) => list.items.clone(),
                other => vec![other],
            })
            .collect();
    }
    Ok(Value::list(flat))
}

fn distinct(evaluator: &mut Evaluator<'_>, list: &List) -> Outcome {
    let mut kept: Vec<Value> = Vec::new();
    for item in &list.items {
        evaluator.spend(kept.len() / 8)?;
        if !kept.contains(item) {
            kept.push(item.clone());
        }
    }
    Ok(Value::list(kept))
}

fn sort(items: &[Value]) -> Outcome {
    let comparable = items.first().is_none_or(|first| items.iter().all(|item| item.compare(first).is_some()));
    if !comparable {
        return Err(no_overload());
    }
    let mut sorted = items.to_vec();
    sorted.sort_by(|left, right| left.compare(right).unwrap_or(Ordering::Equal));
    Ok(Value::list(sorted))
}

fn sets(evaluator: &mut Evaluator<'_>, name: &str, left: &List, right: &List) -> Outcome {
    evaluator.spend(left.items.len().saturating_mul(right.items.len()) / 8)?;
    let within = |part: &List, whole: &List| part.items.iter().all(|item| whole.items.contains(item));
    truth(match name {
        "sets.contains" => within(right, left),
        "sets.equivalent" => within(right, left) && within(left, right),
        _ => left.items.iter().any(|item| right.items.contains(item)),
    })
}
