//! Backends one by one, with a memory: of ten thousand that a file has, those that did not change need not be judged again.

use std::collections::HashMap;

use serde_json::Value;
use underpass_resources::proxy_backend::ProxyBackend;
use underpass_schema::{FieldError, Schema, Validator};

pub(super) struct Backends {
    validator: Validator,
    /// What was found out about a backend, as it was written, and whether the file being read has it.
    known: HashMap<Value, (Verdict, bool)>,
}

/// The backend with its defaults, or what is wrong with it, each beginning with the field's path.
type Verdict = Result<ProxyBackend, Vec<String>>;

impl Backends {
    pub(super) fn new(schema: Schema) -> Self {
        Self { validator: Validator::new(schema), known: HashMap::new() }
    }

    pub(super) fn check(&mut self, written: Value) -> Verdict {
        if let Some((verdict, used)) = self.known.get_mut(&written) {
            *used = true;
            return verdict.clone();
        }
        let verdict = judge(&self.validator, written.clone());
        self.known.insert(written, (verdict.clone(), true));
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
