//! Runs a syntax tree, counting steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::EvalError;
use super::ast::{Entry, Expr, Fold, FoldKind, Kind};
use super::functions;
use super::regexes::Regexes;
use super::value::{Key, Value};

/// Steps that one rule may take on one value; Kubernetes' own number.
const CALL_LIMIT: u64 = 1_000_000;
/// Steps that all rules of one document may take together; Kubernetes' own number.
const DOCUMENT_LIMIT: u64 = 10_000_000;

/// What is left of a document's steps. Memory is bounded with it: whatever builds a value pays for its size first.
#[derive(Debug)]
pub(crate) struct Budget {
    document: u64,
    call: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { document: DOCUMENT_LIMIT, call: CALL_LIMIT }
    }
}

impl Budget {
    /// Begins another rule: it has its own limit within the document's.
    pub(crate) fn begin_call(&mut self) {
        self.call = CALL_LIMIT.min(self.document);
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.document == 0
    }

    pub(crate) fn spend(&mut self, steps: usize) -> Result<(), EvalError> {
        let steps = steps as u64;
        self.document = self.document.saturating_sub(steps);
        self.call = self.call.checked_sub(steps).ok_or(EvalError::CostLimit)?;
        Ok(())
    }
}

pub(crate) type Outcome = Result<Value, EvalError>;

pub(crate) struct Evaluator<'e> {
    variables: Vec<(Arc<str>, Value)>,
    regexes: &'e Regexes,
    budget: &'e mut Budget,
}

impl<'e> Evaluator<'e> {
    pub(crate) fn new(variables: Vec<(Arc<str>, Value)>, regexes: &'e Regexes, budget: &'e mut Budget) -> Self {
        budget.begin_call();
        Self { variables, regexes, budget }
    }

    pub(crate) fn spend(&mut self, steps: usize) -> Result<(), EvalError> {
        self.budget.spend(steps)
    }

