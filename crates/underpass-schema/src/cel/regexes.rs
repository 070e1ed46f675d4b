//! Regular expressions in rules. Patterns written in a rule are compiled with it; those that a document brings are compiled when met.

use std::collections::HashMap;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use super::ast::{Expr, Kind};
use super::value::Value;
use super::{CompileError, EvalError};

/// The compiled form grows with counted repetitions (`(a{1000}){1000}`); the matching itself is linear.
const MAX_COMPILED_BYTES: usize = 1 << 20;
/// What compiling a pattern costs, in steps per byte of it.
pub(crate) const COMPILE_COST: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct Regexes(HashMap<String, Arc<Regex>>);

impl Regexes {
    /// Compiles the patterns that stand in the expression; a wrong one is an error of the rule, not of each document.
    pub(crate) fn collect(expr: &Expr) -> Result<Self, CompileError> {
        let mut known = Self::default();
        known.add(expr)?;
        Ok(known)
    }

    fn add(&mut self, expr: &Expr) -> Result<(), CompileError> {
        if let Kind::Call { function, args, .. } = &expr.kind
            && matches!(&**function, "matches" | "find" | "findAll")
            && let Some(Expr { kind: Kind::Literal(Value::String(pattern)), offset, .. }) = args.get(1)
        {
            let regex = build(pattern).map_err(|error| CompileError::check(*offset, error))?;
            self.0.insert(pattern.to_string(), Arc::new(regex));
        }
        expr.children().into_iter().try_for_each(|child| self.add(child))
    }

    /// Shared, not cloned: a clone would begin with an empty cache of its automaton.
    pub(crate) fn known(&self, pattern: &str) -> Option<Arc<Regex>> {
        self.0.get(pattern).cloned()
    }
}

pub(crate) fn compile(pattern: &str) -> Result<Arc<Regex>, EvalError> {
    build(pattern).map(Arc::new).map_err(EvalError::failed)
}

fn build(pattern: &str) -> Result<Regex, String> {
    let regex = RegexBuilder::new(pattern).size_limit(MAX_COMPILED_BYTES).build();
    regex.map_err(|error| format!("error parsing regexp: {}", error.to_string().lines().last().unwrap_or_default()))
}
