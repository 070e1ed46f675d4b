//! core/v1 ConfigMap.

use std::sync::OnceLock;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;
use underpass_schema::{FieldError, Path};

use crate::checks::Errors;
use crate::{Builtin, Column, cells, fields, names};

/// What all values together may hold, in bytes.
const MOST: usize = 1024 * 1024;

const COLUMNS: &[Column] =
    &[Column::name("Name of the ConfigMap."), Column::text("Data", "How many keys it holds."), Column::age()];

pub(crate) const fn builtin() -> Builtin {
    Builtin {
        group: "",
        version: "v1",
        kind: "ConfigMap",
        plural: "configmaps",
        singular: "configmap",
        short_names: &["cm"],
        categories: &[],
        namespaced: true,
        status: false,
        scale: false,
        generation: false,
        bucket: "configmaps",
        definition: "io.k8s.api.core.v1.ConfigMap",
        columns: COLUMNS,
        name: names::dns_subdomain,
        define: |generator| {
            generator.subschema_for::<ConfigMap>();
        },
        row,
        prepare_update: |_, _| {},
        default: |_| {},
        validate,
        built: OnceLock::new(),
    }
}

fn row(object: &Value, now: Timestamp) -> Vec<Value> {
    let keys = fields::count(object, "/data") + fields::count(object, "/binaryData");
    vec![cells::name(object), keys.into(), cells::age(object, now)]
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::default();
    if let Some(old) = old {
        errors.frozen(new, old, &["data", "binaryData"]);
    }
    let mut size = 0;
    for (key, value) in fields::entries(new, "/data") {
        let path = Path::from("data").key(key);
        errors.rule(&path, key, names::data_key(key));
        if new["binaryData"].get(key).is_some() {
            errors.invalid(&path, key.as_str(), "duplicate of key present in binaryData");
        }
        size += value.as_str().map_or(0, str::len);
    }
    for (key, value) in fields::entries(new, "/binaryData") {
        let path = Path::from("binaryData").key(key);
        errors.rule(&path, key, names::data_key(key));
        size += errors.base64(&path, value);
    }
    if size > MOST {
        errors.too_long(&Path::root(), MOST);
    }
    errors.done()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::texts;

    #[test]
    fn counts_both_kinds_of_data() {
        let object = json!({"metadata": {"name": "a"}, "data": {"b": "c"}, "binaryData": {"d": "ZQ=="}});
        assert_eq!(row(&object, Timestamp::UNIX_EPOCH), [json!("a"), json!(2), json!("<unknown>")]);
    }

    #[test]
    fn refused() {
        for (object, expected) in [
            (
                json!({"data": {"a/b": ""}}),
                "data[a/b]: Invalid value: \"a/b\": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. \
                 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
            ),
            (
                json!({"data": {"a": ""}, "binaryData": {"a": ""}}),
                "data[a]: Invalid value: \"a\": duplicate of key present in binaryData",
            ),
            (
                json!({"binaryData": {"a": "#"}}),
                "binaryData[a]: Invalid value: \"#\": illegal base64 data at input byte 0",
            ),
            (json!({"data": {"a": "x".repeat(MOST + 1)}}), "<nil>: Too long: may not be more than 1048576 bytes"),
        ] {
            assert_eq!(texts(&validate(&object, None)), [expected]);
        }
        assert!(validate(&json!({"data": {"a.b_c-d": "x"}}), None).is_empty());
    }

    #[test]
    fn immutable_stays() {
        let old = json!({"immutable": true, "data": {"a": "1"}});
        assert!(validate(&old, Some(&old)).is_empty());
        assert_eq!(
            texts(&validate(&json!({"data": {"a": "2"}, "binaryData": {"b": ""}}), Some(&old))),
            [
                "immutable: Forbidden: field is immutable when `immutable` is set",
                "data: Forbidden: field is immutable when `immutable` is set",
                "binaryData: Forbidden: field is immutable when `immutable` is set",
            ]
        );
        let mutable = json!({"data": {"a": "1"}});
        assert!(validate(&old, Some(&mutable)).is_empty());
    }
}
