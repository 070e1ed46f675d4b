use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::time::Instant;

use underpass_engines::labels::{CREATOR_START, INSTANCE, UID, labels};
use underpass_engines::{ContainerEngine, ContainerRequest, ContainerState, EngineError, File, Limits, Port, Protocol};
use underpass_testbed::{PATIENCE, TestEngine, wait_until};

use crate::{eventually, make_network, on_both, on_rootless_too, run, shell, wait_for_end};

on_both!(
    reaches_another_by_its_alias,
    is_reachable_at_its_published_port,
    gets_files_that_only_it_can_read,
    has_no_rights,
    obeys_limits,
    has_the_environment_that_was_asked_for,
    tells_how_it_ended,
    can_be_looked_at_while_it_ends,
    is_made_once,
    is_found_by_label_and_removed_in_any_state,
    has_a_private_folder_that_is_found_by_all_its_labels,
    needs_an_image_that_is_there,
);
on_rootless_too!(
    reaches_another_by_its_alias,
    is_reachable_at_its_published_port,
    gets_files_that_only_it_can_read,
    has_no_rights
);

async fn reaches_another_by_its_alias(test: TestEngine) {
    let network = make_network(&test).await;
    let server = shell(&test, Some((&network, &["first", "second"])), "exec /busybox sleep 1000").await;
    let server = run(&test, &server).await;
    let seen = test.engine.find_container(&server).await.unwrap().unwrap();
    let pid = seen.pid.expect("a container that runs has a process");
    // What starts a container runs in it for a moment, before it becomes its command.
    let command = || std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    wait_until("the command", PATIENCE, || command().contains("busybox").then_some(()));
    let attachment = &seen.networks[&network.name];
    let [IpAddr::V4(address)] = attachment.addresses[..] else { panic!("{attachment:?}") };
    assert!(["first", "second"].iter().all(|alias| attachment.aliases.iter().any(|there| there == alias)));

    // Podman's name server hears of a container shortly after its start.
    let line = format!("for name in first second; do until nslookup $name | grep {address}; do sleep 0.1; done; done");
    let client = run(&test, &shell(&test, Some((&network, &[])), &line).await).await;
    wait_for_end(&test, &client).await;
}

async fn is_reachable_at_its_published_port(test: TestEngine) {
    let network = make_network(&test).await;
    let (web, names) = (Port::tcp(8080), Port { number: 5353, protocol: Protocol::Udp });
    let request = ContainerRequest {
        published: vec![web, names],
        private_folder: Some("/www".into()),
        ..shell(&test, Some((&network, &[])), "exec /busybox httpd -f -p 8080 -h /www").await
    };
    let id = test.engine.create_container(&request).await.unwrap();
    let file = File { name: "index.html".into(), mode: 0o444, contents: b"from the container".to_vec() };
    test.engine.put_files(&id, "/www", &[file]).await.unwrap();
    test.engine.start_container(&id).await.unwrap();
    let seen = test.engine.find_container(&id).await.unwrap().unwrap();
    let address = seen.published_at(web).unwrap();
    assert!(address.ip().is_loopback() && address.port() > 0, "{address}");
    assert!(seen.published_at(names).is_some());
    let page = eventually("an answer at the published port", || async move {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
        let mut page = String::new();
        stream.read_to_string(&mut page).ok()?;
        (!page.is_empty()).then_some(page)
    });
    assert!(page.await.ends_with("from the container"));
}

/// Podman refuses to describe one whose process ends while it looks.
async fn can_be_looked_at_while_it_ends(test: TestEngine) {
    for _ in 0..10 {
        let id = run(&test, &shell(&test, None, ":").await).await;
        let last = Instant::now() + PATIENCE;
        while test.engine.find_container(&id).await.unwrap().unwrap().state != ContainerState::Ended {
            assert!(Instant::now() < last, "it does not end");
        }
    }
}

