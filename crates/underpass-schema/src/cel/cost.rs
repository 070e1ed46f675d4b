//! What an expression can cost at most, found out before there is a document. The numbers are Kubernetes', so that a definition is
//! refused here if and only if it is refused there: `cost/tests.rs` holds what kube-apiserver answered for some two hundred rules.

use std::sync::Arc;

use super::ast::{Expr, Fold, FoldKind, Kind};
use super::shape::{KEY, Parts, Shape};
use super::signatures::overloads;
use super::types::Type;
use super::value::Value;

const NEW_LIST: u64 = 10;
const NEW_MAP: u64 = 30;
/// Of reading a text, per byte.
const TEXT: f64 = 0.1;
/// Of a regular expression, per byte of it.
const REGEX: f64 = 0.25;
/// Looking for an address or for a network in a network, beside reading the text of it.
const ADDRESS_IN_NETWORK: u64 = 4;
const NETWORK_IN_NETWORK: u64 = 7;
/// Types whose values have no parts that a cost could depend on.
const SCALARS: [&str; 11] = [
    "bool",
    "int",
    "uint",
    "double",
    "duration",
    "timestamp",
    "null",
    "type",
    "net.IP",
    "net.CIDR",
    "kubernetes.Quantity",
];

/// What is known of a value.
#[derive(Clone, Copy, Default)]
struct Known<'s> {
    /// Found out from how it is computed.
    size: Option<u64>,
    /// Where it comes from.
    shape: Option<&'s Shape>,
    scalar: bool,
    /// Of what is computed item by item: an item's size, and whether it is a scalar.
    item: Option<(u64, bool)>,
}

impl<'s> Known<'s> {
    const SCALAR: Self = Known { size: None, shape: None, scalar: true, item: None };

    fn at(shape: Option<&'s Shape>) -> Self {
        let scalar = shape.is_some_and(|shape| matches!(shape.parts, Parts::Scalar));
        Self { shape, scalar, ..Self::default() }
    }

    fn sized(size: u64) -> Self {
        Self { size: Some(size), ..Self::default() }
    }

    fn size(&self) -> u64 {
        let unknown = if self.scalar { 1 } else { u64::MAX };
        self.size.or(self.shape.map(|shape| shape.most)).unwrap_or(unknown)
    }

    fn is_list(&self) -> bool {
        self.item.is_some() || self.shape.is_some_and(|shape| matches!(shape.parts, Parts::List(_)))
    }

    fn is_map(&self) -> bool {
        self.shape.is_some_and(|shape| matches!(shape.parts, Parts::Map(_) | Parts::Object(_)))
    }

    /// An item's size and whether it is a scalar.
    fn items(&self) -> Option<(u64, bool)> {
        let of_shape = |item: &Shape| (item.most, matches!(item.parts, Parts::Scalar));
        self.item.or_else(|| self.shape.and_then(Shape::item).map(of_shape))
    }

    /// Of looking at every item once.
    fn walk(&self) -> u64 {
        let each = match (self.shape.and_then(Shape::item), self.item) {
            (Some(item), _) if matches!(item.parts, Parts::Scalar) => 1,
            (Some(item), _) => part(item.most, TEXT).saturating_add(1),
            (None, Some((_, true))) => 1,
            (None, _) => u64::MAX,
        };
        self.size().saturating_mul(each)
    }
}

/// The most that `expr` can cost on a value of `shape`.
pub(crate) fn estimate(expr: &Expr, shape: &Shape) -> u64 {
    let scope = ["self", "oldSelf"].map(|name| (Arc::from(name), Known::at(Some(shape))));
    Estimator { root: shape, scope: scope.to_vec() }.cost(expr).0
}

struct Estimator<'s> {
    root: &'s Shape,
    scope: Vec<(Arc<str>, Known<'s>)>,
}

type Estimate<'s> = (u64, Known<'s>);

