//! discovery.k8s.io/v1 EndpointSlice.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::OnceLock;

use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::Value;
use underpass_schema::{FieldError, Path};

use crate::checks::{Errors, PROTOCOLS};
use crate::{Builtin, Column, cells, fields, names};

const MOST_ADDRESSES: usize = 100;
const MOST_PORTS: usize = 20_000;
const MOST_ENDPOINTS: usize = 1000;
const MOST_HINTS: usize = 8;

const COLUMNS: &[Column] = &[
    Column::name("Name of the slice."),
    Column::text("AddressType", "What kind of addresses it holds."),
    Column::text("Ports", "The ports of all its endpoints."),
    Column::text("Endpoints", "The addresses of its endpoints."),
    Column::age(),
];

pub(crate) const fn builtin() -> Builtin {
    Builtin {
        group: "discovery.k8s.io",
        version: "v1",
        kind: "EndpointSlice",
        plural: "endpointslices",
        singular: "endpointslice",
        short_names: &[],
        categories: &[],
        namespaced: true,
        status: false,
        scale: false,
        generation: true,
        bucket: "endpointslices.discovery.k8s.io",
        definition: "io.k8s.api.discovery.v1.EndpointSlice",
        columns: COLUMNS,
        name: names::dns_subdomain,
        define: |generator| {
            generator.subschema_for::<EndpointSlice>();
        },
        row,
        prepare_update: |_, _| {},
        default,
        validate,
        built: OnceLock::new(),
    }
}

fn row(object: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = fields::list(object, "/ports").iter().map(port_text).collect();
    let addresses = fields::list(object, "/endpoints").iter().flat_map(|endpoint| fields::list(endpoint, "/addresses"));
    let addresses: Vec<String> = addresses.filter_map(Value::as_str).map(str::to_owned).collect();
    let type_ = fields::text(object, "/addressType").into();
    vec![cells::name(object), type_, cells::few(&ports), cells::few(&addresses), cells::age(object, now)]
}

fn port_text(port: &Value) -> String {
    match (fields::int(port, "/port"), port.get("name").and_then(Value::as_str)) {
        (Some(number), _) => number.to_string(),
        (None, Some(name)) => name.to_owned(),
        (None, None) => "*".to_owned(),
    }
}

fn default(object: &mut Value) {
    for port in fields::each_mut(object, "/ports") {
        fields::fill(port, "name", "");
        fields::fill(port, "protocol", "TCP");
    }
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let type_ = fields::text(new, "/addressType");
    errors.one_of(&Path::from("addressType"), type_, &["FQDN", "IPv4", "IPv6"]);
    validate_ports(fields::list(new, "/ports"), &mut errors);
    validate_endpoints(fields::list(new, "/endpoints"), type_, &mut errors);
    if let Some(old) = old {
        errors.immutable(new, old, "addressType");
    }
    errors.done()
}

fn validate_ports(ports: &[Value], errors: &mut Errors) {
    let path = Path::from("ports");
    if ports.len() > MOST_PORTS {
        return errors.too_many(&path, ports.len(), MOST_PORTS);
    }
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = fields::text(port, "/name");
        if !name.is_empty() {
            errors.rule(&path.field("name"), name, names::dns_label(name));
        }
        errors.unique(&path.field("name"), name, &mut seen);
        errors.one_of(&path.field("protocol"), fields::text(port, "/protocol"), PROTOCOLS);
        if let Some(protocol) = port.get("appProtocol").and_then(Value::as_str) {
            errors.rule(&path.field("appProtocol"), protocol, names::qualified_name(protocol));
        }
    }
}

fn validate_endpoints(endpoints: &[Value], type_: &str, errors: &mut Errors) {
    let path = Path::from("endpoints");
    if endpoints.len() > MOST_ENDPOINTS {
        return errors.too_many(&path, endpoints.len(), MOST_ENDPOINTS);
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let path = path.index(index);
        validate_addresses(fields::list(endpoint, "/addresses"), type_, &path.field("addresses"), errors);
        for (field, rule) in
            [("nodeName", names::dns_subdomain as fn(&str) -> Vec<String>), ("hostname", names::dns_label)]
        {
            if let Some(value) = endpoint.get(field).and_then(Value::as_str) {
                errors.rule(&path.field(field), value, rule(value));
            }
        }
        validate_hints(endpoint, "forZones", names::label_value, &path.field("hints"), errors);
        validate_hints(endpoint, "forNodes", names::dns_subdomain, &path.field("hints"), errors);
    }
}

fn validate_addresses(addresses: &[Value], type_: &str, path: &Path, errors: &mut Errors) {
    match addresses.len() {
        0 => errors.required(path, "must contain at least 1 address"),
        count if count > MOST_ADDRESSES => errors.too_many(path, count, MOST_ADDRESSES),
        _ => {}
    }
    for (index, address) in addresses.iter().enumerate() {
        let address = address.as_str().unwrap_or_default();
        match type_ {
            "IPv4" | "IPv6" => validate_ip(address, type_, path, index, errors),
            "FQDN" => validate_domain(address, &path.index(index), errors),
            _ => {}
        }
    }
}

