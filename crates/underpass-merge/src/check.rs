//! What an applied document must fulfil before it can be merged: every field declared, every value of the declared type, every
//! list item with a name of its own. Kubernetes' clients look for these words.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;
use underpass_schema::{Schema, Type};

use crate::node::{ListRules, Node, Shape};
use crate::path::{PathElement, path_text};

/// An applied document that cannot be merged, and all that is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidObject {
    /// `namespace/name; group/version, Kind=kind`
    pub object: String,
    pub problems: Vec<Problem>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// `.spec.ports[port=80].nmae`
    pub field: String,
    pub message: String,
}

impl fmt::Display for InvalidObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed to create typed patch object ({}): ", self.object)?;
        match self.problems.as_slice() {
            [only] => write!(f, "{only}"),
            problems => {
                write!(f, "errors:")?;
                problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

pub(crate) fn check(schema: &Schema, applied: &Value) -> Result<(), InvalidObject> {
    let mut walk = Walk { path: Vec::new(), problems: Vec::new() };
    walk.value(Node::resource(schema), applied);
    if walk.problems.is_empty() {
        return Ok(());
    }
    Err(InvalidObject { object: describe(applied), problems: walk.problems })
}

struct Walk {
    path: Vec<PathElement>,
    problems: Vec<Problem>,
}

impl Walk {
    fn value(&mut self, node: Node<'_>, value: &Value) {
        if let Some(wanted) = node.schema().and_then(|schema| wrong_type(schema, value)) {
            return self.problem(format!("expected {wanted}, got {}", type_name(value)));
        }
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.field(node, name, value);
                }
            }
            Value::Array(items) => match node.shape(value) {
                Shape::List(rules) => self.named_items(rules, items),
                _ => self.items(node, items),
            },
            _ => {}
        }
    }

    fn field(&mut self, node: Node<'_>, name: &str, value: &Value) {
        let field = node.field(name);
        self.path.push(PathElement::Field(name.to_owned()));
        if field.allowed {
            self.value(field.node, value);
        } else {
            self.problem("field not declared in schema".to_owned());
        }
        self.path.pop();
    }

    fn items(&mut self, node: Node<'_>, items: &[Value]) {
        for (index, item) in (0..).zip(items) {
            self.path.push(PathElement::Index(index));
            self.value(node.item(), item);
            self.path.pop();
        }
    }

    fn named_items(&mut self, rules: ListRules<'_>, items: &[Value]) {
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            match rules.element(item) {
                Ok(element) => {
                    if !seen.insert(element.clone()) {
                        self.problem(format!("duplicate entries for key {element}"));
                    }
                    self.path.push(element);
                    self.value(rules.item, item);
                    self.path.pop();
                }
                Err(reason) => self.problem(format!("element {index}: {reason}")),
            }
        }
    }

    fn problem(&mut self, message: String) {
        self.problems.push(Problem { field: path_text(&self.path), message });
    }
}

/// What was expected instead, if the value has another type than the schema says.
fn wrong_type(schema: &Schema, value: &Value) -> Option<&'static str> {
    if value.is_null() || schema.int_or_string {
        return None;
    }
    let (is_right, wanted) = match schema.type_? {
        Type::Object => (value.is_object(), "map"),
        Type::Array => (value.is_array(), "list"),
        Type::Integer | Type::Number => (value.is_number(), "numeric (int or float)"),
        Type::Boolean => (value.is_boolean(), "boolean"),
        // A format such as quantity or int-or-string is printed as a string but may be written as a number.
        Type::String if matches!(schema.format.as_deref(), None | Some("" | "byte")) => (value.is_string(), "string"),
        Type::String => (!value.is_object() && !value.is_array(), "any scalar"),
    };
    (!is_right).then_some(wanted)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "map",
    }
}

fn describe(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let api_version = text(&object["apiVersion"]);
    // The group of the core kinds is empty, and its slash stands all the same.
    let group_version = if api_version.contains('/') { api_version } else { format!("/{api_version}") };
    let metadata = &object["metadata"];
    format!(
        "{}/{}; {group_version}, Kind={}",
        text(&metadata["namespace"]),
        text(&metadata["name"]),
        text(&object["kind"])
    )
}
