//! A whole controller of kube-rs: owned children, finalizer, server-side apply, status, Events. It runs on `underpass apiserver`, so that
//! no controller of ours has a say in its objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::events::{self, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{self, finalizer};
use kube::runtime::{conditions, wait, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;
use underpass_resources::EgressGateway;

use super::{NAMESPACE, config_maps, gateway, gateways, refusal, soon, until, value};

const FINALIZER: &str = "example.com/cleanup";
const MANAGER: &str = "example";

struct Context {
    client: Client,
    recorder: Recorder,
    cleanups: AtomicU32,
}

type Failed = finalizer::Error<kube::Error>;

async fn reconcile(gateway: Arc<EgressGateway>, context: Arc<Context>) -> Result<Action, Failed> {
    finalizer(&gateways(&context.client), FINALIZER, gateway, |event| async {
        match event {
            finalizer::Event::Apply(gateway) => apply(&gateway, &context).await,
            finalizer::Event::Cleanup(_) => {
                context.cleanups.fetch_add(1, Ordering::SeqCst);
                Ok(Action::await_change())
            }
        }
    })
    .await
}

/// The child carries the number of replicas; the status says which generation that was.
async fn apply(gateway: &EgressGateway, context: &Context) -> kube::Result<Action> {
    let apply = PatchParams::apply(MANAGER).force();
    let child = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": gateway.name_any(), "ownerReferences": [gateway.controller_owner_ref(&())] },
        "data": { "v": gateway.spec.replicas.to_string() },
    });
    config_maps(&context.client).patch(&gateway.name_any(), &apply, &Patch::Apply(child)).await?;
    let status = json!({
        "apiVersion": "underpass.dev/v1alpha1",
        "kind": "EgressGateway",
        "status": { "observedGeneration": gateway.metadata.generation },
    });
    gateways(&context.client).patch_status(&gateway.name_any(), &apply, &Patch::Apply(status)).await?;
    let event = events::Event {
        type_: EventType::Normal,
        reason: "Applied".to_owned(),
        note: Some("the child is as it should be".to_owned()),
        action: "Apply".to_owned(),
        secondary: None,
    };
    context.recorder.publish(&event, &gateway.object_ref(&())).await?;
    Ok(Action::requeue(Duration::from_secs(3600)))
}

fn start(client: &Client) -> (Arc<Context>, JoinHandle<()>) {
    let reporter = Reporter { controller: MANAGER.to_owned(), instance: None };
    let recorder = Recorder::new(client.clone(), reporter);
    let context = Arc::new(Context { client: client.clone(), recorder, cleanups: AtomicU32::new(0) });
    let children = config_maps(client);
    let run = Controller::new(gateways(client), watcher::Config::default())
        .owns(children, watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(100)), Arc::clone(&context))
        .for_each(|_| std::future::ready(()));
    (context, tokio::spawn(run))
}

async fn child_says(client: &Client, name: &str, expected: &str) {
    let says = |child: Option<&ConfigMap>| child.is_some_and(|child| value(child) == expected);
    soon(&format!("child {name} with {expected}"), wait::await_condition(config_maps(client), name, says))
        .await
        .unwrap();
}

async fn observed(client: &Client, name: &str, generation: i64) {
    let seen = |gateway: Option<&EgressGateway>| {
        gateway.and_then(|g| g.status.as_ref()).and_then(|s| s.observed_generation) == Some(generation)
    };
    soon(&format!("generation {generation} of {name} observed"), wait::await_condition(gateways(client), name, seen))
        .await
        .unwrap();
}

async fn applied_events(client: &Client) -> Vec<Event> {
    let events: Api<Event> = Api::namespaced(client.clone(), NAMESPACE);
    let list = events.list(&ListParams::default().fields("reason=Applied")).await.unwrap();
    list.items
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_brings_up_repairs_and_cleans_up() {
    let server = crate::apiserver();
    let client = server.client().await;
    let (context, controller) = start(&client);

    let made = gateways(&client).create(&PostParams::default(), &gateway("g", 2)).await.unwrap();
    child_says(&client, "g", "2").await;
    observed(&client, "g", 1).await;
    let held = gateways(&client).get("g").await.unwrap();
    assert_eq!(held.finalizers(), [FINALIZER]);
    assert_eq!(held.meta().generation, Some(1), "neither finalizer nor status are a new generation");

    config_maps(&client).delete("g", &DeleteParams::default()).await.unwrap();
    child_says(&client, "g", "2").await;

    let patch = Patch::Merge(json!({ "spec": { "replicas": 3 } }));
    gateways(&client).patch("g", &PatchParams::default(), &patch).await.unwrap();
    child_says(&client, "g", "3").await;
    observed(&client, "g", 2).await;

    until("an Event about the gateway", || async {
        let events = applied_events(&client).await;
        events.iter().any(|e| e.regarding.as_ref().and_then(|r| r.uid.as_ref()) == made.metadata.uid.as_ref())
    })
    .await;

    gateways(&client).delete("g", &DeleteParams::default()).await.unwrap();
    let uid = made.uid().unwrap();
    soon("the gateway to go", wait::await_condition(gateways(&client), "g", conditions::is_deleted(&uid)))
        .await
        .unwrap();
    assert_eq!(context.cleanups.load(Ordering::SeqCst), 1);
    until("the child to go with its owner", || async { config_maps(&client).get_opt("g").await.unwrap().is_none() })
        .await;
    controller.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_with_a_finalizer_cannot_be_given_another_one_while_it_goes() {
    let server = crate::apiserver();
    let client = server.client().await;
    let mut made = gateway("g", 1);
    made.finalizers_mut().push(FINALIZER.to_owned());
    gateways(&client).create(&PostParams::default(), &made).await.unwrap();
    gateways(&client).delete("g", &DeleteParams::default()).await.unwrap();
    let more = Patch::Merge(json!({ "metadata": { "finalizers": [FINALIZER, "example.com/late"] } }));
    assert_eq!(
        refusal(gateways(&client).patch("g", &PatchParams::default(), &more).await),
        (422, "Invalid".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_events_become_one_series() {
    let server = crate::apiserver();
    let client = server.client().await;
    let made = gateways(&client).create(&PostParams::default(), &gateway("g", 1)).await.unwrap();
    let recorder = Recorder::new(client.clone(), Reporter { controller: MANAGER.to_owned(), instance: None });
    for _ in 0..3 {
        let event = events::Event {
            type_: EventType::Warning,
            reason: "Applied".to_owned(),
            note: None,
            action: "Apply".to_owned(),
            secondary: None,
        };
        recorder.publish(&event, &made.object_ref(&())).await.unwrap();
    }
    let found = applied_events(&client).await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].series.as_ref().map(|series| series.count), Some(3));
}