    pub(crate) fn regexes(&self) -> &'e Regexes {
        self.regexes
    }

    pub(crate) fn eval(&mut self, expr: &Expr) -> Outcome {
        self.spend(1)?;
        match &expr.kind {
            Kind::Literal(value) => Ok(value.clone()),
            Kind::Ident(name) => self.ident(name),
            Kind::Select { operand, field, optional } => self.select(operand, field, *optional),
            Kind::Has { operand, field } => self.has(operand, field),
            Kind::Index { operand, index, optional } => self.index(operand, index, *optional),
            Kind::Call { function, args, .. } => self.call(function, args),
            Kind::And(parts) => self.logic(parts, false),
            Kind::Or(parts) => self.logic(parts, true),
            Kind::Conditional(parts) => self.conditional(parts),
            Kind::List(entries) => self.list(entries),
            Kind::Map(entries) => self.map(entries),
            Kind::Fold(fold) => self.fold(fold),
            Kind::Bind { name, value, body } => {
                let value = self.eval(value)?;
                self.with(&[(name, value)], |evaluator| evaluator.eval(body))
            }
            Kind::OptionalMap { name, value, body, flat } => self.optional_map(name, value, body, *flat),
        }
    }

    fn ident(&self, name: &Arc<str>) -> Outcome {
        let known = self.variables.iter().rev().find(|(known, _)| known == name);
        match (known, type_named(name)) {
            (Some((_, value)), _) => Ok(value.clone()),
            (None, Some(type_)) => Ok(Value::Type(type_)),
            (None, None) => Err(EvalError::failed(format!("undeclared reference to '{name}'"))),
        }
    }

    fn select(&mut self, operand: &Expr, field: &Arc<str>, optional: bool) -> Outcome {
        let operand = self.eval(operand)?;
        find(&operand, &Value::String(field.clone()), optional)
    }

    fn index(&mut self, operand: &Expr, index: &Expr, optional: bool) -> Outcome {
        let operand = self.eval(operand)?;
        let index = self.eval(index)?;
        find(&operand, &index, optional)
    }

    fn has(&mut self, operand: &Expr, field: &Arc<str>) -> Outcome {
        let operand = self.eval(operand)?;
        match find(&operand, &Value::String(field.clone()), true)? {
            Value::Optional(found) => Ok(Value::Bool(found.is_some())),
            _ => Err(no_overload()),
        }
    }

    fn call(&mut self, function: &Arc<str>, args: &[Expr]) -> Outcome {
        let args = args.iter().map(|arg| self.eval(arg)).collect::<Result<Vec<_>, _>>()?;
        functions::call(self, function, &args)
    }

    /// `&&` and `||` in any order: an error counts only where no other operand decides.
    fn logic(&mut self, parts: &[Expr], decisive: bool) -> Outcome {
        let mut error = None;
        for part in parts {
            match self.eval(part) {
                Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => error = error.or_else(|| Some(no_overload())),
                Err(EvalError::CostLimit) => return Err(EvalError::CostLimit),
                Err(failed) => error = error.or(Some(failed)),
            }
        }
        error.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn conditional(&mut self, parts: &[Expr; 3]) -> Outcome {
        match self.eval(&parts[0])? {
            Value::Bool(true) => self.eval(&parts[1]),
            Value::Bool(false) => self.eval(&parts[2]),
            _ => Err(no_overload()),
        }
    }

    fn list(&mut self, entries: &[Entry]) -> Outcome {
        let mut items = Vec::with_capacity(entries.len());
        for entry in entries {
            items.extend(self.entry(entry)?);
        }
        Ok(Value::list(items))
    }

    fn map(&mut self, entries: &[(Expr, Entry)]) -> Outcome {
        let mut map = BTreeMap::new();
        for (key, entry) in entries {
            let key = self.eval(key)?.as_key().ok_or_else(|| EvalError::failed("unsupported key type"))?;
            if let Some(value) = self.entry(entry)?
                && map.insert(key, value).is_some()
            {
                return Err(EvalError::failed("duplicate map key"));
            }
        }
        Ok(Value::Map(Arc::new(map)))
    }

    fn entry(&mut self, entry: &Entry) -> Result<Option<Value>, EvalError> {
        match (self.eval(&entry.value)?, entry.optional) {
            (Value::Optional(value), true) => Ok(value.map(Arc::unwrap_or_clone)),
            (_, true) => Err(no_overload()),
            (value, false) => Ok(Some(value)),
        }
    }

    fn optional_map(&mut self, name: &Arc<str>, value: &Expr, body: &Expr, flat: bool) -> Outcome {
        let Value::Optional(value) = self.eval(value)? else { return Err(no_overload()) };
        let Some(value) = value else { return Ok(Value::NONE) };
        let result = self.with(&[(name, Arc::unwrap_or_clone(value))], |evaluator| evaluator.eval(body))?;
        Ok(if flat { result } else { Value::some(result) })
    }

    fn with<T>(&mut self, bound: &[(&Arc<str>, Value)], run: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.variables.len();
        self.variables.extend(bound.iter().map(|(name, value)| ((*name).clone(), value.clone())));
        let result = run(self);
        self.variables.truncate(length);
        result
    }

    fn fold(&mut self, fold: &Fold) -> Outcome {
        let range = self.eval(&fold.range)?;
        let pairs: Box<dyn Iterator<Item = (Value, Value)>> = match &range {
            Value::List(list) => {
                Box::new(list.items.iter().enumerate().map(|(index, item)| (Value::Int(index as i64), item.clone())))
            }
            Value::Map(map) => Box::new(map.iter().map(|(key, value)| (key.clone().into(), value.clone()))),
            _ => return Err(no_overload()),
        };
        // With one variable a list gives its items and a map its keys.
        let is_list = matches!(range, Value::List(_));
        match fold.kind {
            FoldKind::All => self.quantify(fold, pairs, is_list, false),
            FoldKind::Exists => self.quantify(fold, pairs, is_list, true),
            FoldKind::ExistsOne => self.exists_one(fold, pairs, is_list),
            FoldKind::Filter | FoldKind::Map => self.collect_list(fold, pairs, is_list),
            FoldKind::TransformMap => self.collect_map(fold, pairs),
        }
    }

    fn step(&mut self, fold: &Fold, body: &Expr, pair: &(Value, Value), is_list: bool) -> Outcome {
        match &fold.second {
            Some(second) => {
                let bound = [(&fold.first, pair.0.clone()), (second, pair.1.clone())];
                self.with(&bound, |evaluator| evaluator.eval(body))
            }
            None => {
                let item = if is_list { &pair.1 } else { &pair.0 };
                self.with(&[(&fold.first, item.clone())], |evaluator| evaluator.eval(body))
            }
        }
    }

    fn quantify(&mut self, fold: &Fold, pairs: Pairs<'_>, is_list: bool, decisive: bool) -> Outcome {
        let mut error = None;
        for pair in pairs {
            match self.step(fold, &fold.body, &pair, is_list) {
                Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => error = error.or_else(|| Some(no_overload())),
                Err(EvalError::CostLimit) => return Err(EvalError::CostLimit),
                Err(failed) => error = error.or(Some(failed)),
            }
        }
        error.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn exists_one(&mut self, fold: &Fold, pairs: Pairs<'_>, is_list: bool) -> Outcome {
        let mut count = 0;
        for pair in pairs {
            count += usize::from(truth(&self.step(fold, &fold.body, &pair, is_list)?)?);
        }
        Ok(Value::Bool(count == 1))
    }

    fn collect_list(&mut self, fold: &Fold, pairs: Pairs<'_>, is_list: bool) -> Outcome {
        let mut items = Vec::new();
        for pair in pairs {
            if let Some(filter) = &fold.filter
                && !truth(&self.step(fold, filter, &pair, is_list)?)?
            {
                continue;
            }
            let result = self.step(fold, &fold.body, &pair, is_list)?;
            match fold.kind {
                FoldKind::Filter if !truth(&result)? => {}
                FoldKind::Filter => items.push(if is_list { pair.1 } else { pair.0 }),
                _ => items.push(result),
            }
        }
        Ok(Value::list(items))
    }

    fn collect_map(&mut self, fold: &Fold, pairs: Pairs<'_>) -> Outcome {
        let mut map = BTreeMap::new();
        for pair in pairs {
            if let Some(filter) = &fold.filter
                && !truth(&self.step(fold, filter, &pair, true)?)?
            {
                continue;
            }
            let value = self.step(fold, &fold.body, &pair, true)?;
            map.insert(pair.0.as_key().ok_or_else(no_overload)?, value);
        }
        Ok(Value::Map(Arc::new(map)))
    }
}

type Pairs<'r> = Box<dyn Iterator<Item = (Value, Value)> + 'r>;

pub(crate) fn no_overload() -> EvalError {
    EvalError::failed("no such overload")
}

/// The type that a name stands for where it is not a variable.
pub(crate) fn type_named(name: &str) -> Option<&'static str> {
    ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type"]
        .into_iter()
        .find(|known| *known == name)
}

