//! `x-kubernetes-validations`: which rules run on which value, with which old value, and what they say when they fail.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cel::declare::declare;
use crate::cel::ingest::ingest;
use crate::cel::value::Value as CelValue;
use crate::cel::{Budget, EvalError, Program, Type};
use crate::field_path::FieldPath;
use crate::keywords::OldItems;
use crate::{AdditionalProperties, ErrorKind, FieldError, Path, Rule, Schema};

/// The rules of a schema, as a tree of the nodes that have any, compiled.
#[derive(Debug)]
pub(crate) struct RuleTree {
    rules: Vec<CompiledRule>,
    whole_object: bool,
    properties: BTreeMap<String, RuleTree>,
    additional: Option<Box<RuleTree>>,
    items: Option<Box<RuleTree>>,
}

/// A rule with its programs. One that does not compile is kept: it fails every value, with the reason.
#[derive(Debug)]
pub(crate) struct CompiledRule {
    rule: Rule,
    pub(crate) program: Result<Program, String>,
    pub(crate) message: Option<Result<Program, String>>,
    pub(crate) field_path: Option<Result<FieldPath, String>>,
    is_transition: bool,
}

impl RuleTree {
    /// `None` where neither the node nor anything below it has a rule.
    pub(crate) fn compile(schema: &Schema, whole_object: bool) -> Option<Self> {
        let below = |node: &Schema| Self::compile(node, node.embedded_resource);
        let properties: BTreeMap<_, _> =
            schema.properties.iter().filter_map(|(name, node)| Some((name.clone(), below(node)?))).collect();
        let additional = match &schema.additional_properties {
            Some(AdditionalProperties::Schema(node)) => below(node).map(Box::new),
            _ => None,
        };
        let items = schema.items.as_deref().and_then(below).map(Box::new);
        let has_below = !properties.is_empty() || additional.is_some() || items.is_some();
        if schema.rules.is_empty() && !has_below {
            return None;
        }
        let rules = compile_rules(schema, whole_object);
        Some(Self { rules, whole_object, properties, additional, items })
    }

    pub(crate) fn check(&self, schema: &Schema, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        let mut run = Run { budget: Budget::default(), errors, stopped: false };
        run.node(self, schema, &Change::of(new, old), &Path::root());
    }
}

/// Runs the rules of a part of a document that has no old value, such as a default.
pub(crate) fn check_at(schema: &Schema, value: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(tree) = RuleTree::compile(schema, schema.embedded_resource) {
        let mut run = Run { budget: Budget::default(), errors: &mut errors, stopped: false };
        run.node(&tree, schema, &Change::of(value, None), path);
    }
    errors
}

pub(crate) fn compile_rules(schema: &Schema, whole_object: bool) -> Vec<CompiledRule> {
    if schema.rules.is_empty() {
        return Vec::new();
    }
    let type_ = declare(schema, whole_object);
    schema.rules.iter().map(|rule| compile_rule(rule, schema, type_.as_ref())).collect()
}

fn compile_rule(rule: &Rule, schema: &Schema, type_: Option<&Type>) -> CompiledRule {
    let compile = |source: &str, want: &Type| {
        let type_ = type_.ok_or("rules need a schema with a declared type")?.clone();
        let old = if rule.optional_old_self { Type::optional(type_.clone()) } else { type_.clone() };
        Program::compile(source, &[("self", type_), ("oldSelf", old)], want)
    };
    let program = compile(&rule.rule, &Type::BOOL);
    CompiledRule {
        is_transition: program.as_ref().is_ok_and(|program| program.mentions("oldSelf")),
        program,
        message: rule.message_expression.as_deref().map(|source| compile(source, &Type::STRING)),
        field_path: rule.field_path.as_deref().map(|path| FieldPath::parse(path, schema)),
        rule: rule.clone(),
    }
}

/// One document under all rules.
struct Run<'r> {
    budget: Budget,
    errors: &'r mut Vec<FieldError>,
    stopped: bool,
}

/// A value and the one that it replaces, where the two can be told to be the same thing.
struct Change<'v> {
    new: &'v Value,
    old: Option<&'v Value>,
    /// Nothing changed here or in something around it; so an item of a list without identities can be unchanged, too.
    unchanged: bool,
}

impl<'v> Change<'v> {
    fn of(new: &'v Value, old: Option<&'v Value>) -> Self {
        let old = old.filter(|old| !old.is_null());
        Self { new, old, unchanged: old == Some(new) }
    }

    fn below(&self, new: &'v Value, old: Option<&'v Value>) -> Self {
        if self.unchanged {
            return Self { new, old: old.filter(|old| !old.is_null()), unchanged: true };
        }
        Self::of(new, old)
    }
}

