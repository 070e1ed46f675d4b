//! A ProxyServer, checked as an API server would, but backend by backend: one that is wrong is refused, the others are taken.
//!
//! The object's own fields and its backends are judged by the CRD's schema, taken apart. What the schema says about the list as a
//! whole (names, defaults and ports that two backends want) is decided by the planner, entry by entry; its length is bounded only
//! because a Kubernetes API server prices rules by it, so here it is not.

use std::borrow::Cow;
use std::collections::BTreeMap;

use anyhow::{Context, bail};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use underpass_resources::proxy_backend::ProxyBackend;
use underpass_resources::{ProxyServer, VERSION};
use underpass_schema::{Path, Schema, Validator};
use underpass_tables::Reject;

use super::backends::Backends;
use super::objects::Object;

/// The longest name of an object that fits into every label and log line.
const MAX_NAME: usize = 253;

pub(super) struct Checker {
    /// For all but the backends.
    frame: Validator,
    backends: Backends,
}

impl Checker {
    pub(super) fn new() -> anyhow::Result<Self> {
        let mut frame = schema()?;
        let spec = frame.properties.get_mut("spec").context("ProxyServer has no spec")?;
        spec.required.retain(|field| field != "backends");
        spec.rules.retain(|rule| !rule.rule.contains("self.backends"));
        let backends = spec.properties.remove("backends").and_then(|backends| backends.items);
        let backends = Backends::new(*backends.context("ProxyServer has no backends")?);
        Ok(Self { frame: Validator::new(frame), backends })
    }

    /// The object with what can be used of it; refused when its own fields are wrong.
    pub(super) fn check(&mut self, mut object: Value) -> Object {
        let list = object.pointer_mut("/spec/backends").map(Value::take);
        let backends = match list {
            Some(Value::Array(items)) => items.iter().map(|item| Cow::Owned(item.to_string())).collect(),
            _ => Vec::new(),
        };
        self.assemble(object, &backends)
    }

    /// The same for a JSON text, of which backends that are known are not even parsed.
    pub(super) fn check_json(&mut self, text: &str) -> serde_json::Result<Object> {
        let mut fields: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
        let spec = fields.remove("spec").and_then(|spec| serde_json::from_str(spec.get()).ok());
        let Some(mut spec): Option<BTreeMap<String, &RawValue>> = spec else {
            return Ok(self.check(serde_json::from_str(text)?));
        };
        let list: Option<Vec<&RawValue>> =
            spec.remove("backends").and_then(|list| serde_json::from_str(list.get()).ok());
        let backends: Vec<Cow<'_, str>> = list.iter().flatten().map(|item| Cow::Borrowed(item.get())).collect();
        let mut object = serde_json::to_value(fields)?;
        object["spec"] = serde_json::to_value(spec)?;
        Ok(self.assemble(object, &backends))
    }