impl<'s> Estimator<'s> {
    fn cost(&mut self, expr: &Expr) -> Estimate<'s> {
        match &expr.kind {
            Kind::Literal(value) => (0, of_literal(value)),
            Kind::Ident(name) => {
                let known = self.scope.iter().rev().find(|(known, _)| known == name);
                known.map_or((0, Known::SCALAR), |(_, known)| (1, *known))
            }
            Kind::Has { operand, .. } => (self.cost(operand).0, Known::SCALAR),
            Kind::Select { operand, field, optional } => {
                let (cost, operand) = self.cost(operand);
                let found = operand.shape.and_then(|shape| shape.field(field));
                (cost.saturating_add(1), if *optional { Known::default() } else { Known::at(found) })
            }
            Kind::Index { operand, index, optional } => {
                let ((cost, operand), (more, _)) = (self.cost(operand), self.cost(index));
                (sum([cost, more, 1]), if *optional { Known::default() } else { self.indexed(operand) })
            }
            Kind::Call { function, method, args } => self.call(function, *method, args),
            Kind::And(parts) | Kind::Or(parts) => (sum(parts.iter().map(|part| self.cost(part).0)), Known::SCALAR),
            Kind::Conditional(parts) => self.conditional(parts),
            Kind::List(entries) => self.literal(NEW_LIST, entries.iter().map(|entry| &entry.value), entries.len()),
            Kind::Map(entries) => {
                let keys = sum(entries.iter().map(|(key, _)| self.cost(key).0));
                let values = entries.iter().map(|(_, entry)| &entry.value);
                let (cost, known) = self.literal(NEW_MAP, values, entries.len());
                (cost.saturating_add(keys), known)
            }
            Kind::Fold(fold) => self.fold(fold),
            Kind::Bind { name, value, body } => {
                let (cost, value) = self.cost(value);
                let (more, result) = self.with([(name, value)], body);
                (sum([NEW_LIST, cost, more]), result)
            }
            Kind::OptionalMap { name, value, body, flat } => {
                // Whether there is one, the value, the result, and what binds a variable.
                let (cost, _) = self.cost(value);
                let (body, _) = self.with([(name, Known::default())], body);
                (sum([cost, 1, cost, 1, NEW_LIST, body, u64::from(!*flat)]), Known::default())
            }
        }
    }

    fn with<const N: usize>(&mut self, bound: [(&Arc<str>, Known<'s>); N], body: &Expr) -> Estimate<'s> {
        let length = self.scope.len();
        self.scope.extend(bound.map(|(name, known)| (name.clone(), known)));
        let result = self.cost(body);
        self.scope.truncate(length);
        result
    }

    fn conditional(&mut self, parts: &[Expr; 3]) -> Estimate<'s> {
        let [(condition, _), (then, a), (otherwise, b)] = [&parts[0], &parts[1], &parts[2]].map(|part| self.cost(part));
        let known = Known { size: Some(a.size().max(b.size())), scalar: a.scalar && b.scalar, ..Known::default() };
        (condition.saturating_add(then.max(otherwise)), known)
    }

    fn literal<'e>(&mut self, base: u64, values: impl Iterator<Item = &'e Expr>, count: usize) -> Estimate<'s> {
        let (mut cost, mut item) = (base, (0, true));
        for value in values {
            let (more, known) = self.cost(value);
            cost = cost.saturating_add(more);
            item = (item.0.max(known.size()), item.1 && known.scalar);
        }
        (cost, Known { item: Some(item), ..Known::sized(count as u64) })
    }

    fn indexed(&self, operand: Known<'s>) -> Known<'s> {
        match (operand.item, operand.shape) {
            (Some((size, scalar)), _) => Known { scalar, ..Known::sized(size) },
            (None, Some(shape)) => Known::at(shape.item()),
            (None, None) => Known::at(Some(self.root)),
        }
    }

    fn fold(&mut self, fold: &Fold) -> Estimate<'s> {
        let (range_cost, range) = self.cost(&fold.range);
        // Kubernetes takes the items of what is computed to be as the value that the rule is for.
        let value = range.shape.map_or(Known::at(Some(self.root)), |shape| Known::at(shape.item()));
        let is_map = range.is_map();
        let first = if is_map { Known::at(Some(&KEY)) } else { Known::SCALAR };
        let mut step = |expr: &Expr| match &fold.second {
            Some(second) => self.with([(&fold.first, first), (second, value)], expr),
            None => self.with([(&fold.first, if is_map { first } else { value })], expr),
        };
        let filter = fold.filter.as_ref().map_or(0, |filter| step(filter).0);
        let (body, result) = step(&fold.body);
        // What is made first, what a step costs beside its body, and what the result costs.
        let (begin, each, end) = match fold.kind {
            FoldKind::All => (0, 3, 1),
            FoldKind::Exists => (0, 4, 1),
            FoldKind::ExistsOne => (0, 2, 2),
            FoldKind::Filter => (NEW_LIST, NEW_LIST + 3, 1),
            FoldKind::Map => (NEW_LIST, NEW_LIST + 2, 1),
            FoldKind::TransformMap => (NEW_MAP, 3, 1),
        };
        let steps = range.size().saturating_mul(sum([filter, body, each]));
        let known = match fold.kind {
            FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne => Known::SCALAR,
            FoldKind::Filter => Known { item: range.items().or(Some((u64::MAX, false))), ..Known::sized(range.size()) },
            _ => Known { item: Some((result.size(), result.scalar)), ..Known::sized(range.size()) },
        };
        (sum([range_cost, begin, steps, end]), known)
    }

    fn call(&mut self, function: &str, method: bool, args: &[Expr]) -> Estimate<'s> {
        let estimates: Vec<_> = args.iter().map(|arg| self.cost(arg)).collect();
        let known: Vec<Known<'s>> = estimates.iter().map(|(_, known)| *known).collect();
        let (cost, result) = match known.as_slice() {
            [a, b] if function.starts_with(['_', '@']) => operator(function, a, b),
            [first, rest @ ..] => called(function, method, first, rest),
            [] => (1, plain(function)),
        };
        (sum(estimates.iter().map(|(cost, _)| *cost).chain([cost])), result)
    }
}

fn of_literal<'s>(value: &Value) -> Known<'s> {
    match value {
        Value::String(text) => Known::sized(text.chars().count() as u64),
        Value::Bytes(bytes) => Known::sized(bytes.len() as u64),
        _ => Known::SCALAR,
    }
}

