//! The file changes, in every way in which files do.

use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;
use underpass_testbed::{PATIENCE, wait_until};

use super::site::UNKNOWN_NAME;
use super::{Backend, Proxy, Site, assert_carries, assert_contains, becomes, open, who};

#[test]
fn what_changes_is_obeyed_and_connections_go_on() {
    let (api, web, moved) = (Backend::start("api"), Backend::start("web"), Backend::start("moved"));
    let mut site = Site::new().with("api", "api.example.com", &api);
    site.write();
    let mut proxy = Proxy::start(&site);
    let door = site.door();
    let mut connection = open(door, "api.example.com", "api");
    assert_eq!(who(door, "web.example.com"), Err(UNKNOWN_NAME));

    site.add("web", "web.example.com", &web, &json!({}));
    site.write();
    proxy.wait_for_generation(2);
    becomes(door, "web.example.com", Ok("web"));
    assert_carries(&mut connection);

    site.move_to("api", &moved);
    site.write();
    proxy.wait_for_generation(3);
    becomes(door, "api.example.com", Ok("moved"));
    assert_carries(&mut connection);

    site.remove("web");
    site.add("late", "late.example.com", &web, &json!({ "port": 10_444 }));
    site.write();
    proxy.wait_for_generation(4);
    becomes(door, "web.example.com", Err(UNKNOWN_NAME));
    becomes((site.address, 10_444).into(), "late.example.com", Ok("web"));
    assert_carries(&mut connection);
    proxy.process.wait_until_told(&[
        &format!("listener {door}: ready"),
        "upstream cluster edge-web: added",
        "upstream cluster edge-api: updated",
        "upstream cluster edge-web: removed",
        "Discovered endpoints for service cp/web:443",
    ]);
}

#[test]
fn a_removed_backend_gives_its_connections_the_drain_time() {
    let (api, web) = (Backend::start("api"), Backend::start("web"));
    let mut site = Site::new().with("api", "api.example.com", &api).with("web", "web.example.com", &web);
    site.spec["drainSeconds"] = 0.into();
    site.write();
    let proxy = Proxy::start(&site);
    let mut removed = open(site.door(), "web.example.com", "web");
    let mut stays = open(site.door(), "api.example.com", "api");
    site.remove("web");
    site.write();
    proxy.wait_for_generation(2);
    let mut rest = Vec::new();
    // A cut may be a reset.
    let _ = std::io::Read::read_to_end(&mut removed, &mut rest);
    assert_carries(&mut stays);
}

#[test]
fn a_bad_entry_is_refused_alone() {
    let (api, web) = (Backend::start("api"), Backend::start("web"));
    let mut site = Site::new().with("api", "api.example.com", &api).with("bad", "Not A Name", &web);
    site.add("twin", "api.example.com", &web, &json!({}));
    site.write();
    let mut proxy = Proxy::start(&site);
    assert_eq!(who(site.door(), "api.example.com"), Ok("api".into()));
    let rejects = proxy.config()["rejects"].to_string();
    let reasons = [
        "ProxyServer cp/edge, backend bad",
        "spec.backends[1].hostname: Invalid value",
        "ProxyServer cp/edge, backend twin",
        "api.example.com on port 10443 belongs to backend api",
    ];
    assert_contains(&rejects, &reasons);
    for reason in reasons {
        proxy.process.wait_for_stderr(reason, |text| text.contains(reason).then_some(()));
    }
    assert_contains(&proxy.page("/stats/prometheus"), &["underpass_table_rejects 2\n"]);
    site.remove("bad");
    site.remove("twin");
    site.add("good", "good.example.com", &web, &json!({}));
    site.write();
    proxy.wait_for_generation(2);
    assert_eq!(proxy.config()["rejects"], json!([]));
    becomes(site.door(), "good.example.com", Ok("web"));
}

#[test]
fn a_file_that_cannot_be_used_at_all_changes_nothing() {
    let api = Backend::start("api");
    let mut site = Site::new().with("api", "api.example.com", &api);
    site.write();
    let mut proxy = Proxy::start(&site);
    let refused = |reason: &str| {
        wait_until(reason, PATIENCE, || {
            proxy.config()["refused_source"]["reason"].as_str().filter(|text| text.contains(reason)).map(|_| ())
        });
        assert_eq!(proxy.config()["generation"], 1);
        assert_eq!(who(site.door(), "api.example.com"), Ok("api".into()), "{reason}");
    };
    let text = site.text();
    std::fs::write(site.file(), format!("{text}---\n- [")).unwrap();
    refused("document 4 cannot be parsed");
    std::fs::write(site.file(), "").unwrap();
    refused("declares no ProxyServer");
    std::fs::write(site.file(), text.replace("TLS", "TELEX").replace("dataPlane: Native", "dataPlane: Naive")).unwrap();
    refused("spec.dataPlane");
    std::fs::remove_file(site.file()).unwrap();
    refused("cannot read");
    assert_contains(&proxy.page("/stats/prometheus"), &["underpass_table_stale 1\n"]);
    site.add("more", "more.example.com", &api, &json!({}));
    site.write();
    proxy.wait_for_generation(2);
    assert_eq!(proxy.config()["refused_source"], json!(null));
    proxy.process.wait_until_told(&["the one before stays in force"]);
}

