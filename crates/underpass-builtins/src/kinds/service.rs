//! core/v1 Service. Addresses and node ports are given by a cluster; here they are kept when set, never allocated.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};
use underpass_schema::{FieldError, Path};

use crate::checks::{Errors, PROTOCOLS};
use crate::{Builtin, Column, cells, fields, names};

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
/// How long a client sticks to its endpoint, in seconds.
const AFFINITY_SECONDS: i64 = 10_800;
const MOST_AFFINITY_SECONDS: i64 = 86_400;
const LOAD_BALANCER_ONLY: &str = "may only be used when `type` is 'LoadBalancer'";

const COLUMNS: &[Column] = &[
    Column::name("Name of the service."),
    Column::text("Type", "How the service is reached."),
    Column::text("Cluster-IP", "Its address inside the cluster."),
    Column::text("External-IP", "Where it is reached from outside."),
    Column::text("Port(s)", "Its ports."),
    Column::age(),
    Column::text("Selector", "Labels of the Pods behind it.").wide(),
];

pub(crate) const fn builtin() -> Builtin {
    Builtin {
        group: "",
        version: "v1",
        kind: "Service",
        plural: "services",
        singular: "service",
        short_names: &["svc"],
        categories: &["all"],
        namespaced: true,
        status: true,
        scale: false,
        generation: false,
        bucket: "services",
        definition: "io.k8s.api.core.v1.Service",
        columns: COLUMNS,
        name: names::dns_1035_label,
        define: |generator| {
            generator.subschema_for::<Service>();
        },
        row,
        prepare_update,
        default,
        validate,
        built: OnceLock::new(),
    }
}

fn row(service: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = fields::list(service, "/spec/ports").iter().map(port_text).collect();
    vec![
        cells::name(service),
        fields::text(service, "/spec/type").into(),
        cells::or(fields::text(service, "/spec/clusterIPs/0"), cells::NONE),
        outside(service).into(),
        cells::or(&ports.join(","), cells::NONE),
        cells::age(service, now),
        cells::labels(service, "/spec/selector"),
    ]
}

fn port_text(port: &Value) -> String {
    let number = fields::int(port, "/port").unwrap_or_default();
    let protocol = fields::text(port, "/protocol");
    match fields::int(port, "/nodePort").filter(|port| *port > 0) {
        Some(node) => format!("{number}:{node}/{protocol}"),
        None => format!("{number}/{protocol}"),
    }
}

fn outside(service: &Value) -> String {
    let external = fields::list(service, "/spec/externalIPs").iter().filter_map(Value::as_str);
    let (given, absent): (Vec<&str>, _) = match fields::text(service, "/spec/type") {
        "ClusterIP" | "NodePort" => (external.collect(), cells::NONE),
        "LoadBalancer" => (balanced(service).into_iter().chain(external).collect(), "<pending>"),
        "ExternalName" => return fields::text(service, "/spec/externalName").to_owned(),
        _ => return cells::UNKNOWN.to_owned(),
    };
    if given.is_empty() { absent.to_owned() } else { given.join(",") }
}

fn balanced(service: &Value) -> BTreeSet<&str> {
    let ingress = fields::list(service, "/status/loadBalancer/ingress").iter();
    ingress
        .map(|ingress| match fields::text(ingress, "/ip") {
            "" => fields::text(ingress, "/hostname"),
            ip => ip,
        })
        .filter(|address| !address.is_empty())
        .collect()
}

/// A client that replaces a service without naming its addresses means to keep them; one that changes the type does not mean the
/// fields that only the old type has.
fn prepare_update(new: &mut Value, old: &Value) {
    let (Some(spec), Some(old)) = (fields::section(new, "spec"), old.get("spec")) else { return };
    let type_ = |spec: &Value| match fields::text(spec, "/type") {
        "" => "ClusterIP".to_owned(),
        type_ => type_.to_owned(),
    };
    let (to, from) = (type_(spec), type_(old));
    if to != "ExternalName"
        && from != "ExternalName"
        && spec.get("clusterIP").is_none()
        && spec.get("clusterIPs").is_none()
    {
        for field in ["clusterIP", "clusterIPs"] {
            old.get(field).into_iter().for_each(|value| fields::fill(spec, field, value.clone()));
        }
    }
    if to != from {
        let unchanged = |field: &&&str| spec.get(**field) == old.get(**field);
        let gone: Vec<&str> = fields_not_of(&to).iter().filter(unchanged).copied().collect();
        spec.as_object_mut().into_iter().for_each(|spec| spec.retain(|field, _| !gone.contains(&field.as_str())));
        if !matches!(to.as_str(), "NodePort" | "LoadBalancer") {
            drop_node_ports(spec, old);
        }
    }
}