fn operator<'s>(name: &str, a: &Known<'s>, b: &Known<'s>) -> Estimate<'s> {
    let compared = part(a.size().min(b.size()), TEXT);
    let together = a.size().saturating_add(b.size());
    match name {
        "_==_" | "_!=_" => (compared, Known::SCALAR),
        "_<_" | "_<=_" | "_>_" | "_>=_" if !a.scalar && !b.scalar => (compared, Known::SCALAR),
        "@in" if !b.is_map() => (b.size(), Known::SCALAR),
        "_+_" if a.is_list() || b.is_list() => (1, Known::sized(together)),
        "_+_" if !a.scalar && !b.scalar => (part(together, TEXT), Known::sized(together)),
        _ => (1, Known::SCALAR),
    }
}

/// A function or method by its first argument and the others.
fn called<'s>(name: &str, method: bool, first: &Known<'s>, rest: &[Known<'s>]) -> Estimate<'s> {
    let size = first.size();
    let read = part(size, TEXT);
    let second = rest.first().map_or(0, Known::size);
    let regex = || part(size.saturating_add(1), TEXT).saturating_mul(part(second, REGEX));
    match name {
        "startsWith" | "endsWith" => (part(second, TEXT), Known::SCALAR),
        "contains" => (read.saturating_mul(part(second, TEXT)), Known::SCALAR),
        "matches" => (regex(), Known::SCALAR),
        "find" | "findAll" => (regex(), Known::sized(size)),
        "bytes" if !first.scalar => (read, Known::sized(size)),
        "string" if first.shape.is_some_and(|shape| matches!(shape.parts, Parts::Bytes | Parts::Any)) => {
            (read, Known::sized(size))
        }
        "lowerAscii" | "upperAscii" | "substring" | "trim" | "strings.quote" => (read, Known::sized(size)),
        "split" => (part(size.saturating_mul(2), TEXT), Known::sized(size)),
        "replace" => replace(size, second, rest.get(1).map_or(0, Known::size)),
        "join" => join(first, second),
        "format" => (read, Known::default()),
        "indexOf" | "lastIndexOf" if !first.is_list() => (read, Known::SCALAR),
        "isSorted" | "indexOf" | "lastIndexOf" => (first.walk(), Known::SCALAR),
        "sum" | "min" | "max" => {
            let (size, scalar) = first.items().unwrap_or((u64::MAX, false));
            (first.walk(), if scalar { Known::SCALAR } else { Known::sized(size) })
        }
        "sets.contains" | "sets.intersects" => (size.saturating_mul(second).saturating_add(1), Known::SCALAR),
        "sets.equivalent" => (size.saturating_mul(second).saturating_mul(2).saturating_add(1), Known::SCALAR),
        "url" => (read, Known::sized(size)),
        "isIP" | "isCIDR" | "isQuantity" | "quantity" | "cidr" => (read, Known::SCALAR),
        "ip" if !method => (read, Known::SCALAR),
        "ip.isCanonical" => (read.saturating_mul(2), Known::SCALAR),
        "containsIP" => (in_network(rest, ADDRESS_IN_NETWORK), Known::SCALAR),
        "containsCIDR" => (in_network(rest, NETWORK_IN_NETWORK), Known::SCALAR),
        "dyn" => (1, *first),
        "distinct" | "sort" | "reverse" | "slice" | "flatten" if first.is_list() => (size, *first),
        _ => (1, plain(name)),
    }
}

fn in_network(rest: &[Known<'_>], base: u64) -> u64 {
    let text = rest.first().filter(|known| !known.scalar);
    text.map_or(0, |known| part(known.size(), TEXT)).saturating_add(base)
}

/// The text is read, and the result, which may be longer, is written.
fn replace<'s>(size: u64, old: u64, new: u64) -> Estimate<'s> {
    let written = if new > old { size.div_ceil(old.max(1)).saturating_mul(new) } else { size };
    (part(size.saturating_add(written), TEXT), Known::sized(size))
}

fn join<'s>(list: &Known<'s>, separator: u64) -> Estimate<'s> {
    let item = list.items().map_or(u64::MAX, |(size, _)| size);
    let written = list.size().saturating_mul(item.saturating_add(separator));
    (part(written, TEXT), Known::sized(written))
}

/// The result of a function that says nothing about its size.
fn plain<'s>(name: &str) -> Known<'s> {
    let is_scalar = |type_: &Type| matches!(type_, Type::Plain(name) if SCALARS.contains(name));
    let all = overloads(name);
    Known { scalar: !all.is_empty() && all.iter().all(|one| is_scalar(&one.result)), ..Known::default() }
}

fn sum(costs: impl IntoIterator<Item = u64>) -> u64 {
    costs.into_iter().fold(0, u64::saturating_add)
}

/// A share of a size, rounded up; what is unknown stays as large as can be.
fn part(size: u64, share: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "saturates"
    )]
    let part = (size as f64 * share).ceil() as u64;
    part
}

#[cfg(test)]
mod tests;