fn validate_ip(address: &str, type_: &str, list: &Path, index: usize, errors: &mut Errors) {
    let path = list.index(index);
    let Some(ip) = errors.ip(&path, address) else { return };
    if (type_ == "IPv4") != ip.is_ipv4() {
        errors.invalid(list, address, format!("must be an {type_} address"));
    }
    if let IpAddr::V6(_) = ip
        && address != ip.to_string()
    {
        errors.invalid(&path, address, format!("must be in canonical form ({:?})", ip.to_string()));
    }
    errors.endpoint_ip(&path, address, ip);
}

fn validate_domain(address: &str, path: &Path, errors: &mut Errors) {
    if address.is_empty() {
        return errors.required(path, "");
    }
    let name = address.strip_suffix('.').unwrap_or(address);
    let wrong = names::dns_subdomain(name);
    if !wrong.is_empty() {
        return errors.invalid(path, name, wrong.join(","));
    }
    if !name.contains('.') {
        return errors.invalid(path, name, "should be a domain with at least two segments separated by dots");
    }
    if let Some(label) = name.split('.').find(|label| !names::dns_label(label).is_empty()) {
        errors.invalid(path, label, names::dns_label(label).join(","));
    }
}

fn validate_hints(endpoint: &Value, key: &str, rule: fn(&str) -> Vec<String>, path: &Path, errors: &mut Errors) {
    let path = path.field(key);
    let hints = endpoint.get("hints").map_or(&[][..], |hints| fields::list(hints, &format!("/{key}")));
    if hints.len() > MOST_HINTS {
        return errors.too_many(&path, hints.len(), MOST_HINTS);
    }
    let mut seen = BTreeSet::new();
    for (index, hint) in hints.iter().enumerate() {
        let path = path.index(index).field("name");
        let name = fields::text(hint, "/name");
        errors.unique(&path, name, &mut seen);
        errors.rule(&path, name, rule(name));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::texts;

    #[test]
    fn ports_are_filled_and_shown() {
        let mut object = json!({
            "metadata": {"name": "web-1"},
            "addressType": "IPv4",
            "ports": [{"port": 80}, {"name": "metrics"}],
            "endpoints": [{"addresses": ["10.0.0.1", "10.0.0.2"]}, {"addresses": ["10.0.0.3", "10.0.0.4"]}],
        });
        default(&mut object);
        assert_eq!(object["ports"][0], json!({"name": "", "port": 80, "protocol": "TCP"}));
        assert!(validate(&object, None).is_empty());
        assert_eq!(
            json!(row(&object, Timestamp::UNIX_EPOCH)),
            json!(["web-1", "IPv4", "80,metrics", "10.0.0.1,10.0.0.2,10.0.0.3 + 1 more...", "<unknown>"])
        );
    }

    #[test]
    fn refused() {
        let endpoint =
            |type_: &str, address: &str| json!({"addressType": type_, "endpoints": [{"addresses": [address]}]});
        for (object, expected) in [
            (json!({}), "addressType: Required value"),
            (
                json!({"addressType": "MAC"}),
                "addressType: Unsupported value: \"MAC\": supported values: \"FQDN\", \"IPv4\", \"IPv6\"",
            ),
            (
                json!({"addressType": "IPv4", "endpoints": [{"addresses": []}]}),
                "endpoints[0].addresses: Required value: must contain at least 1 address",
            ),
            (
                endpoint("IPv4", "10.0.0"),
                "endpoints[0].addresses[0]: Invalid value: \"10.0.0\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ),
            (
                endpoint("IPv4", "fd00::1"),
                "endpoints[0].addresses: Invalid value: \"fd00::1\": must be an IPv4 address",
            ),
            (
                endpoint("IPv4", "127.0.0.1"),
                "endpoints[0].addresses[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
            ),
            (
                endpoint("IPv6", "fd00:0::1"),
                "endpoints[0].addresses[0]: Invalid value: \"fd00:0::1\": must be in canonical form (\"fd00::1\")",
            ),
            (
                endpoint("FQDN", "host"),
                "endpoints[0].addresses[0]: Invalid value: \"host\": should be a domain with at least two segments separated by dots",
            ),
            (
                json!({"addressType": "IPv4", "ports": [{"protocol": "TCP"}, {"protocol": "TCP"}]}),
                "ports[1].name: Duplicate value: \"\"",
            ),
        ] {
            assert_eq!(texts(&validate(&object, None)), [expected]);
        }
        assert!(validate(&endpoint("FQDN", "a.example."), None).is_empty());
    }

    #[test]
    fn the_address_type_stays() {
        let found = validate(&json!({"addressType": "IPv6"}), Some(&json!({"addressType": "IPv4"})));
        assert_eq!(texts(&found), ["addressType: Invalid value: \"IPv6\": field is immutable"]);
    }
}
