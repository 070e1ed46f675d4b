//! core/v1 ServiceAccount.

use std::sync::OnceLock;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ServiceAccount;
use serde_json::Value;

use crate::{Builtin, Column, cells, fields, names};

const COLUMNS: &[Column] = &[
    Column::name("Name of the account."),
    Column::text("Secrets", "How many Secrets the account may use."),
    Column::age(),
];

pub(crate) const fn builtin() -> Builtin {
    Builtin {
        group: "",
        version: "v1",
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        singular: "serviceaccount",
        short_names: &["sa"],
        categories: &[],
        namespaced: true,
        status: false,
        scale: false,
        generation: false,
        bucket: "serviceaccounts",
        definition: "io.k8s.api.core.v1.ServiceAccount",
        columns: COLUMNS,
        name: names::dns_subdomain,
        define: |generator| {
            generator.subschema_for::<ServiceAccount>();
        },
        row,
        prepare_update: |_, _| {},
        default: |_| {},
        validate: |_, _| Vec::new(),
        built: OnceLock::new(),
    }
}

fn row(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cells::name(object), fields::list(object, "/secrets").len().into(), cells::age(object, now)]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shown() {
        let object = json!({"metadata": {"name": "a"}, "secrets": [{"name": "b"}]});
        assert_eq!(row(&object, Timestamp::UNIX_EPOCH), [json!("a"), json!(1), json!("<unknown>")]);
    }
}
