//! CEL rules: they must compile against the schema, and only compare with old values where there can be one.

use serde_json::json;

use super::{Check, Place, each_below};
use crate::cel::Program;
use crate::cel::shape::Shape;
use crate::rules::compile_rules;
use crate::{AdditionalProperties, ErrorKind, FieldError, ListType, Path, Rule, Schema};

const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// What one rule may cost on all values of an object that it runs on, at most; Kubernetes' own number.
const COST_OF_A_RULE: u64 = 10_000_000;
/// What all rules of a schema may cost together; Kubernetes' own number.
const COST_OF_ALL_RULES: u64 = 100_000_000;

/// What surrounds a node.
struct Around {
    /// The outermost list whose items have no identity, so that nothing in it has an old value of its own.
    atomic: Option<Path>,
    /// How many such nodes an object can have; `None` where nothing bounds it.
    times: Option<u64>,
}

impl Check {
    pub(super) fn rules(&mut self, schema: &Schema, path: &Path) {
        self.rules_at(schema, path, true, &Around { atomic: None, times: Some(1) });
        if self.cost > COST_OF_ALL_RULES {
            let detail = over("estimated cost of all rules together", self.cost, COST_OF_ALL_RULES);
            self.forbidden(path, &detail);
        }
    }

    fn rules_at(&mut self, schema: &Schema, path: &Path, whole_object: bool, around: &Around) {
        let rules = path.field("x-kubernetes-validations");
        let shape = if schema.rules.is_empty() { None } else { Shape::of(schema, whole_object) };
        for (index, compiled) in compile_rules(schema, whole_object).iter().enumerate() {
            let (rule, path) = (&schema.rules[index], rules.index(index));
            self.rule_words(rule, &path);
            match &compiled.program {
                _ if rule.rule.trim().is_empty() => {}
                Err(error) => self.invalid(&path.field("rule"), &json!(rule.rule), error),
                Ok(program) => {
                    self.old_self(rule, compiled.is_transition(), &path, around.atomic.as_ref());
                    let times = |shape: &Shape| around.times.unwrap_or_else(|| shape.most_in_a_request());
                    self.cost(program, shape.as_ref(), times, &path.field("rule"));
                }
            }
            match &compiled.message {
                Some(Err(error)) => {
                    let detail = format!("messageExpression {error}");
                    self.invalid(&path.field("messageExpression"), &json!(rule.message_expression), &detail);
                }
                // One message is enough to refuse an object.
                Some(Ok(program)) => self.cost(program, shape.as_ref(), |_| 1, &path.field("messageExpression")),
                None => {}
            }
            if let Some(Err(error)) = &compiled.field_path {
                self.invalid(&path.field("fieldPath"), &json!(rule.field_path), error);
            }
        }
        let atomic = around.atomic.clone().or_else(|| is_atomic_list(schema).then(|| path.clone()));
        each_below(schema, path, &mut |node, path, place| {
            let around = Around { atomic: atomic.clone(), times: times_below(schema, place, around.times) };
            self.rules_at(node, path, node.embedded_resource, &around);
        });
    }

    /// A program that may run on so many values of one object.
    fn cost(&mut self, program: &Program, shape: Option<&Shape>, times: impl Fn(&Shape) -> u64, path: &Path) {
        let Some(shape) = shape else { return };
        let cost = program.cost(shape).saturating_mul(times(shape));
        self.cost = self.cost.saturating_add(cost);
        if cost > COST_OF_A_RULE {
            let what = if path.as_str().ends_with(".rule") { "rule" } else { "messageExpression" };
            self.forbidden(path, &over(&format!("estimated {what} cost"), cost, COST_OF_A_RULE));
        }
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

/// `None` where nothing bounds it.
fn times_below(schema: &Schema, place: Place, times: Option<u64>) -> Option<u64> {
    let is_map = matches!(schema.additional_properties, Some(AdditionalProperties::Schema(_)));
    match place {
        Place::Items => Some(times?.saturating_mul(schema.max_items?)),
        _ if is_map => Some(times?.saturating_mul(schema.max_properties?)),
        _ => times,
    }
}

fn over(what: &str, cost: u64, most: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "only shown")]
    let factor = cost as f64 / most as f64;
    let factor = match factor {
        factor if factor > 100.0 => "more than 100x".to_owned(),
        factor if factor < 1.5 => format!("{factor:.6}x"),
        factor => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor}: make the rule simpler, or bound what it reads with maxItems, maxProperties and \
         maxLength"
    )
}

/// Fields of objects and entries of maps always have an old value of their own, whatever `x-kubernetes-map-type` says.
fn is_atomic_list(schema: &Schema) -> bool {
    schema.items.is_some() && schema.list_type != Some(ListType::Map)
}
