//! Strings and regular expressions. Positions count characters, not bytes.

use std::sync::Arc;

use regex::Regex;

use super::{text, truth};
use crate::cel::EvalError;
use crate::cel::eval::{Evaluator, Outcome};
use crate::cel::regexes::{COMPILE_COST, compile};
use crate::cel::value::Value;

pub(super) fn call(evaluator: &mut Evaluator<'_>, name: &str, args: &[Value]) -> Option<Outcome> {
    if let (Some(Value::List(_)), "join") = (args.first(), name) {
        return Some(join(evaluator, args));
    }
    let (Some(Value::String(subject)), rest) = (args.first(), args.get(1..)?) else { return None };
    query(name, subject, rest)
        .or_else(|| transform(evaluator, name, subject, rest))
        .or_else(|| regular(evaluator, name, subject, rest))
}

fn query(name: &str, subject: &Arc<str>, rest: &[Value]) -> Option<Outcome> {
    Some(match (name, rest) {
        ("size", []) => Ok(Value::Int(subject.chars().count() as i64)),
        ("startsWith", [Value::String(part)]) => truth(subject.starts_with(&**part)),
        ("endsWith", [Value::String(part)]) => truth(subject.ends_with(&**part)),
        ("contains", [Value::String(part)]) => truth(subject.contains(&**part)),
        ("charAt", [Value::Int(at)]) => char_at(subject, *at),
        ("indexOf", [Value::String(part)]) => index_of(subject, part, 0),
        ("indexOf", [Value::String(part), Value::Int(from)]) => index_of(subject, part, *from),
        ("lastIndexOf", [Value::String(part)]) => last_index_of(subject, part, None),
        ("lastIndexOf", [Value::String(part), Value::Int(until)]) => last_index_of(subject, part, Some(*until)),
        _ => return None,
    })
}

fn transform(evaluator: &mut Evaluator<'_>, name: &str, subject: &Arc<str>, rest: &[Value]) -> Option<Outcome> {
    Some(match (name, rest) {
        ("lowerAscii", []) => text(subject.to_ascii_lowercase()),
        ("upperAscii", []) => text(subject.to_ascii_uppercase()),
        ("trim", []) => text(subject.trim()),
        ("reverse", []) => text(subject.chars().rev().collect::<String>()),
        ("strings.quote", []) => text(quote(subject)),
        ("replace", [Value::String(old), Value::String(new)]) => replace(evaluator, subject, old, new, -1),
        ("replace", [Value::String(old), Value::String(new), Value::Int(limit)]) => {
            replace(evaluator, subject, old, new, *limit)
        }
        ("split", [Value::String(separator)]) => split(evaluator, subject, separator, -1),
        ("split", [Value::String(separator), Value::Int(limit)]) => split(evaluator, subject, separator, *limit),
        ("substring", [Value::Int(from)]) => substring(subject, *from, None),
        ("substring", [Value::Int(from), Value::Int(to)]) => substring(subject, *from, Some(*to)),
        _ => return None,
    })
}

fn regular(evaluator: &mut Evaluator<'_>, name: &str, subject: &Arc<str>, rest: &[Value]) -> Option<Outcome> {
    let (pattern, limit) = match (name, rest) {
        ("matches" | "find" | "findAll", [Value::String(pattern)]) => (pattern, -1),
        ("findAll", [Value::String(pattern), Value::Int(limit)]) => (pattern, *limit),
        _ => return None,
    };
    let regex = match regex(evaluator, pattern, subject) {
        Ok(regex) => regex,
        Err(error) => return Some(Err(error)),
    };
    Some(match name {
        "matches" => truth(regex.is_match(subject)),
        "find" => text(regex.find(subject).map_or("", |found| found.as_str())),
        _ => find_all(evaluator, &regex, subject, limit),
    })
}

fn regex(evaluator: &mut Evaluator<'_>, pattern: &str, subject: &str) -> Result<Arc<Regex>, EvalError> {
    // Matching costs text times pattern, in the worst case of a linear matcher.
    evaluator.spend((subject.len() / 10 + 1) * (pattern.len() / 4 + 1))?;
    if let Some(regex) = evaluator.regexes().known(pattern) {
        return Ok(regex);
    }
    evaluator.spend(pattern.len() * COMPILE_COST)?;
    compile(pattern)
}