fn fields_not_of(type_: &str) -> &'static [&'static str] {
    match type_ {
        "LoadBalancer" => &["externalName"],
        "NodePort" => &["externalName", "allocateLoadBalancerNodePorts", "loadBalancerClass", "healthCheckNodePort"],
        "ClusterIP" => &[
            "externalName",
            "allocateLoadBalancerNodePorts",
            "loadBalancerClass",
            "healthCheckNodePort",
            "externalTrafficPolicy",
        ],
        _ => &[
            "allocateLoadBalancerNodePorts",
            "loadBalancerClass",
            "healthCheckNodePort",
            "externalTrafficPolicy",
            "internalTrafficPolicy",
            "clusterIP",
            "clusterIPs",
            "ipFamilies",
            "ipFamilyPolicy",
        ],
    }
}

fn drop_node_ports(spec: &mut Value, old: &Value) {
    let given: BTreeSet<i64> =
        fields::list(old, "/ports").iter().filter_map(|port| fields::int(port, "/nodePort")).collect();
    for port in fields::each_mut(spec, "/ports").filter_map(Value::as_object_mut) {
        if port.get("nodePort").and_then(Value::as_i64).is_some_and(|node| given.contains(&node)) {
            port.remove("nodePort");
        }
    }
}

fn default(object: &mut Value) {
    if let Some(spec) = fields::section(object, "spec") {
        fields::fill(spec, "type", "ClusterIP");
        default_affinity(spec);
        default_addresses(spec);
        for port in fields::each_mut(spec, "/ports") {
            default_port(port);
        }
        if fields::text(spec, "/type") != "ExternalName" {
            fields::fill(spec, "internalTrafficPolicy", "Cluster");
        }
        if is_reachable_outside(spec) {
            fields::fill(spec, "externalTrafficPolicy", "Cluster");
        }
        if fields::text(spec, "/type") == "LoadBalancer" {
            fields::fill(spec, "allocateLoadBalancerNodePorts", true);
        }
    }
    if let Some(status) = fields::section(object, "status") {
        fields::fill(status, "loadBalancer", json!({}));
    }
    for ingress in fields::each_mut(object, "/status/loadBalancer/ingress") {
        if !fields::text(ingress, "/ip").is_empty() {
            fields::fill(ingress, "ipMode", "VIP");
        }
    }
}

fn default_affinity(spec: &mut Value) {
    fields::fill(spec, "sessionAffinity", "None");
    match fields::text(spec, "/sessionAffinity") {
        "None" => {
            spec.as_object_mut().map(|spec| spec.remove("sessionAffinityConfig"));
        }
        "ClientIP" if fields::int(spec, "/sessionAffinityConfig/clientIP/timeoutSeconds").is_none() => {
            spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}});
        }
        _ => {}
    }
}

/// The singular and the plural field say the same; one stack unless asked otherwise.
fn default_addresses(spec: &mut Value) {
    if fields::text(spec, "/type") == "ExternalName" {
        return;
    }
    let address = fields::text(spec, "/clusterIP").to_owned();
    if !address.is_empty() {
        fields::fill(spec, "clusterIPs", json!([address]));
    }
    let first = fields::text(spec, "/clusterIPs/0").to_owned();
    if !first.is_empty() {
        let family = if first.contains(':') { "IPv6" } else { "IPv4" };
        fields::fill(spec, "clusterIP", first);
        fields::fill(spec, "ipFamilies", json!([family]));
    }
    fields::fill(spec, "ipFamilies", json!(["IPv4"]));
    fields::fill(spec, "ipFamilyPolicy", "SingleStack");
}