    fn assemble(&mut self, object: Value, backends: &[Cow<'_, str>]) -> Object {
        let word = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let (namespace, name) =
            (word("/metadata/namespace").unwrap_or("default"), word("/metadata/name").unwrap_or(""));
        let entry = format!("ProxyServer {namespace}/{name}");
        match self.check_frame(object) {
            Err(errors) => Object::Refused(Reject { entry, reason: errors.join("; ") }),
            Ok(_) if backends.is_empty() => Object::Refused(Reject {
                entry,
                reason: "spec.backends: Required value: a list of backends".to_owned(),
            }),
            Ok(mut proxy) => {
                let (good, refused) = self.check_backends(&entry, backends);
                proxy.spec.backends = good;
                Object::Proxy { proxy: Box::new(proxy), refused }
            }
        }
    }

    /// Drops what was remembered about backends that the last file did not have.
    pub(super) fn forget_unused(&mut self) {
        self.backends.forget_unused();
    }

    fn check_frame(&self, mut object: Value) -> Result<ProxyServer, Vec<String>> {
        if let Some(spec) = object.pointer_mut("/spec").and_then(Value::as_object_mut) {
            spec.remove("backends");
        }
        let schema = self.frame.schema();
        let unknown = schema.prune_object(&mut object);
        let mut errors: Vec<String> = unknown.iter().map(|field| format!("{field}: unknown field")).collect();
        schema.default_into(&mut object);
        errors.extend(self.frame.validate(&object).iter().map(ToString::to_string));
        if !is_name(object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()) {
            errors.push("metadata.name: Invalid value: a DNS name in lower case is needed".to_owned());
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        object["spec"]["backends"] = json!([]);
        serde_json::from_value(object).map_err(|error| vec![error.to_string()])
    }

    fn check_backends(&mut self, entry: &str, written: &[Cow<'_, str>]) -> (Vec<ProxyBackend>, Vec<Reject>) {
        let (mut good, mut refused) = (Vec::with_capacity(written.len()), Vec::new());
        for (index, text) in written.iter().enumerate() {
            match self.backends.check(text) {
                Ok(backend) => good.push(backend),
                Err(errors) => {
                    let errors = errors.iter().map(|error| format!("spec.backends[{index}]{error}"));
                    let reason = errors.collect::<Vec<_>>().join("; ");
                    refused.push(Reject { entry: format!("{entry}, backend {}", backend_name(text, index)), reason });
                }
            }
        }
        (good, refused)
    }
}

/// The name of a backend, or its place when it has none.
fn backend_name(text: &str, index: usize) -> String {
    let backend: Value = serde_json::from_str(text).unwrap_or_default();
    backend["name"].as_str().map_or_else(|| format!("[{index}]"), str::to_owned)
}

fn schema() -> anyhow::Result<Schema> {
    let crd = underpass_resources::crds().into_iter().find(|crd| crd.spec.names.kind == "ProxyServer");
    let versions = crd.context("ProxyServer has no definition")?.spec.versions;
    let version = versions.into_iter().find(|version| version.name == VERSION);
    let schema = version.and_then(|version| version.schema).and_then(|schema| schema.open_api_v3_schema);
    let schema = serde_json::to_value(schema.context("ProxyServer has no schema")?)?;
    match Schema::parse(&schema, &Path::root()) {
        Ok(schema) => Ok(schema),
        Err(errors) => bail!("the schema of ProxyServer is broken: {errors:?}"),
    }
}

/// A DNS subdomain: metrics and log lines carry it as it is.
fn is_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let label =
        |label: &str| !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-');
    name.len() <= MAX_NAME && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend(name: &str) -> Value {
        json!({
            "name": name, "hostname": format!("{name}.example.com"), "port": 443,
            "targetService": "s", "targetNamespace": "n", "targetPort": 443,
        })
    }

    fn proxy(backends: &[Value]) -> Value {
        json!({
            "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer", "metadata": { "name": "edge" },
            "spec": { "networkConfig": { "serverIP": "127.0.0.1" }, "backends": backends },
        })
    }

    fn refusal(object: Value) -> String {
        match Checker::new().unwrap().check(object) {
            Object::Refused(reject) => format!("{}: {}", reject.entry, reject.reason),
            _ => String::new(),
        }
    }

    #[test]
    fn a_wrong_backend_is_refused_and_the_others_are_taken() {
        let mut wrong = backend("b");
        wrong["port"] = 0.into();
        wrong["weight"] = 3.into();
        let object = Checker::new().unwrap().check(proxy(&[backend("a"), wrong, json!("text"), backend("c")]));
        let Object::Proxy { proxy, refused } = object else { panic!("refused as a whole") };
        let names: Vec<&str> = proxy.spec.backends.iter().map(|backend| &*backend.name).collect();
        assert_eq!(names, ["a", "c"]);
        assert_eq!(proxy.spec.drain_seconds, 30, "defaults are filled in");
        assert_eq!(refused[0].entry, "ProxyServer default/edge, backend b");
        assert!(refused[0].reason.contains("spec.backends[1].weight: unknown field"), "{refused:?}");
        assert!(refused[0].reason.contains("spec.backends[1].port: Invalid value: 0"), "{refused:?}");
        assert!(refused[1].reason.starts_with("spec.backends[2]: Invalid value"), "{refused:?}");
    }

    #[test]
    fn json_text_is_judged_as_the_object_in_it() {
        for object in [
            proxy(&[backend("a"), json!({ "name": "b" })]),
            proxy(&[]),
            json!({ "spec": 1 }),
            json!({ "spec": { "backends": 1 } }),
        ] {
            let show = |object: Object| match object {
                Object::Proxy { proxy, refused } => format!("{proxy:?} {refused:?}"),
                Object::Refused(reject) => format!("{reject:?}"),
                _ => String::new(),
            };
            let text = show(Checker::new().unwrap().check_json(&object.to_string()).unwrap());
            assert_eq!(text, show(Checker::new().unwrap().check(object)));
        }
    }

    #[test]
    fn a_proxy_whose_own_fields_are_wrong_is_refused() {
        let mut wrong = proxy(&[backend("a")]);
        wrong["spec"]["networkConfig"]["serverIP"] = "somewhere".into();
        wrong["spec"]["replica"] = 2.into();
        let reason = refusal(wrong);
        assert!(reason.starts_with("ProxyServer default/edge: spec.replica: unknown field; "), "{reason}");
        assert!(reason.contains("spec.networkConfig.serverIP: "), "{reason}");
        assert!(refusal(proxy(&[])).contains("spec.backends: Required value"));
        let mut unnamed = proxy(&[backend("a")]);
        unnamed["metadata"]["name"] = "a\"b".into();
        assert!(refusal(unnamed).contains("metadata.name: Invalid value"));
    }

    #[test]
    fn there_may_be_more_backends_than_a_kubernetes_api_server_would_price() {
        let backends: Vec<Value> = (0..300).map(|number| backend(&format!("b{number}"))).collect();
        let Object::Proxy { proxy, refused } = Checker::new().unwrap().check(proxy(&backends)) else {
            panic!("refused")
        };
        assert_eq!((proxy.spec.backends.len(), refused.len()), (300, 0));
    }

    #[test]
    fn what_did_not_change_is_remembered_and_what_went_is_forgotten() {
        let mut checker = Checker::new().unwrap();
        checker.check(proxy(&[backend("a"), backend("b")]));
        checker.forget_unused();
        checker.check(proxy(&[backend("b"), backend("c")]));
        assert_eq!(checker.backends.remembered(), 3);
        checker.forget_unused();
        assert_eq!(checker.backends.remembered(), 2);
    }
}
