//! How much processor and memory a container of ours may use.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::number_or_text::NumberOrText;
use crate::rules::at;

/// Requests and limits of one container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = at(".requests", at_most("cpu"), "requests.cpu is more than limits.cpu; lower the request or raise the limit"),
    validation = at(".requests", at_most("memory"), "requests.memory is more than limits.memory; lower the request or raise the limit")
)]
pub struct Resources {
    /// What the scheduler sets aside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Amounts>,

    /// What the container may not exceed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Amounts>,
}

/// Processor and memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Amounts {
    /// Processor time, for example 500m or 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "amount")]
    pub cpu: Option<NumberOrText>,

    /// Memory, for example 256Mi or 1Gi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "amount")]
    pub memory: Option<NumberOrText>,
}

impl Resources {
    /// The same in Kubernetes' own type.
    pub fn to_requirements(&self) -> ResourceRequirements {
        ResourceRequirements {
            requests: self.requests.as_ref().map(Amounts::to_map),
            limits: self.limits.as_ref().map(Amounts::to_map),
            claims: None,
        }
    }
}

impl Amounts {
    fn to_map(&self) -> BTreeMap<String, Quantity> {
        let named = [("cpu", &self.cpu), ("memory", &self.memory)];
        named
            .into_iter()
            .filter_map(|(name, amount)| Some((name.to_owned(), Quantity(amount.as_ref()?.to_string()))))
            .collect()
    }
}

fn amount(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "maxLength": 32,
        "x-kubernetes-validations": [{
            "rule": "isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0'))",
            "message": "is not an amount above zero; write for example 500m or 2 for cpu, 256Mi or 1Gi for memory",
        }],
    })
}

fn at_most(name: &str) -> String {
    let there =
        |part: &str| format!("has(self.{part}) && has(self.{part}.{name}) && isQuantity(string(self.{part}.{name}))");
    format!(
        "!({} && {}) || quantity(string(self.requests.{name})).compareTo(quantity(string(self.limits.{name}))) <= 0",
        there("requests"),
        there("limits")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_become_quantities() {
        let resources =
            Resources { limits: Some(Amounts { cpu: Some(2.into()), memory: Some("1Gi".into()) }), requests: None };
        let requirements = resources.to_requirements();
        let limits = requirements.limits.unwrap();
        assert_eq!((limits["cpu"].0.as_str(), limits["memory"].0.as_str()), ("2", "1Gi"));
        assert_eq!(requirements.requests, None);
    }
}