#[test]
fn a_file_can_be_replaced_by_renaming() {
    let (api, web) = (Backend::start("api"), Backend::start("web"));
    let mut site = Site::new().with("api", "api.example.com", &api);
    site.write();
    let proxy = Proxy::start(&site);
    for generation in 2..5 {
        site.add(&format!("web{generation}"), &format!("web{generation}.example.com"), &web, &json!({}));
        let new = site.folder().join("new");
        std::fs::write(&new, site.text()).unwrap();
        std::fs::rename(new, site.file()).unwrap();
        proxy.wait_for_generation(generation);
        becomes(site.door(), &format!("web{generation}.example.com"), Ok("web"));
    }
}

/// As the kubelet does: the folder `..data` is a link, and a new one is renamed over it.
#[test]
fn a_config_map_is_swapped_as_a_whole() {
    let (api, web) = (Backend::start("api"), Backend::start("web"));
    let mut site = Site::new().with("api", "api.example.com", &api);
    let publish = |site: &Site, version: &str| {
        let folder = site.folder();
        let data = folder.join(version);
        std::fs::create_dir(&data).unwrap();
        std::fs::write(data.join("proxy.yaml"), site.text()).unwrap();
        symlink(version, folder.join("..data_tmp")).unwrap();
        std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    };
    publish(&site, "..v1");
    symlink(Path::new("..data/proxy.yaml"), site.file()).unwrap();
    let proxy = Proxy::start(&site);
    for (generation, version) in [(2, "..v2"), (3, "..v3")] {
        site.add(&format!("web{generation}"), &format!("web{generation}.example.com"), &web, &json!({}));
        publish(&site, version);
        std::fs::remove_dir_all(site.folder().join(format!("..v{}", generation - 1))).unwrap();
        proxy.wait_for_generation(generation);
        becomes(site.door(), &format!("web{generation}.example.com"), Ok("web"));
    }
}

#[test]
fn the_whole_folder_may_go_and_come_back() {
    let (api, web) = (Backend::start("api"), Backend::start("web"));
    let mut site = Site::new().with("api", "api.example.com", &api);
    let folder = site.folder().join("inner");
    let file = folder.join("proxy.yaml");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(&file, site.text()).unwrap();
    symlink("inner/proxy.yaml", site.file()).unwrap();
    let proxy = Proxy::start(&site);
    std::fs::remove_dir_all(&folder).unwrap();
    wait_until("the loss was seen", PATIENCE, || proxy.config()["refused_source"].is_object().then_some(()));
    site.add("web", "web.example.com", &web, &json!({}));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(&file, site.text()).unwrap();
    proxy.wait_for_generation(2);
    becomes(site.door(), "web.example.com", Ok("web"));
}

/// A writer that keeps the file open: what it has written counts once it pauses.
#[test]
fn a_writer_that_never_closes_is_read_when_it_pauses() {
    use std::io::Write;
    let (api, web) = (Backend::start("api"), Backend::start("web"));
    let mut site = Site::new().with("api", "api.example.com", &api);
    site.write();
    let proxy = Proxy::start(&site);
    site.add("web", "web.example.com", &web, &json!({}));
    let mut file = std::fs::File::create(site.file()).unwrap();
    let text = site.text();
    let (first, second) = text.split_at(text.len() / 2);
    file.write_all(first.as_bytes()).unwrap();
    file.write_all(second.as_bytes()).unwrap();
    proxy.wait_for_generation(2);
    becomes(site.door(), "web.example.com", Ok("web"));
    drop(file);
}

#[test]
fn a_file_that_leaves_nothing_to_listen_on_changes_nothing_until_it_can() {
    let api = Backend::start("api");
    let mut site = Site::new().with("api", "api.example.com", &api);
    site.write();
    let proxy = Proxy::start(&site);
    let taken = TcpListener::bind((site.address, 10_444)).unwrap();
    site.spec["backends"][0]["port"] = json!(10_444);
    site.write();
    wait_until("the file is refused", PATIENCE, || {
        proxy.page("/stats/prometheus").contains("underpass_table_stale 1\n").then_some(())
    });
    assert_contains(&proxy.config()["refused_source"].to_string(), &["nothing can be listened on", ":10444 is in use"]);
    assert_eq!(who(site.door(), "api.example.com"), Ok("api".into()));
    drop(taken);
    let door = (site.address, 10_444).into();
    proxy.wait_for_listener(door);
    becomes(door, "api.example.com", Ok("api"));
    assert_contains(&proxy.page("/stats/prometheus"), &["underpass_table_stale 0\n"]);
}
