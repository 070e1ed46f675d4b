//! core/v1 Secret.

use std::sync::OnceLock;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Map, Value};
use underpass_schema::{FieldError, Path};

use crate::checks::Errors;
use crate::{Builtin, Column, cells, fields, names};

/// What all values together may hold, in bytes.
const MOST: usize = 1024 * 1024;
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

const COLUMNS: &[Column] = &[
    Column::name("Name of the Secret."),
    Column::text("Type", "What the Secret is for."),
    Column::text("Data", "How many keys it holds."),
    Column::age(),
];

pub(crate) const fn builtin() -> Builtin {
    Builtin {
        group: "",
        version: "v1",
        kind: "Secret",
        plural: "secrets",
        singular: "secret",
        short_names: &[],
        categories: &[],
        namespaced: true,
        status: false,
        scale: false,
        generation: false,
        bucket: "secrets",
        definition: "io.k8s.api.core.v1.Secret",
        columns: COLUMNS,
        name: names::dns_subdomain,
        define: |generator| {
            generator.subschema_for::<Secret>();
        },
        row,
        prepare_update: |_, _| {},
        default,
        validate,
        built: OnceLock::new(),
    }
}

fn row(object: &Value, now: Timestamp) -> Vec<Value> {
    let type_ = fields::text(object, "/type").into();
    vec![cells::name(object), type_, fields::count(object, "/data").into(), cells::age(object, now)]
}

/// `stringData` is for writing only: it becomes `data`, and wins over it.
fn default(object: &mut Value) {
    fields::fill(object, "type", "Opaque");
    let Some(secret) = object.as_object_mut() else { return };
    let Some(Value::Object(plain)) = secret.get("stringData").filter(|plain| plain.is_object()).cloned() else {
        return;
    };
    secret.remove("stringData");
    if plain.is_empty() {
        return;
    }
    if let Value::Object(data) = secret.entry("data").or_insert_with(|| Value::Object(Map::new())) {
        for (key, value) in plain {
            // A value that is no text stays as it is: the schema refuses it.
            data.insert(key, value.as_str().map_or_else(|| value.clone(), |text| BASE64_STANDARD.encode(text).into()));
        }
    }
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::default();
    if let Some(old) = old {
        errors.immutable(new, old, "type");
        errors.frozen(new, old, &["data"]);
    }
    let mut size = 0;
    for (key, value) in fields::entries(new, "/data") {
        let path = Path::from("data").key(key);
        errors.rule(&path, key, names::data_key(key));
        size += errors.base64_secret(&path, value);
    }
    if size > MOST {
        errors.too_long(&Path::from("data"), MOST);
    }
    validate_type(new, &mut errors);
    errors.done()
}

fn validate_type(secret: &Value, errors: &mut Errors) {
    let data = Path::from("data");
    let value = |key: &str| secret.get("data").and_then(|data| data.get(key)).and_then(Value::as_str);
    match fields::text(secret, "/type") {
        "kubernetes.io/service-account-token" => {
            let name = secret.pointer("/metadata/annotations").and_then(|annotations| annotations.get(ACCOUNT_NAME));
            if name.and_then(Value::as_str).unwrap_or_default().is_empty() {
                errors.required(&Path::from("metadata.annotations").key(ACCOUNT_NAME), "");
            }
        }
        "kubernetes.io/dockercfg" => validate_json(&data, ".dockercfg", value(".dockercfg"), errors),
        "kubernetes.io/dockerconfigjson" => {
            validate_json(&data, ".dockerconfigjson", value(".dockerconfigjson"), errors);
        }
        "kubernetes.io/basic-auth" if value("username").is_none() && value("password").is_none() => {
            errors.required(&data.key("username"), "");
            errors.required(&data.key("password"), "");
        }
        "kubernetes.io/ssh-auth" if value("ssh-privatekey").unwrap_or_default().is_empty() => {
            errors.required(&data.key("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"].into_iter().filter(|key| value(key).is_none()) {
                errors.required(&data.key(key), "");
            }
        }
        _ => {}
    }
}

fn validate_json(data: &Path, key: &str, value: Option<&str>, errors: &mut Errors) {
    let Some(value) = value else { return errors.required(&data.key(key), "") };
    let content = BASE64_STANDARD.decode(value).unwrap_or_default();
    if let Err(error) = serde_json::from_slice::<Map<String, Value>>(&content) {
        errors.invalid(&data.key(key), "<secret contents redacted>", error.to_string());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::texts;

    #[test]
    fn plain_text_becomes_data() {
        let mut object = json!({"data": {"a": "b2xk", "b": "a2VwdA=="}, "stringData": {"a": "new"}});
        default(&mut object);
        assert_eq!(object, json!({"type": "Opaque", "data": {"a": "bmV3", "b": "a2VwdA=="}}));
    }

    #[test]
    fn shown() {
        let object = json!({"metadata": {"name": "a"}, "type": "Opaque", "data": {"b": ""}});
        assert_eq!(row(&object, Timestamp::UNIX_EPOCH), [json!("a"), json!("Opaque"), json!(1), json!("<unknown>")]);
    }

    #[test]
    fn refused() {
        for (object, expected) in [
            (
                json!({"type": "kubernetes.io/tls", "data": {}}),
                vec!["data[tls.crt]: Required value", "data[tls.key]: Required value"],
            ),
            (
                json!({"type": "kubernetes.io/basic-auth"}),
                vec!["data[username]: Required value", "data[password]: Required value"],
            ),
            (json!({"type": "kubernetes.io/ssh-auth"}), vec!["data[ssh-privatekey]: Required value"]),
            (json!({"type": "kubernetes.io/dockerconfigjson"}), vec!["data[.dockerconfigjson]: Required value"]),
            (
                json!({"type": "kubernetes.io/service-account-token"}),
                vec!["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
            ),
            (
                json!({"data": {"a": "top secret"}}),
                vec!["data[a]: Invalid value: \"<secret contents redacted>\": illegal base64 data at input byte 3"],
            ),
        ] {
            assert_eq!(texts(&validate(&object, None)), expected);
        }
        assert!(validate(&json!({"type": "kubernetes.io/dockercfg", "data": {".dockercfg": "e30="}}), None).is_empty());
    }

    #[test]
    fn the_type_stays() {
        let found = validate(&json!({"type": "b"}), Some(&json!({"type": "a"})));
        assert_eq!(texts(&found), ["type: Invalid value: \"b\": field is immutable"]);
        let found = validate(
            &json!({"type": "a", "immutable": true, "data": {"a": "eA=="}}),
            Some(&json!({"type": "a", "immutable": true})),
        );
        assert_eq!(texts(&found), ["data: Forbidden: field is immutable when `immutable` is set"]);
    }
}
