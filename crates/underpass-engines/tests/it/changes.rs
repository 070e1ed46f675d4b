use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use underpass_engines::{Change, ContainerEngine};
use underpass_testbed::{Forwarder, PrivateEngine, TestEngine};

use crate::{make_network, network_request, on_both, on_rootless_too, run, shell};

on_both!(
    are_told_of_networks_and_containers,
    go_on_after_the_engine_was_away,
    go_on_after_their_stream_was_cut,
    end_with_their_reader,
);
on_rootless_too!(are_told_of_networks_and_containers);

type Changes = BoxStream<'static, Change>;

async fn until(changes: &mut Changes, what: &str, wanted: impl Fn(&Change) -> bool) {
    let seen = async {
        while let Some(change) = changes.next().await {
            if wanted(&change) {
                return;
            }
        }
        panic!("the changes ended");
    };
    tokio::time::timeout(Duration::from_secs(60), seen).await.unwrap_or_else(|_| panic!("never told: {what}"));
}

fn is_network(change: &Change, wanted: &str) -> bool {
    matches!(change, Change::Network { name, .. } if name == wanted)
}

async fn are_told_of_networks_and_containers(test: TestEngine) {
    let mut changes = test.engine.changes();
    until(&mut changes, "the beginning", |change| *change == Change::Everything).await;
    let network = make_network(&test).await;
    until(&mut changes, "a network that was made", |change| is_network(change, &network.name)).await;

    let line = "exec /busybox sleep 1000";
    let id = run(&test, &shell(&test, Some((&network, &[])), line).await).await;
    let is_container = |change: &Change| *change == Change::Container { id: id.clone() };
    until(&mut changes, "a container that was made", is_container).await;
    test.engine.remove_container(&id).await.unwrap();
    until(&mut changes, "a container that went", is_container).await;
    test.engine.remove_network(&network.id).await.unwrap();
    until(&mut changes, "a network that went", |change| is_network(change, &network.name)).await;
}

async fn go_on_after_the_engine_was_away(test: TestEngine) {
    let mut private = PrivateEngine::start(test.kind);
    let test = private.view();
    let mut changes = test.engine.changes();
    until(&mut changes, "the beginning", |change| *change == Change::Everything).await;
    for _ in 0..2 {
        private.stop();
        until(&mut changes, "the engine's end", |change| *change == Change::Everything).await;
        private.start_again();
        until(&mut changes, "the engine's return", |change| *change == Change::Everything).await;
        let name = test.name("net");
        test.engine.create_network(&network_request(&name)).await.unwrap();
        until(&mut changes, "a change after the return", |change| is_network(change, &name)).await;
        let network = test.engine.find_network(&name).await.unwrap().unwrap();
        test.engine.remove_network(&network.id).await.unwrap();
    }
}

/// What happened while nobody listened is not lost: everything is to be looked at again.
async fn go_on_after_their_stream_was_cut(test: TestEngine) {
    let between = Forwarder::to(&test.address);
    let through = TestEngine::at(test.kind, &between.address());
    let mut changes = through.engine.changes();
    until(&mut changes, "the beginning", |change| *change == Change::Everything).await;
    for _ in 0..2 {
        let id = run(&test, &shell(&test, None, "exec /busybox sleep 1000").await).await;
        until(&mut changes, "a container", |change| *change == Change::Container { id: id.clone() }).await;
        between.cut();
        until(&mut changes, "that something may have been missed", |change| *change == Change::Everything).await;
        test.engine.remove_container(&id).await.unwrap();
    }
}

async fn end_with_their_reader(test: TestEngine) {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let mut changes = test.engine.changes();
    until(&mut changes, "the beginning", |change| *change == Change::Everything).await;
    assert!(tasks() > before);
    drop(changes);
    crate::eventually("the task that followed has ended", || async { (tasks() <= before + 1).then_some(()) }).await;
}