fn truth(value: &Value) -> Result<bool, EvalError> {
    if let Value::Bool(value) = value { Ok(*value) } else { Err(no_overload()) }
}

/// `operand[index]` and `operand.field`. Looking into an optional gives an optional, whether asked for or not.
fn find(operand: &Value, index: &Value, optional: bool) -> Outcome {
    if let Value::Optional(inner) = operand {
        return inner.as_ref().map_or(Ok(Value::NONE), |inner| find(inner, index, true));
    }
    let found = match operand {
        Value::Map(map) => map.get(&index.as_key().ok_or_else(no_overload)?),
        Value::List(list) => match index.as_key() {
            Some(Key::Int(at)) => usize::try_from(at).ok().and_then(|at| list.items.get(at)),
            _ => return Err(no_overload()),
        },
        _ => return Err(no_overload()),
    };
    match (found, optional) {
        (Some(value), true) => Ok(Value::some(value.clone())),
        (None, true) => Ok(Value::NONE),
        (Some(value), false) => Ok(value.clone()),
        (None, false) => Err(missing(operand, index)),
    }
}

fn missing(operand: &Value, index: &Value) -> EvalError {
    let index = match index {
        Value::String(text) => text.to_string(),
        Value::Int(at) => at.to_string(),
        Value::Uint(at) => at.to_string(),
        other => format!("{other:?}"),
    };
    let what = if matches!(operand, Value::List(_)) { "index out of bounds" } else { "no such key" };
    EvalError::failed(format!("{what}: {index}"))
}
