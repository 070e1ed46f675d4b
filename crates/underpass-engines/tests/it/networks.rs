use underpass_engines::labels::{CREATOR_PID, INSTANCE, KIND, OBJECT, UID};
use underpass_engines::{ContainerEngine, EngineError};
use underpass_plan::NetworkRequest;
use underpass_testbed::{PrivateEngine, TestEngine};

use crate::{make_network, network_request, on_both, on_rootless_too, run, shell};

on_both!(
    is_made_found_and_removed,
    has_ipv6,
    belongs_to_one_owner,
    made_by_many_at_once_is_one,
    says_when_addresses_are_exhausted,
    cannot_go_while_in_use,
    removed_behind_our_back_is_not_found,
);
on_rootless_too!(is_made_found_and_removed, has_ipv6, cannot_go_while_in_use);

async fn is_made_found_and_removed(test: TestEngine) {
    let name = test.name("net");
    assert_eq!(test.engine.find_network(&name).await, Ok(None));
    let request = network_request(&name);
    test.engine.create_network(&request).await.unwrap();
    test.engine.create_network(&request).await.unwrap();

    let network = test.engine.find_network(&name).await.unwrap().unwrap();
    assert_eq!((network.name.as_str(), network.driver.as_str(), network.ipv6), (name.as_str(), "bridge", false));
    assert_eq!((network.subnets.len(), network.gateways.len()), (1, 1));
    assert_eq!(network.owner, request.owner);
    assert_eq!(test.engine.find_network(&name[..name.len() - 1]).await, Ok(None), "a part of a name is no name");

    let pid = std::process::id().to_string();
    let labels = [
        (INSTANCE, test.instance.as_str()),
        (KIND, "ContainerNetwork"),
        (OBJECT, "dev"),
        (UID, request.owner.as_deref().unwrap()),
        (CREATOR_PID, &pid),
    ];
    assert_eq!(test.engine.list_networks(&labels).await.unwrap(), std::slice::from_ref(&network));

    test.engine.remove_network(&network.id).await.unwrap();
    test.engine.remove_network(&network.id).await.unwrap();
    assert_eq!(test.engine.find_network(&name).await, Ok(None));
}

async fn has_ipv6(test: TestEngine) {
    let name = test.name("net");
    let request = NetworkRequest { ipv6: true, ..network_request(&name) };
    test.engine.create_network(&request).await.unwrap();
    let network = test.engine.find_network(&name).await.unwrap().unwrap();
    assert!(network.ipv6);
    assert!(network.subnets.iter().any(|subnet| subnet.starts_with("fd")), "{:?}", network.subnets);
    assert!(network.subnets.iter().any(|subnet| subnet.contains('.')), "{:?}", network.subnets);

    let id = run(&test, &shell(&test, Some((&network, &[])), "exec /busybox sleep 1000").await).await;
    let container = test.engine.find_container(&id).await.unwrap().unwrap();
    let addresses = &container.networks[&name].addresses;
    assert!(addresses.len() == 2 && addresses[0].is_ipv4() && addresses[1].is_ipv6(), "{addresses:?}");
}

async fn belongs_to_one_owner(test: TestEngine) {
    let network = make_network(&test).await;
    let other = NetworkRequest { owner: Some("somebody else".into()), ..network_request(&network.name) };
    let refused = test.engine.create_network(&other).await.unwrap_err();
    assert!(matches!(&refused, EngineError::NameTaken(words) if words.contains(&network.name)), "{refused}");
    let shared = NetworkRequest { owner: None, ..network_request(&network.name) };
    test.engine.create_network(&shared).await.unwrap();
    assert_eq!(test.engine.find_network(&network.name).await.unwrap().unwrap().owner, network.owner);
}

async fn made_by_many_at_once_is_one(test: TestEngine) {
    let name = test.name("net");
    let request = network_request(&name);
    let makers = (0..5).map(|_| test.engine.create_network(&request));
    for made in futures::future::join_all(makers).await {
        made.unwrap();
    }
    assert_eq!(test.engine.list_networks(&[(INSTANCE, &test.instance)]).await.unwrap().len(), 1);
}

async fn says_when_addresses_are_exhausted(test: TestEngine) {
    let private = PrivateEngine::start(test.kind);
    let test = private.view();
    let refused = loop {
        match test.engine.create_network(&network_request(&test.name("net"))).await {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(&refused, EngineError::AddressesExhausted(words) if !words.is_empty()), "{refused}");
    assert_eq!(test.engine.list_networks(&[(INSTANCE, &test.instance)]).await.unwrap().len(), 2);
}

async fn cannot_go_while_in_use(test: TestEngine) {
    let network = make_network(&test).await;
    let id = run(&test, &shell(&test, Some((&network, &[])), "exec /busybox sleep 1000").await).await;
    let seen = test.engine.find_network(&network.name).await.unwrap().unwrap();
    assert_eq!(seen.containers.keys().collect::<Vec<_>>(), [&id]);
    let refused = test.engine.remove_network(&network.id).await.unwrap_err();
    assert!(matches!(refused, EngineError::InUse(_)), "{refused}");
    test.engine.remove_container(&id).await.unwrap();
    test.engine.remove_network(&network.id).await.unwrap();
}

async fn removed_behind_our_back_is_not_found(test: TestEngine) {
    let network = make_network(&test).await;
    TestEngine::at(test.kind, &test.address).engine.remove_network(&network.id).await.unwrap();
    assert_eq!(test.engine.find_network(&network.name).await, Ok(None));
    let request = shell(&test, Some((&network, &[])), "true").await;
    let created = test.engine.create_container(&request).await;
    let started = match &created {
        Ok(id) => test.engine.start_container(id).await,
        Err(error) => Err(error.clone()),
    };
    let refused = started.unwrap_err();
    assert!(matches!(&refused, EngineError::NotFound(words) if words.contains("network")), "{refused}");
}