fn default_port(port: &mut Value) {
    fields::fill(port, "protocol", "TCP");
    if let Some(number) = fields::int(port, "/port") {
        fields::fill(port, "targetPort", number);
        fields::fill_number(port, "targetPort", number);
    }
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::default();
    if let Some(old) = old {
        validate_update(new, old, &mut errors);
    }
    let spec = &new["spec"];
    let path = Path::from("spec");
    validate_type(spec, &path, &mut errors);
    validate_ports(spec, &path, &mut errors);
    errors.labels(spec, &path, "selector");
    validate_affinity(spec, &path, &mut errors);
    validate_addresses(spec, &path, &mut errors);
    validate_balancer(spec, &path, &mut errors);
    validate_policies(spec, &path, &mut errors);
    errors.done()
}

fn is_headless(spec: &Value) -> bool {
    fields::text(spec, "/clusterIPs/0") == "None"
}

fn is_reachable_outside(spec: &Value) -> bool {
    match fields::text(spec, "/type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !fields::list(spec, "/externalIPs").is_empty(),
        _ => false,
    }
}

fn validate_type(spec: &Value, path: &Path, errors: &mut Errors) {
    let type_ = fields::text(spec, "/type");
    errors.one_of(&path.field("type"), type_, TYPES);
    match type_ {
        "LoadBalancer" | "NodePort" if is_headless(spec) => {
            let detail = format!("may not be set to 'None' for {type_} services");
            errors.invalid(&path.field("clusterIPs").index(0), "None", detail);
        }
        "ExternalName" => {
            for field in
                ["clusterIPs", "ipFamilies", "ipFamilyPolicy"].into_iter().filter(|field| spec.get(*field).is_some())
            {
                errors.forbidden(&path.field(field), "may not be set for ExternalName services");
            }
            let name = fields::text(spec, "/externalName");
            match name.strip_suffix('.').unwrap_or(name) {
                "" => errors.required(&path.field("externalName"), ""),
                name => errors.rule(&path.field("externalName"), name, names::dns_subdomain(name)),
            }
        }
        _ => {}
    }
}

