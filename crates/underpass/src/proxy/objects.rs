//! One document of a file as the objects that a proxy is made of.

use std::borrow::Cow;
use std::fmt;

use anyhow::Context;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use underpass_plan::proxy_server::key;
use underpass_resources::{HOSTED_CLUSTER_GROUP, ProxyServer, VERSION};
use underpass_tables::Reject;

use super::check::Checker;

pub(crate) enum Object {
    /// With the backends that were refused already.
    Proxy {
        proxy: Box<ProxyServer>,
        refused: Vec<Reject>,
    },
    Service(Box<Service>),
    Slice(Box<EndpointSlice>),
    /// Understood to be an object of these kinds, and wrong.
    Refused(Reject),
    /// Nothing that a proxy needs.
    Other,
}

impl Object {
    pub(super) fn identity(&self) -> Option<(&'static str, &str, &str)> {
        let (kind, metadata) = match self {
            Self::Proxy { proxy, .. } => ("ProxyServer", &proxy.metadata),
            Self::Service(service) => ("Service", &service.metadata),
            Self::Slice(slice) => ("EndpointSlice", &slice.metadata),
            Self::Refused(_) | Self::Other => return None,
        };
        let (namespace, name) = key(metadata);
        Some((kind, namespace, name))
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.identity() {
            Some((kind, namespace, name)) => write!(f, "{kind} {namespace}/{name}"),
            None => f.write_str("object"),
        }
    }
}

/// Reads what stands between two marks: one YAML document, or JSON documents in a row.
pub(super) fn read_part(part: &str, checker: &mut Checker) -> anyhow::Result<Vec<Object>> {
    let body = part.strip_prefix("---").unwrap_or(part).trim_start();
    let mut objects = Vec::new();
    if body.starts_with('{')
        && let Ok(documents) =
            serde_json::Deserializer::from_str(body).into_iter().collect::<Result<Vec<&RawValue>, _>>()
    {
        for document in documents {
            read_json(document.get(), checker, &mut objects)?;
        }
    } else {
        read_value(yaml(part)?, checker, &mut objects)?;
    }
    Ok(objects)
}

/// An error is the reader's first line: the others repeat it, with a drawing that a log has no room for.
fn yaml(part: &str) -> anyhow::Result<Value> {
    serde_saphyr::from_str_with_options(part, yaml_options(part)).map_err(|error| {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default();
        anyhow::anyhow!("{}", line.strip_prefix("error: ").unwrap_or(line))
    })
}

/// A value takes a byte of text or more, and has a beginning and an end: what exceeds this was multiplied by references. Small files may
/// still use those.
fn yaml_options(part: &str) -> serde_saphyr::Options {
    let default = serde_saphyr::Budget::default();
    let nodes = default.max_nodes.max(part.len());
    serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_nodes: nodes, max_events: default.max_events.max(2 * part.len()) },
    }
}

/// As much as decides how to read the rest.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
}

/// What there may be thousands of is read without a detour.
fn read_json(text: &str, checker: &mut Checker, objects: &mut Vec<Object>) -> anyhow::Result<()> {
    let head: Head<'_> = serde_json::from_str(text)?;
    let direct = match (&*head.api_version, &*head.kind) {
        ("v1", "Service") => serde_json::from_str(text).ok().map(Object::Service),
        ("discovery.k8s.io/v1", "EndpointSlice") => serde_json::from_str(text).ok().map(Object::Slice),
        (api_version, "ProxyServer") if is_ours(api_version) => Some(checker.check_json(text)?),
        _ => None,
    };
    match direct.filter(|object| object.identity().is_none_or(|(_, _, name)| !name.is_empty())) {
        Some(object) => objects.push(object),
        None => read_value(serde_json::from_str(text)?, checker, objects)?,
    }
    Ok(())
}

fn is_ours(api_version: &str) -> bool {
    api_version.split_once('/') == Some((HOSTED_CLUSTER_GROUP, VERSION))
}