async fn gets_files_that_only_it_can_read(test: TestEngine) {
    let request = ContainerRequest {
        private_folder: Some("/etc/underpass".into()),
        ..shell(&test, None, "cat /etc/underpass/pair.json; ls -ln /etc/underpass/pair.json").await
    };
    let id = test.engine.create_container(&request).await.unwrap();
    let file = File { name: "pair.json".into(), mode: 0o400, contents: b"{\"key\":\"secret\"}\n".to_vec() };
    assert!(!format!("{file:?}").contains("secret"));
    test.engine.put_files(&id, "/etc/underpass", &[file]).await.unwrap();
    test.engine.start_container(&id).await.unwrap();
    wait_for_end(&test, &id).await;
    let text = test.engine.container_logs(&id, 10).await.unwrap();
    assert!(text.contains(r#"{"key":"secret"}"#), "{text}");
    assert!(text.contains("-r--------") && text.contains("65534"), "{text}");
}

async fn has_no_rights(test: TestEngine) {
    let line = "id -u; id -g; grep -E 'Cap(Eff|Bnd)|NoNewPrivs' /proc/self/status; touch /x 2>&1";
    let id = run(&test, &shell(&test, None, line).await).await;
    wait_for_end(&test, &id).await;
    let text = test.engine.container_logs(&id, 20).await.unwrap();
    assert!(text.starts_with("65534\n65534\n"), "{text}");
    assert_eq!(text.matches("0000000000000000").count(), 2, "{text}");
    assert!(text.contains("NoNewPrivs:\t1"), "{text}");
    assert!(text.contains("Read-only file system"), "{text}");
}

async fn obeys_limits(test: TestEngine) {
    let limits = Limits { memory_bytes: Some(64 << 20), processes: Some(50) };
    // Version 1 and version 2 of cgroups.
    let files = "memory/memory.limit_in_bytes memory.max pids/pids.max pids.max";
    let line = format!("cd /sys/fs/cgroup; cat {files} 2>/dev/null");
    let id = run(&test, &ContainerRequest { limits, ..shell(&test, None, &line).await }).await;
    wait_for_end(&test, &id).await;
    assert_eq!(test.engine.container_logs(&id, 20).await.unwrap(), "67108864\n50\n");
}

async fn has_the_environment_that_was_asked_for(test: TestEngine) {
    let environment = labels(&[("RUST_LOG", "warn"), ("GREETING", "hello = world")]);
    let request = ContainerRequest { environment, ..shell(&test, None, "echo $RUST_LOG, $GREETING").await };
    let id = run(&test, &request).await;
    wait_for_end(&test, &id).await;
    assert_eq!(test.engine.container_logs(&id, 10).await.unwrap(), "warn, hello = world\n");
}

async fn tells_how_it_ended(test: TestEngine) {
    let line = "echo to stderr >&2; for i in 1 2 3 4 5; do echo line $i; done; exit 7";
    let id = run(&test, &shell(&test, None, line).await).await;
    let ended = wait_for_end(&test, &id).await;
    assert_eq!(ended.exit_code, Some(7));
    assert!(test.engine.container_logs(&id, 100).await.unwrap().contains("to stderr\n"));
    let text = test.engine.container_logs(&id, 2).await.unwrap();
    assert!(text.contains("line 5") && !text.contains("line 1"), "{text}");
}

async fn is_made_once(test: TestEngine) {
    let request = shell(&test, None, "exec /busybox sleep 1000").await;
    let id = run(&test, &request).await;
    assert_eq!(test.engine.create_container(&request).await.unwrap(), id);
    test.engine.start_container(&id).await.unwrap();
    let other = ContainerRequest { labels: labels(&[(UID, "another")]), ..request };
    let refused = test.engine.create_container(&other).await.unwrap_err();
    assert!(matches!(refused, EngineError::NameTaken(_)), "{refused}");
}

async fn is_found_by_label_and_removed_in_any_state(test: TestEngine) {
    let created = test.engine.create_container(&shell(&test, None, "true").await).await.unwrap();
    let running = shell(&test, None, "trap '' TERM; while true; do /busybox sleep 1; done").await;
    let running_id = run(&test, &running).await;
    let ended = run(&test, &shell(&test, None, "true").await).await;
    wait_for_end(&test, &ended).await;

    let found = test.engine.find_container(&running.name).await.unwrap().unwrap();
    assert_eq!((found.id.as_str(), found.state), (running_id.as_str(), ContainerState::Running));
    assert!(found.labels.contains_key(CREATOR_START), "{:?}", found.labels);
    assert_eq!(test.engine.find_container(&running_id[..12]).await, Ok(None), "the beginning of an id is no id");

    let mine = [(INSTANCE, test.instance.as_str()), (UID, "uid")];
    assert_eq!(test.engine.list_containers(&mine).await.unwrap().len(), 3);
    let removals = [&created, &running_id, &ended, &running_id].map(|id| test.engine.remove_container(id));
    for removed in futures::future::join_all(removals).await {
        removed.unwrap();
    }
    assert_eq!(test.engine.list_containers(&mine).await, Ok(Vec::new()));
    test.engine.remove_container(&created).await.unwrap();
}

async fn has_a_private_folder_that_is_found_by_all_its_labels(test: TestEngine) {
    let mut made = Vec::new();
    for uid in ["one", "other"] {
        let request = ContainerRequest {
            private_folder: Some("/private".into()),
            labels: labels(&[(UID, uid)]),
            ..shell(&test, None, "true").await
        };
        made.push((test.engine.create_container(&request).await.unwrap(), request.name));
    }
    let of_one = test.engine.list_volumes(&[(INSTANCE, test.instance.as_str()), (UID, "one")]).await.unwrap();
    assert_eq!(of_one.iter().map(|volume| &volume.name).collect::<Vec<_>>(), [&made[0].1]);
    for (id, _) in made {
        test.engine.remove_container(&id).await.unwrap();
    }
}

async fn needs_an_image_that_is_there(test: TestEngine) {
    let request = ContainerRequest { image: "localhost/nobody-has-this:1".into(), ..shell(&test, None, "true").await };
    let refused = test.engine.create_container(&request).await.unwrap_err();
    assert!(matches!(&refused, EngineError::NoImage { reference, .. } if *reference == request.image), "{refused}");
}
