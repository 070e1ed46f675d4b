//! Checks a document: the keywords first, then the CEL rules.
//!
//! What a schema needs compiled (patterns, rules) is compiled once, in [`Validator::new`]; [`Schema::validate`] is the convenience for
//! a schema that is used once. Documents come from a JSON reader that refuses more than 128 levels, which bounds the recursion.

use std::collections::HashMap;
use std::sync::Arc;

use regex::Regex;
use serde_json::Value;

use crate::keywords::Walk;
use crate::rules::RuleTree;
use crate::{AdditionalProperties, ErrorKind, FieldError, Path, Schema};

/// A schema ready to judge many documents. Cheap to share, immutable.
#[derive(Debug)]
pub struct Validator {
    schema: Arc<Schema>,
    patterns: Patterns,
    rules: Option<RuleTree>,
}

impl Validator {
    pub fn new(schema: impl Into<Arc<Schema>>) -> Self {
        let schema = schema.into();
        let patterns = Patterns::of(&schema);
        let rules = RuleTree::compile(&schema, true);
        Self { schema, patterns, rules }
    }

    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// What is wrong with a new document.
    pub fn validate(&self, new: &Value) -> Vec<FieldError> {
        self.run(new, None)
    }

    /// What is wrong with a changed document. What was wrong before and did not change is tolerated, except by transition rules:
    /// a stricter schema must not lock up the objects that exist.
    pub fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        self.run(new, Some(old))
    }

    fn run(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut walk = Walk::new(&self.patterns);
        walk.node(&self.schema, new, old, &Path::root());
        let mut errors = walk.errors;
        if let Some(rules) = &self.rules {
            match errors.iter().any(|error| hides_rules(error.kind)) {
                true => errors.push(rules_were_skipped()),
                false => rules.check(&self.schema, new, old, &mut errors),
            }
        }
        errors
    }
}

impl Schema {
    /// [`Validator::validate`] for a schema that is used once.
    pub fn validate(&self, new: &Value) -> Vec<FieldError> {
        Validator::new(self.clone()).validate(new)
    }

    /// [`Validator::validate_update`] for a schema that is used once.
    pub fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        Validator::new(self.clone()).validate_update(new, old)
    }

    /// Every node below and including this one.
    pub(crate) fn visit<'s>(&'s self, see: &mut impl FnMut(&'s Schema)) {
        see(self);
        self.properties.values().for_each(|node| node.visit(see));
        if let Some(AdditionalProperties::Schema(node)) = &self.additional_properties {
            node.visit(see);
        }
        self.items.iter().chain(&self.not).for_each(|node| node.visit(see));
        self.all_of.iter().chain(&self.any_of).chain(&self.one_of).for_each(|node| node.visit(see));
    }
}

/// The schema's regular expressions; one that does not compile is remembered as such, and refuses every value.
#[derive(Debug, Default)]
pub(crate) struct Patterns(HashMap<String, Option<Regex>>);

impl Patterns {
    pub(crate) fn of(schema: &Schema) -> Self {
        let mut patterns = Self::default();
        schema.visit(&mut |node| patterns.add(node.pattern.as_deref()));
        patterns
    }

    fn add(&mut self, pattern: Option<&str>) {
        if let Some(pattern) = pattern.filter(|pattern| !self.0.contains_key(*pattern)) {
            self.0.insert(pattern.to_owned(), Regex::new(pattern).ok());
        }
    }

    pub(crate) fn matches(&self, pattern: &str, text: &str) -> bool {
        self.0.get(pattern).and_then(Option::as_ref).is_some_and(|regex| regex.is_match(text))
    }
}

/// Rules may rely on the declared types and sizes; on a document that breaks these they would report nonsense.
fn hides_rules(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Required
            | ErrorKind::TypeInvalid
            | ErrorKind::NotSupported
            | ErrorKind::TooLong
            | ErrorKind::TooMany
    )
}

impl FieldError {
    /// Whether this is no error of its own, but the word that others kept the rules from being checked.
    pub fn says_rules_were_skipped(&self) -> bool {
        *self == rules_were_skipped()
    }
}

fn rules_were_skipped() -> FieldError {
    let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
    FieldError::invalid(&Path::root(), &Value::Null, detail)
}
