//! The Common Expression Language, as Kubernetes' validation rules use it: parsed, checked against the schema, and run with a bound on
//! its cost. `docs/decisions/0002-cel.md` says why it is our own.

mod ast;
mod check;
mod cost;
pub(crate) mod declare;
mod eval;
mod functions;
pub(crate) mod ingest;
mod lexer;
mod macros;
mod parser;
mod quantity;
mod regexes;
pub(crate) mod shape;
mod signatures;
pub(crate) mod time;
mod types;
pub(crate) mod url;
pub(crate) mod value;

use std::sync::Arc;

pub(crate) use eval::Budget;
pub(crate) use types::Type;

use ast::Expr;
use eval::Evaluator;
use regexes::Regexes;
use shape::Shape;
use value::Value;

/// An expression that parsed and checked.
#[derive(Debug)]
pub(crate) struct Program {
    expr: Expr,
    regexes: Regexes,
}

/// Why an expression cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct CompileError {
    offset: usize,
    message: String,
}

/// Why a run ended without a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EvalError {
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
    #[error("{0}")]
    Failed(String),
}

impl Program {
    /// Parses and checks `source`. The error is the text that a person who wrote the rule gets to see.
    pub(crate) fn compile(source: &str, variables: &[(&str, Type)], want: &Type) -> Result<Self, String> {
        compile(source, variables, want).map_err(|error| error.render(source))
    }

    pub(crate) fn mentions(&self, variable: &str) -> bool {
        self.expr.mentions(variable)
    }

    /// The most that one run on a value of this shape can cost.
    pub(crate) fn cost(&self, shape: &Shape) -> u64 {
        cost::estimate(&self.expr, shape)
    }

    pub(crate) fn run(&self, variables: &[(&str, Value)], budget: &mut Budget) -> Result<Value, EvalError> {
        let variables = variables.iter().map(|(name, value)| (Arc::from(*name), value.clone())).collect();
        Evaluator::new(variables, &self.regexes, budget).eval(&self.expr)
    }
}

impl CompileError {
    fn syntax(offset: usize, message: impl Into<String>) -> Self {
        Self { offset, message: format!("Syntax error: {}", message.into()) }
    }

    fn check(offset: usize, message: impl Into<String>) -> Self {
        Self { offset, message: message.into() }
    }

    /// With the line of the source and a mark below the place, as CEL's tools print it.
    fn render(&self, source: &str) -> String {
        let before = source.get(..self.offset).unwrap_or(source);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.matches('\n').count() + 1;
        let column = before[line_start..].chars().count();
        let text = source[line_start..].lines().next().unwrap_or_default();
        let dots = ".".repeat(column);
        format!("compilation failed: ERROR: <input>:{line}:{}: {}\n | {text}\n | {dots}^", column + 1, self.message)
    }
}

impl EvalError {
    fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }
}

fn compile(source: &str, variables: &[(&str, Type)], want: &Type) -> Result<Program, CompileError> {
    let expr = parser::parse(source)?;
    check::check(&expr, variables, want)?;
    let regexes = Regexes::collect(&expr)?;
    Ok(Program { expr, regexes })
}

#[cfg(test)]
mod tests;
