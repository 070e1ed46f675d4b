//! `fieldPath` of a rule: which field below the rule's own the error is about.

use crate::{AdditionalProperties, Path, Schema};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    Key(String),
}

impl FieldPath {
    /// Reads `.spec.ports` or `['a-b'].x`; every step must exist in the schema. Items of lists cannot be named.
    pub(crate) fn parse(text: &str, schema: &Schema) -> Result<Self, String> {
        let mut steps = Vec::new();
        let (mut node, mut rest) = (schema, text);
        while !rest.is_empty() {
            let (name, after) = step(rest).ok_or_else(|| format!("fieldPath must be a valid path, at {rest:?}"))?;
            let found = node.field(name);
            node = found
                .ok_or_else(|| format!("fieldPath must refer to an existing field, but {name:?} does not exist"))?;
            steps.push((name.to_owned(), node));
            rest = after;
        }
        if steps.is_empty() {
            return Err("fieldPath must be a valid path".to_owned());
        }
        Ok(Self::resolve(schema, steps))
    }

    /// Fields are joined with a dot, keys of maps are put in brackets.
    fn resolve(schema: &Schema, steps: Vec<(String, &Schema)>) -> Self {
        let mut parent = schema;
        let steps = steps.into_iter().map(|(name, node)| {
            let is_key = matches!(parent.additional_properties, Some(AdditionalProperties::Schema(_)));
            parent = node;
            if is_key { Step::Key(name) } else { Step::Field(name) }
        });
        Self(steps.collect())
    }

    pub(crate) fn under(&self, path: &Path) -> Path {
        self.0.iter().fold(path.clone(), |path, step| match step {
            Step::Field(name) => path.field(name),
            Step::Key(name) => path.key(name),
        })
    }
}

/// The first step and what follows it.
fn step(text: &str) -> Option<(&str, &str)> {
    if let Some(rest) = text.strip_prefix('.') {
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        return Some(rest.split_at(end)).filter(|(name, _)| !name.is_empty());
    }
    let rest = text.strip_prefix("['").or_else(|| text.strip_prefix("[\""))?;
    rest.split_once("']").or_else(|| rest.split_once("\"]"))
}
