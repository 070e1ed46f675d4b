//! core/v1 PodTemplate.

use std::sync::OnceLock;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodTemplate;
use serde_json::Value;
use underpass_schema::{FieldError, Path};

use crate::checks::Errors;
use crate::{Builtin, Column, cells, fields, names, pod_spec};

const COLUMNS: &[Column] = &[
    Column::name("Name of the template."),
    Column::text("Containers", "Names of the containers."),
    Column::text("Images", "Images of the containers."),
    Column::text("Pod Labels", "Labels of the Pods made from it."),
];

pub(crate) const fn builtin() -> Builtin {
    Builtin {
        group: "",
        version: "v1",
        kind: "PodTemplate",
        plural: "podtemplates",
        singular: "podtemplate",
        short_names: &[],
        categories: &[],
        namespaced: true,
        status: false,
        scale: false,
        generation: true,
        bucket: "podtemplates",
        definition: "io.k8s.api.core.v1.PodTemplate",
        columns: COLUMNS,
        name: names::dns_subdomain,
        define: |generator| {
            generator.subschema_for::<PodTemplate>();
        },
        row,
        prepare_update: |_, _| {},
        default: pod_spec::default_template,
        validate,
        built: OnceLock::new(),
    }
}

fn row(object: &Value, _now: Timestamp) -> Vec<Value> {
    let containers = fields::list(object, "/template/spec/containers");
    vec![
        cells::name(object),
        cells::joined(containers, "/name"),
        cells::joined(containers, "/image"),
        cells::labels(object, "/template/metadata/labels"),
    ]
}

fn validate(new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::default();
    pod_spec::validate_template(&new["template"], &Path::from("template"), &mut errors);
    errors.done()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::texts;

    #[test]
    fn filled_checked_and_shown() {
        let mut object = json!({
            "metadata": {"name": "t"},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "x", "image": "i"}, {"name": "y", "image": "j"}]}},
        });
        builtin().default(&mut object);
        assert_eq!(object["template"]["spec"]["restartPolicy"], "Always");
        assert!(validate(&object, None).is_empty());
        assert_eq!(row(&object, Timestamp::UNIX_EPOCH), [json!("t"), json!("x,y"), json!("i,j"), json!("a=b")]);
        object["template"]["spec"]["containers"] = json!([]);
        assert_eq!(texts(&validate(&object, None)), ["template.spec.containers: Required value"]);
    }
}
