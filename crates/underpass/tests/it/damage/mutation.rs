//! How a good document is damaged.

use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Map, Value, json};

/// A copy with up to three things wrong; sometimes none.
pub(crate) fn damaged_value(good: &Value, chance: &mut StdRng) -> Value {
    let mut value = good.clone();
    for _ in 0..chance.random_range(0..4) {
        let place = any_pointer(&value, chance);
        damage(&mut value, &place, chance);
    }
    value
}

/// Broken as bytes, now and then.
pub(crate) fn damaged_bytes(mut bytes: Vec<u8>, chance: &mut StdRng) -> Vec<u8> {
    if bytes.is_empty() || chance.random_bool(0.93) {
        return bytes;
    }
    let at = chance.random_range(0..bytes.len());
    match chance.random_range(0..3) {
        0 => bytes.truncate(at),
        1 => bytes[at] = chance.random_range(0..=255),
        _ => drop(bytes.splice(at..at, *b"\xff\xfe")),
    }
    bytes
}

/// Operations at places of the document, and at places that are none.
pub(crate) fn json_patch(good: &Value, chance: &mut StdRng) -> Value {
    let operations = (0..chance.random_range(0..5)).map(|_| {
        let op = pick(&["add", "remove", "replace", "move", "copy", "test", "break"], chance);
        let mut operation =
            json!({ "op": op, "path": any_pointer(good, chance), "from": any_pointer(good, chance), "value": odd(chance) });
        if chance.random_bool(0.2) {
            let place = any_pointer(&operation, chance);
            damage(&mut operation, &place, chance);
        }
        operation
    });
    let operations: Value = operations.collect();
    if chance.random_bool(0.05) { odd(chance) } else { operations }
}

pub(crate) fn damaged_options(chance: &mut StdRng) -> Value {
    let good = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": pick(&["Background", "Foreground", "Orphan"], chance),
        "preconditions": {}, "gracePeriodSeconds": 0,
    });
    damaged_value(&good, chance)
}

fn damage(value: &mut Value, pointer: &str, chance: &mut StdRng) {
    let key: String = odd_key(chance);
    let Some(place) = value.pointer_mut(pointer) else { return };
    match (chance.random_range(0..5), place) {
        (0, Value::Object(fields)) => drop(fields.insert(key, odd(chance))),
        (1, Value::Object(fields)) if !fields.is_empty() => {
            let name = fields.keys().nth(chance.random_range(0..fields.len())).cloned().unwrap();
            fields.remove(&name);
        }
        (2, Value::Array(items)) if !items.is_empty() => items.push(items[0].clone()),
        (3, place) => *place = json!([place.take()]),
        (_, place) => *place = odd(chance),
    }
}

/// A pointer to any node, picked by walking down.
fn any_pointer(value: &Value, chance: &mut StdRng) -> String {
    let mut pointer = String::new();
    let mut here = value;
    while chance.random_bool(0.75) {
        let (step, below) = match here {
            Value::Object(fields) if !fields.is_empty() => {
                let (name, below) = fields.iter().nth(chance.random_range(0..fields.len())).unwrap();
                (name.replace('~', "~0").replace('/', "~1"), below)
            }
            Value::Array(items) if !items.is_empty() => {
                let index = chance.random_range(0..items.len());
                (index.to_string(), &items[index])
            }
            _ => break,
        };
        pointer = format!("{pointer}/{step}");
        here = below;
    }
    if chance.random_bool(0.1) { format!("{pointer}/{}", pick(&["-", "99", "new", "~2", ""], chance)) } else { pointer }
}

fn odd(chance: &mut StdRng) -> Value {
    match chance.random_range(0..20) {
        0..4 => Value::Null,
        4 => json!(true),
        5 => json!(0),
        6 => json!(-1),
        7 => json!(1.5),
        8 => json!(1e300),
        9 => json!(u64::MAX),
        10 => json!(""),
        11 => json!("x".repeat(5000)),
        12 => json!("\u{0}\u{202e}\u{fffd}e\u{301}\u{10ffff}\n"),
        13 => json!([]),
        14 => json!({}),
        15 => json!([[], {}, null, "a", 1]),
        16 => Value::Object(Map::from_iter([(odd_key(chance), Value::Null)])),
        17 => (0..chance.random_range(5..125)).fold(json!(1), |below, _| json!({ "a": below })),
        18 => (0..chance.random_range(5..125)).fold(json!(1), |below, _| json!([below])),
        _ => json!("2024-13-45T99:99:99Z"),
    }
}

fn odd_key(chance: &mut StdRng) -> String {
    match chance.random_range(0..7) {
        0 => String::new(),
        1 => "k".repeat(3000),
        2 => "\u{0}\u{202e}\u{1f300}".to_owned(),
        3 => "$patch".to_owned(),
        4 => "$setElementOrder/ports".to_owned(),
        5 => "a.b/c~1 \"'".to_owned(),
        _ => "managedFields".to_owned(),
    }
}

fn pick<'a>(from: &[&'a str], chance: &mut StdRng) -> &'a str {
    from[chance.random_range(0..from.len())]
}
