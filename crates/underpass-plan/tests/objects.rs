//! Every file in `objects/` is one case: a ProxyServer or an Infra as it was observed (YAML), a line of dashes, and every object that is made for it, in full.
//! `UPDATE=1 cargo test -p underpass-plan` rewrites the objects; read the difference before you commit it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod snapshots;

use underpass_plan::{Action, Plan, infra, proxy_deployment};

#[test]
fn everybody_gets_its_objects() {
    snapshots::check("objects", "\n---- objects\n", |name, input| {
        let objects = plan(name, input).actions.into_iter().filter_map(|action| match action {
            Action::ApplyObject { object, .. } => Some(serde_saphyr::to_string(&object).unwrap()),
            _ => None,
        });
        objects.collect::<Vec<_>>().join("---\n")
    });
}

fn plan(name: &str, input: &str) -> Plan {
    if name.starts_with("infra") {
        return infra::plan(&serde_saphyr::from_str(input).unwrap_or_else(|error| panic!("{name}: {error}")));
    }
    proxy_deployment::plan(&serde_saphyr::from_str(input).unwrap_or_else(|error| panic!("{name}: {error}")))
}
