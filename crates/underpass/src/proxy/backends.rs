//! Backends one by one, with a memory: of ten thousand that a file has, those that did not change need not be judged again.

use std::collections::HashMap;

use serde_json::Value;
use underpass_resources::proxy_backend::ProxyBackend;
use underpass_schema::{FieldError, Schema, Validator};

pub(super) struct Backends {
    validator: Validator,
    /// What was found out about a backend, by its JSON text, and whether the file being read has it.
    known: HashMap<Box<str>, (Verdict, bool)>,
}

/// The backend with its defaults, or what is wrong with it, each beginning with the field's path.
type Verdict = Result<ProxyBackend, Vec<String>>;

impl Backends {
    pub(super) fn new(schema: Schema) -> Self {
        Self { validator: Validator::new(schema), known: HashMap::new() }
    }

    /// What is known, or has now to be found out, about the backend in this JSON text.
    pub(super) fn check(&mut self, text: &str) -> Verdict {
        if let Some((verdict, used)) = self.known.get_mut(text) {
            *used = true;
            return verdict.clone();
        }
        let verdict = match serde_json::from_str(text) {
            Ok(backend) => judge(&self.validator, backend),
            Err(error) => Err(vec![format!(": {error}")]),
        };
        self.known.insert(text.into(), (verdict.clone(), true));
        verdict
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.known.len()
    }

    pub(super) fn forget_unused(&mut self) {
        self.known.retain(|_, (_, used)| std::mem::take(used));
    }
}

fn judge(validator: &Validator, mut backend: Value) -> Verdict {
    let schema = validator.schema();
    let unknown = schema.prune(&mut backend);
    let mut errors: Vec<String> = unknown.iter().map(|field| format!(".{field}: unknown field")).collect();
    schema.default_into(&mut backend);
    errors.extend(validator.validate(&backend).iter().map(relative));
    if !errors.is_empty() {
        return Err(errors);
    }
    serde_json::from_value(backend).map_err(|error| vec![format!(": {error}")])
}

fn relative(error: &FieldError) -> String {
    let path = if error.path.is_root() { String::new() } else { format!(".{}", error.path) };
    format!("{path}: {}", error.message())
}