fn validate_ports(spec: &Value, path: &Path, errors: &mut Errors) {
    let path = path.field("ports");
    let ports = fields::list(spec, "/ports");
    let type_ = fields::text(spec, "/type");
    if ports.is_empty() && !is_headless(spec) && type_ != "ExternalName" {
        errors.required(&path, "");
    }
    let (mut seen, mut pairs, mut node_pairs) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        validate_port(port, ports.len() > 1, &path, &mut seen, errors);
        let protocol = fields::text(port, "/protocol");
        let number = fields::int(port, "/port").unwrap_or_default();
        if !pairs.insert((protocol, number)) {
            errors.duplicate(&path, json!({"port": number, "protocol": protocol}));
        }
        let Some(node) = fields::int(port, "/nodePort").filter(|node| *node != 0) else { continue };
        if type_ == "ClusterIP" {
            errors.forbidden(&path.field("nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
        if !node_pairs.insert((protocol, node)) {
            errors.duplicate(&path.field("nodePort"), node);
        }
    }
}

fn validate_port<'a>(port: &'a Value, many: bool, path: &Path, seen: &mut BTreeSet<&'a str>, errors: &mut Errors) {
    match fields::text(port, "/name") {
        "" if many => errors.required(&path.field("name"), ""),
        "" => {}
        name => {
            errors.rule(&path.field("name"), name, names::dns_label(name));
            errors.unique(&path.field("name"), name, seen);
        }
    }
    errors.port(&path.field("port"), fields::int(port, "/port").unwrap_or_default());
    errors.one_of(&path.field("protocol"), fields::text(port, "/protocol"), PROTOCOLS);
    if let Some(target) = port.get("targetPort") {
        errors.port_or_name(&path.field("targetPort"), target);
    }
    if let Some(protocol) = port.get("appProtocol").and_then(Value::as_str) {
        errors.rule(&path.field("appProtocol"), protocol, names::qualified_name(protocol));
    }
}

fn validate_affinity(spec: &Value, path: &Path, errors: &mut Errors) {
    let affinity = fields::text(spec, "/sessionAffinity");
    errors.one_of(&path.field("sessionAffinity"), affinity, &["ClientIP", "None"]);
    let config = path.field("sessionAffinityConfig");
    match affinity {
        "ClientIP" => {
            let seconds = fields::int(spec, "/sessionAffinityConfig/clientIP/timeoutSeconds");
            let path = config.field("clientIP").field("timeoutSeconds");
            match seconds {
                None => errors.required(&path, "when session affinity type is ClientIP"),
                Some(seconds) if !(1..=MOST_AFFINITY_SECONDS).contains(&seconds) => {
                    errors.invalid(
                        &path,
                        seconds,
                        format!("must be greater than 0 and less than {MOST_AFFINITY_SECONDS}"),
                    );
                }
                Some(_) => {}
            }
        }
        "None" if spec.get("sessionAffinityConfig").is_some() => {
            errors.forbidden(&config, "must not be set when session affinity is None");
        }
        _ => {}
    }
}

fn validate_addresses(spec: &Value, path: &Path, errors: &mut Errors) {
    for (index, ip) in fields::list(spec, "/externalIPs").iter().filter_map(Value::as_str).enumerate() {
        let path = path.field("externalIPs").index(index);
        if let Some(parsed) = errors.ip(&path, ip) {
            errors.endpoint_ip(&path, ip, parsed);
        }
    }
    if fields::text(spec, "/type") == "ExternalName" {
        return;
    }
    let families = path.field("ipFamilies");
    let mut seen = BTreeSet::new();
    for (index, family) in fields::list(spec, "/ipFamilies").iter().filter_map(Value::as_str).enumerate() {
        errors.one_of(&families.index(index), family, &["IPv4", "IPv6"]);
        errors.unique(&families.index(index), family, &mut seen);
    }
    if let Some(policy) = spec.get("ipFamilyPolicy").and_then(Value::as_str) {
        let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
        errors.one_of(&path.field("ipFamilyPolicy"), policy, &policies);
    }
    validate_cluster_ips(spec, &path.field("clusterIPs"), errors);
}

fn validate_cluster_ips(spec: &Value, path: &Path, errors: &mut Errors) {
    let ips = fields::list(spec, "/clusterIPs");
    let first = fields::text(spec, "/clusterIP");
    if fields::text(spec, "/clusterIPs/0") != first {
        let detail = if first.is_empty() {
            "must be empty when `clusterIP` is not specified"
        } else {
            "first value must match `clusterIP`"
        };
        errors.invalid(path, ips.to_vec(), detail);
    }
    if is_headless(spec) {
        if ips.len() > 1 {
            errors.invalid(path, ips.to_vec(), "'None' must be the first and only value");
        }
        return;
    }
    if ips.len() > 2 {
        errors.invalid(path, ips.to_vec(), "may only hold up to 2 values");
    }
    for (index, ip) in ips.iter().enumerate() {
        let path = path.index(index);
        let Some(parsed) = errors.ip(&path, ip.as_str().unwrap_or_default()) else { continue };
        let family = if parsed.is_ipv4() { "IPv4" } else { "IPv6" };
        if let Some(wanted) =
            fields::list(spec, "/ipFamilies").get(index).and_then(Value::as_str).filter(|wanted| *wanted != family)
        {
            errors.invalid(
                &path,
                ip.clone(),
                format!("expected an {wanted} value as indicated by `ipFamilies[{index}]`"),
            );
        }
    }
}

fn validate_balancer(spec: &Value, path: &Path, errors: &mut Errors) {
    let class = spec.get("loadBalancerClass").and_then(Value::as_str);
    if fields::text(spec, "/type") == "LoadBalancer" {
        if let Some(class) = class {
            errors.rule(&path.field("loadBalancerClass"), class, names::qualified_name(class));
        }
        return;
    }
    if !fields::list(spec, "/loadBalancerSourceRanges").is_empty() {
        // Kubernetes writes the Go name of this one field.
        errors.forbidden(&path.field("LoadBalancerSourceRanges"), LOAD_BALANCER_ONLY);
    }
    for field in
        ["allocateLoadBalancerNodePorts", "loadBalancerClass"].into_iter().filter(|field| spec.get(*field).is_some())
    {
        errors.forbidden(&path.field(field), LOAD_BALANCER_ONLY);
    }
}

fn validate_policies(spec: &Value, path: &Path, errors: &mut Errors) {
    let type_ = fields::text(spec, "/type");
    let external = fields::text(spec, "/externalTrafficPolicy");
    if is_reachable_outside(spec) {
        errors.one_of(&path.field("externalTrafficPolicy"), external, &["Cluster", "Local"]);
    } else if !external.is_empty() {
        let detail = "may only be set for externally-accessible services";
        errors.invalid(&path.field("externalTrafficPolicy"), external, detail);
    }
    let checked = type_ == "LoadBalancer" && external == "Local";
    if let Some(port) = fields::int(spec, "/healthCheckNodePort").filter(|port| *port != 0 && !checked) {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.invalid(&path.field("healthCheckNodePort"), port, detail);
    }
    if let Some(policy) = spec.get("internalTrafficPolicy").and_then(Value::as_str) {
        errors.one_of(&path.field("internalTrafficPolicy"), policy, &["Cluster", "Local"]);
    }
    if let Some(distribution) = spec.get("trafficDistribution").and_then(Value::as_str) {
        let distributions = ["PreferClose", "PreferSameZone", "PreferSameNode"];
        errors.one_of(&path.field("trafficDistribution"), distribution, &distributions);
    }
}

/// An address that was given stays, unless the service is, or was, only a name.
fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    let type_ = |service: &Value| fields::text(service, "/spec/type").to_owned();
    if type_(new) == "ExternalName" || type_(old) == "ExternalName" {
        return;
    }
    let (ips, old_ips) = (fields::list(new, "/spec/clusterIPs"), fields::list(old, "/spec/clusterIPs"));
    let path = Path::from("spec.clusterIPs");
    if ips.is_empty() && !old_ips.is_empty() {
        errors.invalid(&path.index(0), ips.to_vec(), "primary clusterIP can not be unset");
    }
    for (index, _) in ips.iter().zip(old_ips).enumerate().filter(|(_, (new, old))| new != old) {
        errors.invalid(&path.index(index), ips.to_vec(), "may not change once set");
    }
    let class = |service: &Value| service.pointer("/spec/loadBalancerClass").cloned();
    if type_(new) == "LoadBalancer" && type_(old) == "LoadBalancer" && class(new) != class(old) {
        let path = Path::from("spec.loadBalancerClass");
        errors.invalid(&path, class(new).unwrap_or_default(), "may not change once set");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::texts;

    fn filled(spec: Value) -> Value {
        let mut service = json!({"metadata": {"name": "web"}, "spec": spec});
        default(&mut service);
        service
    }

    #[test]
    fn defaults_of_a_plain_service() {
        let service =
            filled(json!({"ports": [{"port": 80}, {"name": "b", "port": 53, "protocol": "UDP", "targetPort": "dns"}]}));
        assert_eq!(
            service,
            json!({
                "metadata": {"name": "web"},
                "spec": {
                    "type": "ClusterIP",
                    "sessionAffinity": "None",
                    "internalTrafficPolicy": "Cluster",
                    "ipFamilies": ["IPv4"],
                    "ipFamilyPolicy": "SingleStack",
                    "ports": [
                        {"port": 80, "protocol": "TCP", "targetPort": 80},
                        {"name": "b", "port": 53, "protocol": "UDP", "targetPort": "dns"},
                    ],
                },
                "status": {"loadBalancer": {}},
            })
        );
    }

    #[test]
    fn defaults_depend_on_the_type() {
        let balanced = filled(json!({"type": "LoadBalancer", "sessionAffinity": "ClientIP"}));
        assert_eq!(balanced["spec"]["allocateLoadBalancerNodePorts"], true);
        assert_eq!(balanced["spec"]["externalTrafficPolicy"], "Cluster");
        assert_eq!(balanced["spec"]["sessionAffinityConfig"], json!({"clientIP": {"timeoutSeconds": 10800}}));
        let headless = filled(json!({"clusterIP": "None"}));
        assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
        let name = filled(json!({"type": "ExternalName", "externalName": "a.example"}));
        assert_eq!(
            name["spec"],
            json!({"type": "ExternalName", "externalName": "a.example", "sessionAffinity": "None"})
        );
        for service in [headless, name] {
            assert!(validate(&service, None).is_empty());
        }
    }

    #[test]
    fn shown() {
        let cells = |spec: Value| json!(row(&filled(spec), Timestamp::UNIX_EPOCH));
        assert_eq!(
            cells(json!({"ports": [{"port": 80}], "selector": {"app": "web", "b": "c"}})),
            json!(["web", "ClusterIP", "<none>", "<none>", "80/TCP", "<unknown>", "app=web,b=c"])
        );
        assert_eq!(
            cells(json!({"type": "LoadBalancer", "clusterIP": "10.0.0.1", "ports": [{"port": 80, "nodePort": 30080}]})),
            json!(["web", "LoadBalancer", "10.0.0.1", "<pending>", "80:30080/TCP", "<unknown>", "<none>"])
        );
        assert_eq!(
            cells(json!({"type": "ExternalName", "externalName": "a.example"})),
            json!(["web", "ExternalName", "<none>", "a.example", "<none>", "<unknown>", "<none>"])
        );
        assert_eq!(cells(json!({"externalIPs": ["1.2.3.4", "5.6.7.8"]}))[3], "1.2.3.4,5.6.7.8");
    }

    #[test]
    fn refused() {
        for (spec, expected) in [
            (json!({}), "spec.ports: Required value"),
            (
                json!({"ports": [{"port": 0, "targetPort": 80}]}),
                "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            ),
            (json!({"ports": [{"port": 80}, {"name": "b", "port": 81}]}), "spec.ports[0].name: Required value"),
            (
                json!({"ports": [{"name": "a", "port": 80}, {"name": "a", "port": 81}]}),
                "spec.ports[1].name: Duplicate value: \"a\"",
            ),
            (
                json!({"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 80}]}),
                "spec.ports[1]: Duplicate value: {\"port\":80,\"protocol\":\"TCP\"}",
            ),
            (
                json!({"ports": [{"port": 80, "protocol": "ICMP"}]}),
                "spec.ports[0].protocol: Unsupported value: \"ICMP\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
            ),
            (
                json!({"ports": [{"port": 80, "targetPort": 70000}]}),
                "spec.ports[0].targetPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            ),
            (
                json!({"ports": [{"port": 80, "nodePort": 30000}]}),
                "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
            ),
            (
                json!({"type": "Magic", "ports": [{"port": 80}]}),
                "spec.type: Unsupported value: \"Magic\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \
                 \"NodePort\"",
            ),
            (json!({"type": "ExternalName"}), "spec.externalName: Required value"),
            (
                json!({"clusterIP": "None", "type": "NodePort"}),
                "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services",
            ),
            (
                json!({"clusterIP": "10.0.0.256", "ports": [{"port": 80}]}),
                "spec.clusterIPs[0]: Invalid value: \"10.0.0.256\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ),
            (
                json!({"ports": [{"port": 80}], "externalTrafficPolicy": "Local"}),
                "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible services",
            ),
            (
                json!({"ports": [{"port": 80}], "sessionAffinity": "Cookie"}),
                "spec.sessionAffinity: Unsupported value: \"Cookie\": supported values: \"ClientIP\", \"None\"",
            ),
            (
                json!({"ports": [{"port": 80}], "loadBalancerClass": "a"}),
                "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
            ),
        ] {
            assert_eq!(texts(&validate(&filled(spec.clone()), None)), [expected], "{spec}");
        }
    }

    #[test]
    fn an_update_keeps_the_address() {
        let old = filled(json!({"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}));
        let mut new = json!({"spec": {"ports": [{"port": 81}]}});
        prepare_update(&mut new, &old);
        default(&mut new);
        assert_eq!(new["spec"]["clusterIP"], "10.0.0.1");
        assert!(validate(&new, Some(&old)).is_empty());
    }

    #[test]
    fn the_type_may_change() {
        let old =
            filled(json!({"type": "NodePort", "clusterIP": "10.0.0.1", "ports": [{"port": 80, "nodePort": 30080}]}));
        for (type_, name) in [("ClusterIP", ""), ("ExternalName", "a.example"), ("LoadBalancer", "")] {
            let mut new = old.clone();
            new["spec"]["type"] = type_.into();
            if !name.is_empty() {
                new["spec"]["externalName"] = name.into();
            }
            prepare_update(&mut new, &old);
            default(&mut new);
            assert!(validate(&new, Some(&old)).is_empty(), "{type_}: {:?}", texts(&validate(&new, Some(&old))));
        }
    }

    #[test]
    fn the_address_stays() {
        let with = |ip: &str| filled(json!({"clusterIP": ip, "ports": [{"port": 80}]}));
        assert!(validate(&with("10.0.0.1"), Some(&with("10.0.0.1"))).is_empty());
        assert_eq!(
            texts(&validate(&with("10.0.0.2"), Some(&with("10.0.0.1")))),
            ["spec.clusterIPs[0]: Invalid value: [\"10.0.0.2\"]: may not change once set"]
        );
    }
}
