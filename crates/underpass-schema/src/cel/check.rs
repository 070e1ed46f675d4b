//! Refuses, before there is a document, what cannot work: names that nothing declares, operators on the wrong types.

use super::CompileError;
use super::ast::{Entry, Expr, Fold, FoldKind, Kind};
use super::eval::type_named;
use super::signatures::{Form, overloads};
use super::types::Type;
use super::value::Value;

type Checked = Result<Type, CompileError>;

pub(crate) fn check(expr: &Expr, variables: &[(&str, Type)], want: &Type) -> Result<(), CompileError> {
    let scope = variables.iter().map(|(name, type_)| ((*name).to_owned(), type_.clone())).collect();
    let found = Checker { scope }.infer(expr)?;
    if found.fits(want) && found != Type::NULL {
        return Ok(());
    }
    Err(CompileError::check(expr.offset, format!("must evaluate to a {want}, but is of type {found}")))
}

struct Checker {
    scope: Vec<(String, Type)>,
}

impl Checker {
    fn infer(&mut self, expr: &Expr) -> Checked {
        match &expr.kind {
            Kind::Literal(value) => Ok(of_literal(value)),
            Kind::Ident(name) => self.ident(name, expr.offset),
            Kind::Select { operand, field, optional } => {
                let operand = self.infer(operand)?;
                let found = select(&operand, field, expr.offset)?;
                Ok(if *optional { wrapped(found) } else { found })
            }
            Kind::Has { operand, field } => {
                let operand = self.infer(operand)?;
                select(&operand, field, expr.offset).map(|_| Type::BOOL)
            }
            Kind::Index { operand, index, optional } => {
                let (operand, index) = (self.infer(operand)?, self.infer(index)?);
                let found = item(&operand, &index, expr.offset)?;
                Ok(if *optional { wrapped(found) } else { found })
            }
            Kind::Call { function, method, args } => self.call(function, *method, args, expr.offset),
            Kind::And(parts) | Kind::Or(parts) => self.logic(parts),
            Kind::Conditional(parts) => self.conditional(parts),
            Kind::List(entries) => {
                let item = self.entries(entries.iter())?;
                Ok(Type::list(item))
            }
            Kind::Map(entries) => self.map(entries),
            Kind::Fold(fold) => self.fold(fold),
            Kind::Bind { name, value, body } => {
                let value = self.infer(value)?;
                self.with(&[(name, value)], body)
            }
            Kind::OptionalMap { name, value, body, flat } => {
                let inner = match self.infer(value)? {
                    Type::Optional(inner) => Type::clone(&inner),
                    Type::Dyn => Type::Dyn,
                    other => return Err(no_overload("optMap", true, &[other], expr.offset)),
                };
                let result = self.with(&[(name, inner)], body)?;
                Ok(if *flat { result } else { Type::optional(result) })
            }
        }
    }

    fn ident(&self, name: &str, offset: usize) -> Checked {
        let known = self.scope.iter().rev().find(|(known, _)| known == name);
        match (known, type_named(name)) {
            (Some((_, type_)), _) => Ok(type_.clone()),
            (None, Some(_)) => Ok(Type::TYPE),
            (None, None) => {
                Err(CompileError::check(offset, format!("undeclared reference to '{name}' (in container '')")))
            }
        }
    }

    fn call(&mut self, function: &str, method: bool, args: &[Expr], offset: usize) -> Checked {
        let args = args.iter().map(|arg| self.infer(arg)).collect::<Result<Vec<_>, _>>()?;
        let all = overloads(function);
        if all.is_empty() {
            let message = format!("undeclared reference to '{function}' (in container '')");
            return Err(CompileError::check(offset, message));
        }
        let wrong = if method { Form::Function } else { Form::Method };
        let mut results = all.iter().filter(|overload| overload.form != wrong).filter_map(|overload| {
            let mut found = [None, None];
            let fits = overload.args.len() == args.len()
                && overload.args.iter().zip(&args).all(|(want, actual)| want.accepts(actual, &mut found));
            fits.then(|| overload.result.resolved(&found))
        });
        let first = results.next().ok_or_else(|| no_overload(function, method, &args, offset))?;
        // What is dynamic may fit several overloads; only what they agree on is known.
        Ok(if results.all(|other| other == first) { first } else { Type::Dyn })
    }

    fn logic(&mut self, parts: &[Expr]) -> Checked {
        for part in parts {
            self.boolean(&[] as &[(&str, Type)], part)?;
        }
        Ok(Type::BOOL)
    }

    fn conditional(&mut self, parts: &[Expr; 3]) -> Checked {
        let [condition, then, otherwise] = parts;
        let types = [self.infer(condition)?, self.infer(then)?, self.infer(otherwise)?];
        let joined = types[1].clone().join(types[2].clone()).filter(|_| types[0].fits(&Type::BOOL));
        joined.ok_or_else(|| no_overload("_?_:_", false, &types, condition.offset))
    }

