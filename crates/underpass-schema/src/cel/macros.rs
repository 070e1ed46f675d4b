//! Calls that are not calls: their arguments are names and expressions, not values.

use std::sync::Arc;

use super::CompileError;
use super::ast::{Expr, Fold, FoldKind, Kind};
use super::parser::node;

/// A call without a receiver.
pub(crate) fn function(name: &str, args: Vec<Expr>, offset: usize) -> Result<Expr, CompileError> {
    match (name, args.len()) {
        ("has", 1) => has(args, offset),
        ("cel.bind", 3) => {
            let [name, value, body] = take(args);
            let name = variable(&name)?;
            node(Kind::Bind { name, value: Box::new(value), body: Box::new(body) }, offset)
        }
        _ => node(Kind::Call { function: name.into(), method: false, args }, offset),
    }
}

/// A call with a receiver.
pub(crate) fn method(receiver: Expr, name: &str, args: Vec<Expr>, offset: usize) -> Result<Expr, CompileError> {
    let two = args.len() == 3;
    match (name, args.len()) {
        ("all", 2 | 3) => fold(FoldKind::All, receiver, args, two, offset),
        ("exists", 2 | 3) => fold(FoldKind::Exists, receiver, args, two, offset),
        ("exists_one" | "existsOne", 2 | 3) => fold(FoldKind::ExistsOne, receiver, args, two, offset),
        ("filter", 2) => fold(FoldKind::Filter, receiver, args, false, offset),
        ("map", 2 | 3) => fold(FoldKind::Map, receiver, args, false, offset),
        ("transformList", 3 | 4) => fold(FoldKind::Map, receiver, args, true, offset),
        ("transformMap", 3 | 4) => fold(FoldKind::TransformMap, receiver, args, true, offset),
        ("optMap" | "optFlatMap", 2) => {
            let [variable_name, body] = take(args);
            let flat = name == "optFlatMap";
            let name = variable(&variable_name)?;
            node(Kind::OptionalMap { name, value: Box::new(receiver), body: Box::new(body), flat }, offset)
        }
        _ => {
            let args = std::iter::once(receiver).chain(args).collect();
            node(Kind::Call { function: name.into(), method: true, args }, offset)
        }
    }
}

/// `range.name(variable, [second variable,] [filter,] body)`
fn fold(kind: FoldKind, range: Expr, args: Vec<Expr>, two: bool, offset: usize) -> Result<Expr, CompileError> {
    let mut args = args.into_iter();
    let mut next = || args.next().ok_or_else(|| CompileError::syntax(offset, "macro has too few arguments"));
    let first = variable(&next()?)?;
    let second = if two { Some(variable(&next()?)?) } else { None };
    let body = next()?;
    let (filter, body) = match args.next() {
        Some(last) => (Some(body), last),
        None => (None, body),
    };
    node(Kind::Fold(Box::new(Fold { kind, range, first, second, filter, body })), offset)
}

fn has(args: Vec<Expr>, offset: usize) -> Result<Expr, CompileError> {
    let [arg] = take(args);
    match arg.kind {
        Kind::Select { operand, field, optional: false } => node(Kind::Has { operand, field }, offset),
        _ => Err(CompileError::check(arg.offset, "invalid argument to has() macro")),
    }
}

fn variable(expr: &Expr) -> Result<Arc<str>, CompileError> {
    match &expr.kind {
        Kind::Ident(name) => Ok(name.clone()),
        _ => Err(CompileError::check(expr.offset, "argument must be a simple name")),
    }
}

fn take<const N: usize>(args: Vec<Expr>) -> [Expr; N] {
    args.try_into().expect("the number of arguments was matched by the caller")
}
