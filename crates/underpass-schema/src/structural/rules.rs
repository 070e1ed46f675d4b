//! CEL rules: they must compile against the schema, and only compare with old values where there can be one.

use serde_json::json;

use super::{Check, each_below};
use crate::rules::compile_rules;
use crate::{ErrorKind, FieldError, ListType, Path, Rule, Schema};

const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

impl Check {
    /// `atomic` is the outermost list around whose items have no identity, so that nothing in it has an old value of its own.
    pub(super) fn rules(&mut self, schema: &Schema, path: &Path, whole_object: bool, atomic: Option<&Path>) {
        let rules = path.field("x-kubernetes-validations");
        for (index, compiled) in compile_rules(schema, whole_object).iter().enumerate() {
            let (rule, path) = (&schema.rules[index], rules.index(index));
            self.rule_words(rule, &path);
            match &compiled.program {
                _ if rule.rule.trim().is_empty() => {}
                Err(error) => self.invalid(&path.field("rule"), &json!(rule.rule), error),
                Ok(_) => self.old_self(rule, compiled.is_transition(), &path, atomic),
            }
            if let Some(Err(error)) = &compiled.message {
                let detail = format!("messageExpression {error}");
                self.invalid(&path.field("messageExpression"), &json!(rule.message_expression), &detail);
            }
            if let Some(Err(error)) = &compiled.field_path {
                self.invalid(&path.field("fieldPath"), &json!(rule.field_path), error);
            }
        }
        let below = atomic.cloned().or_else(|| is_atomic_list(schema).then(|| path.clone()));
        each_below(schema, path, &mut |node, path, _| self.rules(node, path, node.embedded_resource, below.as_ref()));
    }

    fn old_self(&mut self, rule: &Rule, is_transition: bool, path: &Path, atomic: Option<&Path>) {
        match atomic {
            Some(atomic) if is_transition => {
                let detail =
                    format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {atomic}");
                self.invalid(&path.field("rule"), &json!(rule.rule), &detail);
            }
            _ if rule.optional_old_self && !is_transition => {
                let detail = "may not be set if oldSelf is not used in rule";
                self.invalid(&path.field("optionalOldSelf"), &json!(true), detail);
            }
            _ => {}
        }
    }

    fn rule_words(&mut self, rule: &Rule, path: &Path) {
        let message = rule.message.as_deref().unwrap_or_default();
        if rule.rule.trim().is_empty() {
            self.required(&path.field("rule"), "rule is not specified");
        } else if !message.is_empty() && message.trim().is_empty() {
            self.invalid(&path.field("message"), &json!(message), "must be non-empty if specified");
        } else if message.trim().contains('\n') {
            self.invalid(&path.field("message"), &json!(message), "must not contain line breaks");
        } else if rule.rule.trim().contains('\n') && message.is_empty() {
            self.required(&path.field("message"), "message must be specified if rule contains line breaks");
        }
        if let Some(reason) = rule.reason.as_deref().filter(|reason| !REASONS.contains(reason)) {
            let known: Vec<_> = REASONS.iter().map(|reason| format!("{reason:?}")).collect();
            let detail = format!("supported values: {}", known.join(", "));
            let path = path.field("reason");
            self.errors.push(FieldError::new(&path, ErrorKind::NotSupported, Some(&json!(reason)), detail));
        }
    }
}

/// Fields of objects and entries of maps always have an old value of their own, whatever `x-kubernetes-map-type` says.
fn is_atomic_list(schema: &Schema) -> bool {
    schema.items.is_some() && schema.list_type != Some(ListType::Map)
}