fn find_all(evaluator: &mut Evaluator<'_>, regex: &Regex, subject: &str, limit: i64) -> Outcome {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut found = Vec::new();
    for one in regex.find_iter(subject).take(limit) {
        evaluator.spend(1)?;
        found.push(Value::string(one.as_str()));
    }
    Ok(Value::list(found))
}

/// Where a position in characters is in bytes; the end is a position too.
fn byte_offset(subject: &str, at: i64) -> Result<usize, EvalError> {
    let out_of_range = || EvalError::failed(format!("index out of range: {at}"));
    let at = usize::try_from(at).map_err(|_| out_of_range())?;
    let offsets = subject.char_indices().map(|(offset, _)| offset).chain(std::iter::once(subject.len()));
    offsets.into_iter().nth(at).ok_or_else(out_of_range)
}

fn position(subject: &str, offset: Option<usize>) -> Outcome {
    Ok(Value::Int(offset.map_or(-1, |offset| subject[..offset].chars().count() as i64)))
}

fn char_at(subject: &str, at: i64) -> Outcome {
    let offset = byte_offset(subject, at)?;
    text(subject[offset..].chars().next().map(String::from).unwrap_or_default())
}

fn index_of(subject: &str, part: &str, from: i64) -> Outcome {
    let from = byte_offset(subject, from)?;
    position(subject, subject[from..].find(part).map(|offset| from + offset))
}

fn last_index_of(subject: &str, part: &str, until: Option<i64>) -> Outcome {
    let Some(until) = until else { return position(subject, subject.rfind(part)) };
    let until = byte_offset(subject, until)?;
    // A match may begin at the limit, so it may end that much later.
    let mut end = (until + part.len()).min(subject.len());
    while !subject.is_char_boundary(end) {
        end -= 1;
    }
    position(subject, subject[..end].rfind(part))
}

fn substring(subject: &str, from: i64, to: Option<i64>) -> Outcome {
    let start = byte_offset(subject, from)?;
    let end = to.map_or(Ok(subject.len()), |to| byte_offset(subject, to))?;
    match subject.get(start..end) {
        Some(part) => text(part),
        None => Err(EvalError::failed(format!("invalid substring range. start: {from}, end: {}", to.unwrap_or(-1)))),
    }
}

fn replace(evaluator: &mut Evaluator<'_>, subject: &str, old: &str, new: &str, limit: i64) -> Outcome {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let count = subject.matches(old).count().min(limit);
    evaluator.spend(count.saturating_mul(new.len()) / 10)?;
    text(subject.replacen(old, new, limit))
}

fn split(evaluator: &mut Evaluator<'_>, subject: &str, separator: &str, limit: i64) -> Outcome {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if limit == 0 {
        return Ok(Value::list(Vec::new()));
    }
    let parts: Box<dyn Iterator<Item = &str>> = if separator.is_empty() {
        // Every character alone, and the rest with the last one.
        let ends = subject.char_indices().map(|(at, c)| (at, at + c.len_utf8())).enumerate();
        Box::new(ends.take_while(move |(index, _)| *index < limit).map(move |(index, (start, end))| {
            if index + 1 == limit { &subject[start..] } else { &subject[start..end] }
        }))
    } else {
        Box::new(subject.splitn(limit, separator))
    };
    let mut items = Vec::new();
    for part in parts {
        evaluator.spend(1)?;
        items.push(Value::string(part));
    }
    Ok(Value::list(items))
}

fn join(evaluator: &mut Evaluator<'_>, args: &[Value]) -> Outcome {
    let (list, separator) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, &**separator),
        _ => return Err(crate::cel::eval::no_overload()),
    };
    let parts: Option<Vec<&str>> =
        list.items.iter().map(|item| if let Value::String(text) = item { Some(&**text) } else { None }).collect();
    let parts = parts.ok_or_else(crate::cel::eval::no_overload)?;
    let length: usize = parts.iter().map(|part| part.len() + separator.len()).sum();
    evaluator.spend(length / 10)?;
    text(parts.join(separator))
}

/// The text as a literal of CEL.
fn quote(subject: &str) -> String {
    let mut quoted = String::with_capacity(subject.len() + 2);
    quoted.push('"');
    for c in subject.chars() {
        match c {
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\x0c' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\x0b' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