impl Run<'_> {
    fn node(&mut self, tree: &RuleTree, schema: &Schema, change: &Change<'_>, path: &Path) {
        if change.new.is_null() || self.stopped {
            return;
        }
        self.rules(tree, schema, change, path);
        match change.new {
            Value::Object(map) => {
                let old = change.old.and_then(Value::as_object);
                for (name, value) in map {
                    let change = change.below(value, old.and_then(|old| old.get(name)));
                    if let (Some(tree), Some(node)) = (tree.properties.get(name), schema.properties.get(name)) {
                        self.node(tree, node, &change, &path.field(name));
                    } else if let (Some(tree), Some(node)) = (&tree.additional, schema.field(name)) {
                        self.node(tree, node, &change, &path.key(name));
                    }
                }
            }
            Value::Array(items) => {
                let (Some(tree), Some(node)) = (&tree.items, &schema.items) else { return };
                let old = OldItems::new(schema, change.old.and_then(Value::as_array));
                for (index, item) in items.iter().enumerate() {
                    self.node(tree, node, &change.below(item, old.of(item)), &path.index(index));
                }
            }
            _ => {}
        }
    }

    fn rules(&mut self, tree: &RuleTree, schema: &Schema, change: &Change<'_>, path: &Path) {
        // Without an old value only rules that need none run; on an unchanged value only those that compare.
        let applies = |rule: &CompiledRule| match (rule.is_transition, rule.rule.optional_old_self) {
            (true, false) => change.old.is_some(),
            (true, true) => true,
            (false, _) => !change.unchanged,
        };
        let mut due = tree.rules.iter().filter(|rule| applies(rule)).peekable();
        if due.peek().is_none() {
            return;
        }
        let Some(value) = ingest(schema, change.new, tree.whole_object) else { return };
        let old = change.old.and_then(|old| ingest(schema, old, tree.whole_object));
        for rule in due {
            if self.stopped {
                return;
            }
            self.rule(rule, schema, &value, old.as_ref(), path);
        }
    }

    fn rule(&mut self, rule: &CompiledRule, schema: &Schema, new: &CelValue, old: Option<&CelValue>, path: &Path) {
        let refused = json!(schema.type_name());
        let program = match &rule.program {
            Ok(program) => program,
            Err(error) => {
                let detail = format!("rule compile error: {error}");
                return self.errors.push(FieldError::invalid(path, &refused, detail));
            }
        };
        let variables = variables(rule, new, old);
        match program.run(&variables, &mut self.budget) {
            Ok(CelValue::Bool(true)) => {}
            Ok(_) => {
                let detail = self.message(rule, &variables);
                self.errors.push(rule.error(path, &refused, detail));
            }
            Err(error) => {
                self.stopped = error == EvalError::CostLimit;
                self.errors.push(FieldError::invalid(path, &refused, self.failure(rule, &error)));
            }
        }
    }

    fn failure(&self, rule: &CompiledRule, error: &EvalError) -> String {
        let source = rule.rule.rule.trim();
        match error {
            EvalError::CostLimit if self.budget.is_exhausted() => {
                "validation failed due to running out of cost budget, no further validation rules will be run"
                    .to_owned()
            }
            EvalError::CostLimit => format!(
                "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {source}"
            ),
            EvalError::Failed(reason) if reason == "no such overload" => format!(
                "'{reason}': call arguments did not match a supported operator, function or macro signature for rule: {source}"
            ),
            EvalError::Failed(reason) => format!("{reason} evaluating rule: {source}"),
        }
    }

    /// The computed message; the fixed one where there is none, or where computing it failed.
    fn message(&mut self, rule: &CompiledRule, variables: &[(&str, CelValue)]) -> String {
        if let Some(Ok(program)) = &rule.message
            && let Ok(CelValue::String(text)) = program.run(variables, &mut self.budget)
            && !text.trim().is_empty()
            && !text.trim().contains('\n')
        {
            return text.trim().to_owned();
        }
        match &rule.rule.message {
            Some(message) => message.trim().to_owned(),
            None => format!("failed rule: {}", rule.rule.rule.trim()),
        }
    }
}

impl CompiledRule {
    pub(crate) fn is_transition(&self) -> bool {
        self.is_transition
    }

    fn error(&self, path: &Path, refused: &Value, detail: String) -> FieldError {
        let path = match &self.field_path {
            Some(Ok(below)) => below.under(path),
            _ => path.clone(),
        };
        match self.rule.reason.as_deref() {
            Some("FieldValueRequired") => FieldError::required(&path, detail),
            Some("FieldValueForbidden") => FieldError::forbidden(&path, detail),
            Some("FieldValueDuplicate") => FieldError::new(&path, ErrorKind::Duplicate, Some(refused), detail),
            _ => FieldError::invalid(&path, refused, detail),
        }
    }
}

fn variables(rule: &CompiledRule, new: &CelValue, old: Option<&CelValue>) -> Vec<(&'static str, CelValue)> {
    let mut variables = vec![("self", new.clone())];
    match (rule.rule.optional_old_self, old) {
        (true, Some(old)) => variables.push(("oldSelf", CelValue::some(old.clone()))),
        (true, None) => variables.push(("oldSelf", CelValue::NONE)),
        (false, Some(old)) => variables.push(("oldSelf", old.clone())),
        (false, None) => {}
    }
    variables
}
