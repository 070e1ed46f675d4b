//! The requests that are measured: as small as they can be, and the same for both servers.

use anyhow::Context;
use futures::io::AsyncBufRead;
use http::Request;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// 1 KiB of data in every object.
const PAYLOAD: usize = 1024;

/// A client with connections of its own.
pub(crate) async fn connect(kubeconfig: &str) -> anyhow::Result<Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

pub(crate) async fn is_ready(client: &Client) -> bool {
    client.request_text(get("/readyz")).await.is_ok()
}

pub(crate) async fn post(client: &Client, path: &str, body: String) -> anyhow::Result<()> {
    let request = Request::post(path).header("content-type", "application/json").body(body.into_bytes())?;
    client.request_text(request).await.with_context(|| format!("POST {path}"))?;
    Ok(())
}

pub(crate) async fn make_namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let body = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{name}"}}}}"#);
    post(client, "/api/v1/namespaces", body).await
}

/// Creates a ConfigMap whose value is `mark`, a dash, and filling.
pub(crate) async fn create(client: &Client, namespace: &str, name: &str, mark: u128) -> anyhow::Result<()> {
    let value = format!("{mark}-{:x<width$}", "", width = PAYLOAD - 24);
    let body =
        format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"v":"{value}"}}}}"#);
    post(client, &config_maps(namespace), body).await
}

/// The mark in a line of a watch.
pub(crate) fn mark(line: &str) -> Option<u128> {
    let value = line.split_once(r#""v":""#)?.1;
    value.split_once('-')?.0.parse().ok()
}

/// The bytes of a list with everything in it.
pub(crate) async fn list(client: &Client, namespace: &str) -> anyhow::Result<String> {
    Ok(client.request_text(get(&config_maps(namespace))).await?)
}

/// A watch of everything from now on.
pub(crate) async fn watch(client: &Client, namespace: &str) -> anyhow::Result<impl AsyncBufRead + use<>> {
    let page = client.request_text(get(&format!("{}?limit=1", config_maps(namespace)))).await?;
    let page: serde_json::Value = serde_json::from_str(&page)?;
    let version = page["metadata"]["resourceVersion"].as_str().context("a list has no resourceVersion")?;
    let path = format!("{}?watch=true&resourceVersion={version}", config_maps(namespace));
    Ok(client.request_stream(get(&path)).await?)
}

/// A watch of everything everywhere, which begins with all that there is.
pub(crate) async fn watch_all_that_exists(client: &Client) -> anyhow::Result<impl AsyncBufRead + use<>> {
    Ok(client.request_stream(get("/api/v1/configmaps?watch=true&resourceVersion=0")).await?)
}

fn config_maps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

fn get(path: &str) -> Request<Vec<u8>> {
    Request::get(path).body(Vec::new()).expect("the path is made of names that need no escaping")
}