    /// The type of the items of a literal: mixed items are dynamic.
    fn entries<'e>(&mut self, entries: impl Iterator<Item = &'e Entry>) -> Checked {
        let mut joined: Option<Type> = None;
        for entry in entries {
            let found = match (self.infer(&entry.value)?, entry.optional) {
                (Type::Optional(inner), true) => Type::clone(&inner),
                (found, _) => found,
            };
            joined = Some(match joined {
                Some(known) => known.join(found).unwrap_or(Type::Dyn),
                None => found,
            });
        }
        Ok(joined.unwrap_or(Type::Dyn))
    }

    fn map(&mut self, entries: &[(Expr, Entry)]) -> Checked {
        let mut key = None;
        for (expr, _) in entries {
            let found = self.infer(expr)?;
            key = Some(match key {
                Some(known) => Type::join(known, found).unwrap_or(Type::Dyn),
                None => found,
            });
        }
        let value = self.entries(entries.iter().map(|(_, entry)| entry))?;
        Ok(Type::map(key.unwrap_or(Type::Dyn), value))
    }

    fn fold(&mut self, fold: &Fold) -> Checked {
        let (key, value, is_list) = match self.infer(&fold.range)? {
            Type::List(item) => (Type::INT, Type::clone(&item), true),
            Type::Map(key, value) => (Type::clone(&key), Type::clone(&value), false),
            Type::Dyn => (Type::Dyn, Type::Dyn, true),
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                return Err(CompileError::check(fold.range.offset, message));
            }
        };
        let alone = if is_list { value.clone() } else { key.clone() };
        let bound = match &fold.second {
            Some(second) => vec![(&*fold.first, key.clone()), (&**second, value)],
            None => vec![(&*fold.first, alone.clone())],
        };
        if let Some(filter) = &fold.filter {
            self.boolean(&bound, filter)?;
        }
        match fold.kind {
            FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne => self.boolean(&bound, &fold.body),
            FoldKind::Filter => self.boolean(&bound, &fold.body).map(|_| Type::list(alone)),
            FoldKind::Map => self.with(&bound, &fold.body).map(Type::list),
            FoldKind::TransformMap => self.with(&bound, &fold.body).map(|value| Type::map(key, value)),
        }
    }

    fn boolean(&mut self, bound: &[(&str, Type)], body: &Expr) -> Checked {
        let found = self.with(bound, body)?;
        if found.fits(&Type::BOOL) {
            return Ok(Type::BOOL);
        }
        Err(CompileError::check(body.offset, format!("expected type 'bool' but found '{found}'")))
    }

    fn with(&mut self, bound: &[(impl AsRef<str>, Type)], body: &Expr) -> Checked {
        let length = self.scope.len();
        self.scope.extend(bound.iter().map(|(name, type_)| (name.as_ref().to_owned(), type_.clone())));
        let result = self.infer(body);
        self.scope.truncate(length);
        result
    }
}

fn of_literal(value: &Value) -> Type {
    match value {
        Value::Bool(_) => Type::BOOL,
        Value::Int(_) => Type::INT,
        Value::Uint(_) => Type::UINT,
        Value::Double(_) => Type::DOUBLE,
        Value::String(_) => Type::STRING,
        Value::Bytes(_) => Type::BYTES,
        _ => Type::NULL,
    }
}

fn select(operand: &Type, field: &str, offset: usize) -> Checked {
    match operand {
        Type::Object(fields) => {
            let found = fields.get(field).cloned();
            found.ok_or_else(|| CompileError::check(offset, format!("undefined field '{field}'")))
        }
        Type::Map(_, value) => Ok(Type::clone(value)),
        Type::Optional(inner) => select(inner, field, offset).map(wrapped),
        Type::Dyn => Ok(Type::Dyn),
        other => Err(CompileError::check(offset, format!("type '{other}' does not support field selection"))),
    }
}

fn item(operand: &Type, index: &Type, offset: usize) -> Checked {
    match operand {
        Type::List(item) if index.fits(&Type::INT) => Ok(Type::clone(item)),
        Type::Map(key, value) if index.fits(key) => Ok(Type::clone(value)),
        Type::Optional(inner) => item(inner, index, offset).map(wrapped),
        Type::Dyn => Ok(Type::Dyn),
        _ => Err(no_overload("_[_]", false, &[operand.clone(), index.clone()], offset)),
    }
}

/// Looking into an optional gives an optional, not an optional of an optional.
fn wrapped(type_: Type) -> Type {
    if matches!(type_, Type::Optional(_)) { type_ } else { Type::optional(type_) }
}

fn no_overload(function: &str, method: bool, args: &[Type], offset: usize) -> CompileError {
    let list = |types: &[Type]| types.iter().map(Type::to_string).collect::<Vec<_>>().join(", ");
    let applied = match args {
        [receiver, rest @ ..] if method => format!("{receiver}.({})", list(rest)),
        all => format!("({})", list(all)),
    };
    CompileError::check(offset, format!("found no matching overload for '{function}' applied to '{applied}'"))
}
