//! The Helm chart: the same objects, with Helm's words in the places that differ between installations.

use serde_json::{Value, json};

use crate::{MOST_REPLICAS, Platform, Terms, VERSION, definitions, in_namespace};

/// A file of the chart, by its path inside the chart's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChartFile {
    pub path: String,
    pub text: String,
}

/// Helm deletes what a release no longer has; our objects would go with their definitions.
const KEEP: (&str, &str) = ("helm.sh/resource-policy", "keep");

pub fn chart() -> Vec<ChartFile> {
    let mut files = vec![
        file("Chart.yaml", chart_yaml()),
        file("values.yaml", VALUES.replace("VERSION", VERSION)),
        file("values.schema.json", format!("{:#}\n", values_schema())),
        file("templates/NOTES.txt", NOTES.to_owned()),
    ];
    let on = terms(Platform::Kubernetes);
    files.push(file("templates/definitions.yaml", documents(definitions(&on).into_iter().map(kept))));
    let openshift = in_namespace(&terms(Platform::OpenShift));
    files.push(file("templates/operator.yaml", either(&openshift, &in_namespace(&on))));
    files
}

fn terms(platform: Platform) -> Terms {
    Terms {
        namespace: json!("{{ .Release.Namespace }}"),
        image: json!("{{ .Values.image }}"),
        replicas: json!("{{ .Values.replicas | int }}"),
        api_server_port: json!("{{ .Values.apiServerPort | int }}"),
        managed_by: json!("{{ .Release.Service }}"),
        platform,
    }
}

/// Objects that both platforms have alike are written once, the others below a condition.
fn either(openshift: &[Value], kubernetes: &[Value]) -> String {
    let mut text = documents(kubernetes.iter().filter(|object| openshift.contains(object)).cloned());
    for (condition, these, those) in
        [(".Values.openshift", openshift, kubernetes), ("not .Values.openshift", kubernetes, openshift)]
    {
        let only = documents(these.iter().filter(|object| !those.contains(object)).cloned());
        text.push_str(&format!("---\n{{{{- if {condition} }}}}\n{only}{{{{- end }}}}\n"));
    }
    text
}

fn documents(objects: impl Iterator<Item = Value>) -> String {
    objects.map(|object| template(&object)).collect::<Vec<_>>().join("---\n")
}

/// YAML has quotes around Helm's words, which is right for text and wrong for numbers.
fn template(object: &Value) -> String {
    let text = serde_saphyr::to_string(object).expect("an object is data");
    text.replace("\"{{ .Values.replicas | int }}\"", "{{ .Values.replicas | int }}")
        .replace("\"{{ .Values.apiServerPort | int }}\"", "{{ .Values.apiServerPort | int }}")
}

fn kept(mut definition: Value) -> Value {
    let (annotation, policy) = KEEP;
    definition["metadata"]["annotations"][annotation] = json!(policy);
    definition
}

fn file(path: &str, text: String) -> ChartFile {
    ChartFile { path: path.to_owned(), text }
}

fn chart_yaml() -> String {
    format!(
        "apiVersion: v2\n\
         name: underpass\n\
         description: Builds connections across network boundaries, and proves that they work\n\
         type: application\n\
         version: {VERSION}\n\
         appVersion: {VERSION}\n\
         kubeVersion: \">=1.30.0-0\"\n"
    )
}

/// Helm refuses values that do not fit, and names that nobody reads.
fn values_schema() -> Value {
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "image": { "type": "string", "pattern": r"^\S+$" },
            "replicas": { "type": "integer", "minimum": 1, "maximum": MOST_REPLICAS },
            "apiServerPort": { "type": "integer", "minimum": 1, "maximum": 65535 },
            "openshift": { "type": "boolean" },
            // Of Helm itself, when the chart is part of another.
            "global": { "type": "object" },
        },
    })
}

const VALUES: &str = "\
# The image of the operator, as the cluster's nodes can pull it.
image: underpass:VERSION
# One pod works, the others wait to take over.
replicas: 2
# Where the API server listens behind its Service; the operator may connect to this port and to 443.
# kubectl get endpointslices -n default kubernetes
apiServerPort: 6443
# Users of OpenShift's choice, and an SCC for the proxies that the operator starts.
openshift: false
";

const NOTES: &str = "\
The operator runs in {{ .Release.Namespace }}:
  kubectl rollout status -n {{ .Release.Namespace }} deployment/underpass-operator
  kubectl get underpass -A

`helm uninstall` keeps the definitions, and with them your objects. To remove these too, delete your objects before it:
  kubectl delete underpass --all -A
and let this remove what is left after it:
  underpass uninstall
";
