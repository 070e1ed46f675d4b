//! `underpass status`: every object of ours, and whether it works.

mod controllers;
mod row;
mod table;
mod watch;

use anyhow::Context;
use kube::Client;
use kube::api::{DynamicObject, ListParams, TypeMeta};
use serde_json::json;
use underpass_operator::{explain, is_not_served, kinds};
use underpass_resources::{KINDS, Kind};

use crate::args::{Status, StatusFormat};
use crate::exit::Ended;
use crate::{output, server, settings};
use controllers::Controllers;

pub(crate) async fn run(args: Status) -> anyhow::Result<Ended> {
    let kubeconfig = match args.data_dir {
        Some(folder) => settings::kubeconfig_in(&std::path::absolute(folder)?),
        None => settings::kubeconfig(args.server)?,
    };
    let client = server::from_file(&kubeconfig).await?.client;
    let objects = list(&client).await.with_context(|| format!("cannot use {}", kubeconfig.display()))?;
    if args.watch {
        return watch::run(&client, args.output).await;
    }
    let controllers = Controllers::look(&client).await;
    if let Some(warning) = controllers.warning(&kubeconfig).filter(|_| !objects.is_empty()) {
        output::tell(&warning);
    }
    output::print(&render(&objects, controllers, args.output)?)?;
    Ok(Ended::Well)
}

async fn list(client: &Client) -> anyhow::Result<Vec<DynamicObject>> {
    let mut objects = Vec::new();
    for kind in KINDS {
        match kinds::api(client, kind, None).list(&ListParams::default()).await {
            Ok(page) => objects.extend(page.items.into_iter().map(|object| typed(kind, object))),
            // A cluster may carry a part of our kinds only.
            Err(error) if is_not_served(&error) => {}
            Err(error) => return Err(explain(error, kind.plural).into()),
        }
    }
    Ok(objects)
}

/// The items of a list do not say what they are; outside of it they have to.
fn typed(kind: &Kind, mut object: DynamicObject) -> DynamicObject {
    object.types = Some(TypeMeta { api_version: kind.api_version(), kind: kind.kind.to_owned() });
    object
}

fn render(objects: &[DynamicObject], controllers: Controllers, format: StatusFormat) -> anyhow::Result<String> {
    let list =
        || json!({ "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": "" }, "items": objects });
    match format {
        StatusFormat::Json => output::json(&list()),
        StatusFormat::Yaml => output::yaml(&list()),
        StatusFormat::Table => Ok(table::render(objects, controllers)),
    }
}
