//! The syntax tree of an expression.

use std::sync::Arc;

use super::value::Value;

/// One expression and where it begins. `depth` is kept so that neither the checker nor the evaluator can recurse without bound.
#[derive(Debug, Clone)]
pub(crate) struct Expr {
    pub(crate) kind: Kind,
    pub(crate) offset: usize,
    pub(crate) depth: u16,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Literal(Value),
    Ident(Arc<str>),
    /// `operand.field`, `operand.?field`
    Select {
        operand: Box<Expr>,
        field: Arc<str>,
        optional: bool,
    },
    /// `has(operand.field)`
    Has {
        operand: Box<Expr>,
        field: Arc<str>,
    },
    /// `operand[index]`, `operand[?index]`
    Index {
        operand: Box<Expr>,
        index: Box<Expr>,
        optional: bool,
    },
    /// A function, an operator (by its canonical name, `_+_`), or a method, whose receiver is then the first argument.
    Call {
        function: Arc<str>,
        method: bool,
        args: Vec<Expr>,
    },
    /// Chains are flat, so that a long one is not a deep one.
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Conditional(Box<[Expr; 3]>),
    /// `optional`: the item is left out where its value is none.
    List(Vec<Entry>),
    Map(Vec<(Expr, Entry)>),
    Fold(Box<Fold>),
    /// `cel.bind(name, value, body)`
    Bind {
        name: Arc<str>,
        value: Box<Expr>,
        body: Box<Expr>,
    },
    /// `value.optMap(name, body)`; `flat` where the body itself is optional.
    OptionalMap {
        name: Arc<str>,
        value: Box<Expr>,
        body: Box<Expr>,
        flat: bool,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// A macro over the items of a list or the keys of a map. With two variables they are index and item, or key and value.
#[derive(Debug, Clone)]
pub(crate) struct Fold {
    pub(crate) kind: FoldKind,
    pub(crate) range: Expr,
    pub(crate) first: Arc<str>,
    pub(crate) second: Option<Arc<str>>,
    pub(crate) filter: Option<Expr>,
    pub(crate) body: Expr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoldKind {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
    TransformMap,
}

impl Expr {
    /// The expressions directly below.
    pub(crate) fn children(&self) -> Vec<&Expr> {
        match &self.kind {
            Kind::Literal(_) | Kind::Ident(_) => Vec::new(),
            Kind::Select { operand, .. } | Kind::Has { operand, .. } => vec![operand],
            Kind::Index { operand, index, .. } => vec![operand, index],
            Kind::Call { args, .. } | Kind::And(args) | Kind::Or(args) => args.iter().collect(),
            Kind::Conditional(parts) => parts.iter().collect(),
            Kind::List(entries) => entries.iter().map(|entry| &entry.value).collect(),
            Kind::Map(entries) => entries.iter().flat_map(|(key, entry)| [key, &entry.value]).collect(),
            Kind::Fold(fold) => [&fold.range, &fold.body].into_iter().chain(&fold.filter).collect(),
            Kind::Bind { value, body, .. } | Kind::OptionalMap { value, body, .. } => vec![value, body],
        }
    }

    /// Whether the expression names a variable anywhere.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        matches!(&self.kind, Kind::Ident(ident) if &**ident == name)
            || self.children().into_iter().any(|child| child.mentions(name))
    }
}
