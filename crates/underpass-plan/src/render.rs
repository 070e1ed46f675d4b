//! A plan as text for people: what `underpass plan` prints and what the tests compare.

use std::fmt;

use serde_json::Value;

use crate::plan::{Action, Finalizer, Plan, Subject};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.subject)?;
        if self.changes_nothing() {
            writeln!(f, "  nothing to do")?;
        }
        if let Finalizer::Add(name) = self.finalizer {
            writeln!(f, "  finalizer   add {name}")?;
        }
        if let Some(status) = &self.status {
            write_status(f, status)?;
        }
        for event in &self.events {
            writeln!(f, "  event       {:?} {}: {}", event.severity, event.reason, event.note)?;
        }
        for action in &self.actions {
            writeln!(f, "  action      {action}")?;
        }
        if let Finalizer::Remove(name) = self.finalizer {
            writeln!(f, "  finalizer   remove {name}")?;
        }
        if let Some(after) = self.look_again_after {
            writeln!(f, "  look again  after {after:?}")?;
        }
        for reason in &self.reasons {
            writeln!(f, "  because     {reason}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateNetwork(request) => {
                let family = if request.ipv6 { "IPv4 and IPv6" } else { "IPv4" };
                let owner = request.owner.as_ref().map_or("kept at the end", |_| "owned by this object");
                write!(f, "create the network {} ({family}, {owner})", request.name)
            }
            Self::RemoveNetwork { id, name } => write!(f, "remove the network {name} ({id})"),
        }
    }
}

/// One line per field; conditions as `Ready=False Reason: message`, without their times, which say nothing about the plan.
fn write_status(f: &mut fmt::Formatter<'_>, status: &Value) -> fmt::Result {
    let Some(fields) = status.as_object() else { return writeln!(f, "  status      {status}") };
    for (name, value) in fields.iter().filter(|(name, _)| *name != "conditions") {
        writeln!(f, "  status      {name}: {}", plain(value))?;
    }
    for condition in fields.get("conditions").and_then(Value::as_array).into_iter().flatten() {
        let word = |name: &str| condition[name].as_str().unwrap_or_default();
        writeln!(f, "  condition   {}={} {}: {}", word("type"), word("status"), word("reason"), word("message"))?;
    }
    Ok(())
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}