fn read_value(mut value: Value, checker: &mut Checker, objects: &mut Vec<Object>) -> anyhow::Result<()> {
    if value.is_null() {
        return Ok(());
    }
    let word = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (word("apiVersion"), word("kind"));
    if kind.is_empty() || api_version.is_empty() {
        anyhow::bail!("apiVersion or kind is missing, so it is not an object");
    }
    if (api_version.as_str(), kind.as_str()) == ("v1", "List") {
        let items = value["items"].take();
        let items = items.as_array().context("a List without items")?;
        return items.iter().try_for_each(|item| read_value(item.clone(), checker, objects));
    }
    objects.push(match (api_version.as_str(), kind.as_str()) {
        ("v1", "Service") => typed(&kind, value, Object::Service),
        ("discovery.k8s.io/v1", "EndpointSlice") => typed(&kind, value, Object::Slice),
        (_, "ProxyServer") if is_ours(&api_version) => checker.check(value),
        (_, "ProxyServer") => Object::Refused(Reject {
            entry: entry(&kind, &value),
            reason: format!("apiVersion {api_version} is not known; write {HOSTED_CLUSTER_GROUP}/{VERSION}"),
        }),
        _ => Object::Other,
    });
    Ok(())
}

fn typed<T: DeserializeOwned>(kind: &str, value: Value, object: fn(Box<T>) -> Object) -> Object {
    let entry = entry(kind, &value);
    if entry.ends_with('/') {
        return Object::Refused(Reject { entry, reason: "metadata.name is missing".to_owned() });
    }
    match serde_json::from_value(value) {
        Ok(read) => object(Box::new(read)),
        Err(error) => Object::Refused(Reject { entry, reason: error.to_string() }),
    }
}

/// As its author would find it.
fn entry(kind: &str, value: &Value) -> String {
    let word = |field: &str| value["metadata"][field].as_str();
    format!("{kind} {}/{}", word("namespace").unwrap_or("default"), word("name").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<String> {
        let objects = read_part(text, &mut Checker::new().unwrap()).unwrap();
        objects
            .iter()
            .map(|object| match object {
                Object::Refused(Reject { entry, reason }) => format!("refused {entry}: {reason}"),
                Object::Other => "other".to_owned(),
                object => object.to_string(),
            })
            .collect()
    }

    const SERVICE: &str = r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"a","namespace":"n"},"spec":{"ports":[{"port":443}]}}"#;

    #[test]
    fn yaml_and_json_say_the_same() {
        assert_eq!(read(SERVICE), ["Service n/a"]);
        assert_eq!(read(&format!("---\n{SERVICE}")), ["Service n/a"]);
        assert_eq!(read(&format!("{SERVICE}\n{SERVICE}")), ["Service n/a", "Service n/a"]);
        assert_eq!(read("--- # one\napiVersion: v1\nkind: Service\nmetadata: {name: a}\n"), ["Service default/a"]);
        assert_eq!(
            read("{apiVersion: v1, kind: Service, metadata: {name: a}}"),
            ["Service default/a"],
            "YAML with braces"
        );
    }

    #[test]
    fn a_document_may_have_as_many_values_as_its_text_has_room_for() {
        let ports = "  - {port: 443, name: a, protocol: TCP, targetPort: 8443}\n".repeat(40_000);
        assert_eq!(
            read(&format!("apiVersion: v1\nkind: Service\nmetadata: {{name: a}}\nspec:\n  ports:\n{ports}")),
            ["Service default/a"]
        );
    }

    #[test]
    fn a_proxy_of_another_version_is_named() {
        assert_eq!(
            read("apiVersion: hostedcluster.densityops.com/v1\nkind: ProxyServer\nmetadata: {name: edge}\n"),
            ["refused ProxyServer default/edge: apiVersion hostedcluster.densityops.com/v1 is not known; write \
                hostedcluster.densityops.com/v1alpha1"]
        );
    }

    #[test]
    fn lists_are_taken_apart_and_other_kinds_left_alone() {
        let list =
            format!(r#"{{"apiVersion":"v1","kind":"List","items":[{SERVICE},{{"apiVersion":"v1","kind":"Pod"}}]}}"#);
        assert_eq!(read(&list), ["Service n/a", "other"]);
    }

    #[test]
    fn an_object_of_the_wrong_shape_is_refused_alone() {
        let wrong = SERVICE.replace("443", "\"https\"");
        assert!(read(&wrong)[0].starts_with("refused Service n/a: "), "{:?}", read(&wrong));
        assert_eq!(read(&SERVICE.replace(r#""name":"a","#, "")), ["refused Service n/: metadata.name is missing"]);
    }

    #[test]
    fn what_is_no_object_is_an_error_of_the_file() {
        let error = |text| read_part(text, &mut Checker::new().unwrap()).err().unwrap().to_string();
        assert!(error("kind: Service\n").contains("apiVersion or kind is missing"));
        assert!(!error("a: [").contains('\n'));
    }
}
