//! Several processes, and processes that are killed: what is stated happens, and nothing is left behind.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, kill_process};
use serde_json::Value;
use underpass_engines::labels::start_ticks;
use underpass_engines::{ContainerEngine, EngineKind, NetworkRequest};
use underpass_testbed::{Launch, PATIENCE, PrivateEngine, Signal, TestEngine, look_until, wait_until, write_program};

use super::rig::{client_process, condition, identity, is_alive, is_ready, proxy, tunnel, tunnel_status, until_dead};
use super::{Rig, on_both, servers};
use crate::{BINARY, descriptors_of, process_where};

on_both!(
    killed_controllers_leave_nothing_and_the_next_ones_start_again,
    a_start_right_after_a_kill_keeps_what_it_finds,
    a_start_waits_for_a_watchdog_that_works,
    a_watchdog_that_is_late_leaves_everything_to_who_was_faster,
    a_watchdog_that_is_late_leaves_everything_to_other_controllers,
    a_watchdog_removes_what_comes_late,
    a_watchdog_waits_for_an_engine_that_is_away,
    a_start_does_not_wait_for_a_watchdog_that_waits_for_an_engine,
    a_watchdog_that_is_alone_cleans_up,
    what_was_killed_with_everything_else_starts_anew,
    controllers_that_end_in_order_leave_a_pair_that_the_next_ones_adopt,
    a_killed_api_server_costs_no_connection,
    two_instances_at_once_load_one_image,
    five_instances_at_once_load_one_image,
    killed_controllers_leave_no_object_that_says_ready,
    down_ends_an_instance_from_outside,
    down_removes_what_a_killed_instance_has_left,
    another_engine_touches_nothing,
    down_says_who_keeps_it_from_ending,
    leftovers_without_an_owner_go_at_the_next_start,
);

fn killed_controllers_leave_nothing_and_the_next_ones_start_again(kind: EngineKind) {
    let mut rig = Rig::start(kind);
    let server = servers::echo();
    rig.apply_proxy("p", &format!("aliases: [h]\ntunnels:\n{}", tunnel("t", server)));
    let before = rig.until_ready("p");
    rig.kill();
    until_dead(&before["serverProxyProcessId"]);
    wait_until("the watchdog to clean up", PATIENCE, || is_clean(&rig).then_some(()));
    rig.assert_nothing_is_left();

    rig.start_again();
    let now = rig.status("p");
    let stale = is_ready(&now) && now["serverProxyProcessId"] == before["serverProxyProcessId"];
    assert!(!stale, "it said that it is ready, and shows what was true before the crash: {now:#}");
    let after = rig.until("p", "another pair", |status| {
        is_ready(status) && status["serverProxyProcessId"] != before["serverProxyProcessId"]
    });
    assert_eq!(after["state"], "Running", "being killed is no failure of the pair");
    let port = &tunnel_status(&after, "t")["clientProxyPort"];
    assert_eq!(port, &tunnel_status(&before, "t")["clientProxyPort"]);
    assert_eq!(rig.guest("p").echo("h", port, "again"), "again");
    rig.end();
}

/// Nobody waits for the watchdog of the dead: it removes everything before the next one looks, or nothing.
fn a_start_right_after_a_kill_keeps_what_it_finds(kind: EngineKind) {
    let mut rig = Rig::start(kind);
    let server = servers::echo();
    rig.apply_proxy("p", &format!("aliases: [h]\ntunnels:\n{}", tunnel("t", server)));
    rig.until_ready("p");
    let dead = killed(&mut rig);
    rig.start_again();
    let found = rig.until("p", "Ready", |status| {
        assert_ne!(status["state"], "Failed", "{status:#}");
        is_ready(status)
    });
    dead.wait();
    assert_eq!(rig.guest("p").echo("h", &tunnel_status(&found, "t")["clientProxyPort"], "again"), "again");
    let after = rig.until_ready("p");
    assert_eq!(after["serverProxyProcessId"], found["serverProxyProcessId"]);
    assert_eq!(after["clientProxyContainerId"], found["clientProxyContainerId"]);
    rig.end();
}

/// The watchdog stands still in the middle of its work.
fn a_start_waits_for_a_watchdog_that_works(kind: EngineKind) {
    let mut rig = Rig::start(kind);
    rig.apply_proxy("p", "aliases: [h]");
    let before = rig.until_ready("p");
    let watchdog = watchdog_of(rig.up.as_ref().unwrap().ready().pid);
    let dead = killed(&mut rig);
    until_dead(&before["serverProxyProcessId"]);
    kill_process(watchdog, Signal::STOP).unwrap();
    let (mut next, _home) = rig.launch_again().spawn_server();
    next.wait_until_told(&[&format!("waiting until the watchdog (process {})", watchdog.as_raw_nonzero())]);
    kill_process(watchdog, Signal::CONT).unwrap();
    next.wait_for_stdout("the ready line", |text| text.contains("kubeconfig").then_some(()));
    dead.wait();
    let kubectl = underpass_testbed::Kubectl::new(&rig.data_dir().join("kubeconfig"));
    let after = until_ready(&kubectl, "p");
    assert_ne!(after["serverProxyProcessId"], before["serverProxyProcessId"]);
    next.signal(Signal::TERM);
    assert_eq!(next.wait().code, Some(0));
    rig.assert_nothing_is_left();
}

/// A watchdog that notices what has happened when others work already.
fn late_watchdog(engine: &TestEngine, of: (u32, u64), instance: &str, folder: &Path) {
    let (variable, address) = engine.variable();
    let launch = Launch::command(BINARY, "monitor").env(variable, address).arg("--instance").arg(instance);
    let launch = launch.arg("--pid").arg(of.0.to_string()).arg("--start").arg(of.1.to_string());
    let ended = launch.arg("--folder").arg(folder).run();
    assert_eq!(ended.code, Some(0), "{ended}");
    crate::assert_contains(&ended.stderr, &["in the hands of others"]);
}

fn a_watchdog_that_is_late_leaves_everything_to_who_was_faster(kind: EngineKind) {
    let mut rig = Rig::start(kind);
    rig.apply_proxy("p", "aliases: [h]");
    let before = rig.until_ready("p");
    let (pid, instance) = (rig.up.as_ref().unwrap().ready().pid, identity(&rig.kubectl()));
    let start = start_ticks(pid).unwrap();
    kill_all_but_the_pair(&mut rig);
    rig.start_again();
    late_watchdog(&rig.engine, (pid, start), &instance, &rig.data_dir());
    let after = rig.until_ready("p");
    assert_eq!(after["serverProxyProcessId"], before["serverProxyProcessId"]);
    assert_eq!(after["clientProxyContainerId"], before["clientProxyContainerId"]);
    assert!(is_alive(&after["serverProxyProcessId"]));
    rig.end();
}

fn a_watchdog_that_is_late_leaves_everything_to_other_controllers(kind: EngineKind) {
    let apart = Apart { folder: tempfile::tempdir().unwrap(), engine: TestEngine::shared(kind) };
    let server = Launch::apiserver(BINARY).start();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", &crate::network("p"));
    kubectl.ok_with("apply -f -", &proxy("p", "aliases: [h]"));
    let (first, _home) = apart.controllers(&server);
    let before = until_ready(&kubectl, "p");
    let (pid, instance) = (first.pid(), identity(&kubectl));
    let start = start_ticks(pid).unwrap();
    kill_watchdog_of(pid);
    first.signal(Signal::KILL);
    first.wait();
    let (mut second, _home) = apart.controllers(&server);
    second.wait_for_stderr("the adoption", |text| text.contains("server proxy adopted").then_some(()));
    let folder = apart.folder.path().join("controllers").join(&instance);
    late_watchdog(&apart.engine, (pid, start), &instance, &folder);
    let after = until_ready(&kubectl, "p");
    assert_eq!(after["serverProxyProcessId"], before["serverProxyProcessId"]);
    assert_eq!(after["clientProxyContainerId"], before["clientProxyContainerId"]);
    assert!(is_alive(&after["serverProxyProcessId"]));
    kubectl.ok("delete cntp p --timeout=60s");
    kubectl.ok("delete ctrnet p --timeout=60s");
    second.signal(Signal::TERM);
    assert_eq!(second.wait().code, Some(0));
}

/// As an engine's that goes on with what the dead had asked for.
fn a_watchdog_removes_what_comes_late(kind: EngineKind) {
    let mut rig = Rig::start(kind);
    rig.apply(&crate::network("p"));
    rig.kubectl().ok("wait --for=condition=Ready ctrnet/p --timeout=60s");
    let (engine, name) = (rig.engine_of_instance(), rig.engine.name("late"));
    let late = NetworkRequest { name, object: "p".to_owned(), ipv6: false, owner: Some("late".to_owned()) };
    let dead = killed(&mut rig);
    wait_until("the watchdog's first look", PATIENCE, || is_clean(&rig).then_some(()));
    rig.wait_for(engine.create_network(&late)).unwrap();
    let told = dead.wait();
    assert!(is_clean(&rig), "{told}");
}

/// What needs no engine goes at once, the rest when there is one again, and nobody is told that it is gone before that.
fn a_watchdog_waits_for_an_engine_that_is_away(kind: EngineKind) {
    let mut private = PrivateEngine::start(kind);
    private.enter();
    let apart = Apart { folder: tempfile::tempdir().unwrap(), engine: private.view() };
    let server = Launch::apiserver(BINARY).start();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", &crate::network("p"));
    kubectl.ok_with("apply -f -", &proxy("p", "aliases: [h]"));
    let (first, _home) = apart.controllers(&server);
    let before = until_ready(&kubectl, "p");
    let instance = identity(&kubectl);
    let pairs = apart.folder.path().join("controllers").join(&instance).join("tunnels");
    assert_eq!(std::fs::read_dir(&pairs).unwrap().count(), 1);

    private.stop();
    first.signal(Signal::KILL);
    until_dead(&before["serverProxyProcessId"]);
    wait_until("the pair's folder to go", PATIENCE, || (std::fs::read_dir(&pairs).unwrap().count() == 0).then_some(()));
    let told = |part: &str| {
        wait_until(part, PATIENCE, || {
            let status = kubectl.json("get cntp p")["status"].clone();
            condition(&status, "Ready")["message"].as_str().unwrap().contains(part).then_some(())
        });
    };
    told("were killed, and their watchdog removes what they had made");
    wait_until("the sixth attempt", PATIENCE, || first.stderr().contains("attempt=6").then_some(()));

    private.start_again();
    let ended = first.wait();
    told("were killed, and what they had made is removed");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mine = [(underpass_engines::labels::INSTANCE, instance.as_str())];
    let engine = &apart.engine.engine;
    let left = runtime.block_on(async {
        let (containers, networks) = (engine.list_containers(&mine).await, engine.list_networks(&mine).await);
        (containers.unwrap().len(), networks.unwrap().len(), engine.list_volumes(&mine).await.unwrap().len())
    });
    assert_eq!(left, (0, 0, 0), "{ended}");
    assert!(!pairs.exists(), "nothing stands in any engine: {ended}");
}

/// Until there is one again, it is theirs to wait.
fn a_start_does_not_wait_for_a_watchdog_that_waits_for_an_engine(kind: EngineKind) {
    let mut private = PrivateEngine::start(kind);
    private.enter();
    let mut rig = Rig::on(private.view());
    rig.apply_proxy("p", "aliases: [h]");
    let before = rig.until_ready("p");
    private.stop();
    let dead = killed(&mut rig);
    until_dead(&before["serverProxyProcessId"]);
    rig.start_again();
    let told = dead.wait();
    crate::assert_contains(&told.stderr, &["in the hands of others"]);
    private.start_again();
    let after = rig.until_ready("p");
    assert_ne!(after["serverProxyProcessId"], before["serverProxyProcessId"]);
    assert_eq!(rig.containers("p").len(), 1);
    rig.end();
}

/// Killed, while its watchdog works on; which is waited for with the output that both share.
fn killed(rig: &mut Rig) -> underpass_testbed::Process {
    let dead = rig.up.take().unwrap().into_process();
    dead.signal(Signal::KILL);
    dead
}

fn watchdog_of(pid: u32) -> Pid {
    Pid::from_raw(find_watchdog_of(pid).expect("a watchdog")).unwrap()
}

fn find_watchdog_of(pid: u32) -> Option<i32> {
    let watches = format!("monitor\0--pid\0{pid}\0");
    process_where(|file| file("cmdline").contains(&watches))
}

/// Everything else dies at once: API server and controllers (one process), server proxy, client proxy.
fn a_watchdog_that_is_alone_cleans_up(kind: EngineKind) {
    let mut rig = Rig::start(kind);
    rig.apply_proxy("p", "aliases: [h]");
    let before = rig.until_ready("p");
    let client = client_process(&rig.containers("p")[0].id);
    let server = i32::try_from(before["serverProxyProcessId"].as_i64().unwrap()).unwrap();
    let ours = descriptors_of(rig.up.as_ref().unwrap().ready().pid);
    let theirs = descriptors_of(server.try_into().unwrap());
    assert_eq!(theirs.intersection(&ours).collect::<Vec<_>>(), Vec::<&String>::new(), "what it would hold of the dead");
    rig.kill();
    for pid in [client, server] {
        // The watchdog may have been faster.
        let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
    }
    wait_until("the watchdog to clean up", PATIENCE, || is_clean(&rig).then_some(()));
    rig.assert_nothing_is_left();
    until_no_lock_is_left();
}

/// Locks that nobody holds. Those of others who use the same image just now are not ours to judge.
fn stale_locks() -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let folders = [format!("/run/user/{user}/underpass"), format!("/tmp/underpass-{user}")];
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
    let is_free = |path: &PathBuf| {
        File::open(path)
            .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() && path.exists())
    };
    entries.map(|entry| entry.path()).filter(is_free).collect()
}

/// Other tests may leave one for a moment, between a kill and the watchdog's work.
#[track_caller]
fn until_no_lock_is_left() {
    let mut left = Vec::new();
    let gone = look_until(PATIENCE, || {
        left = stale_locks();
        left.is_empty().then_some(())
    });
    assert!(gone.is_some(), "nobody holds these: {left:?}");
}

/// As a reboot: nobody is left to clean up, and nobody has seen the pair die.
fn what_was_killed_with_everything_else_starts_anew(kind: EngineKind) {
    let mut rig = Rig::start(kind);
    let server = servers::echo();
    for (name, policy) in [("p", "Never"), ("q", "Always")] {
        rig.apply_proxy(name, &format!("aliases: [h]\nrestartPolicy: {policy}\ntunnels:\n{}", tunnel("t", server)));
    }
    let before = ["p", "q"].map(|name| rig.until_ready(name));
    kill_all_but_the_pair(&mut rig);
    for (name, status) in ["p", "q"].iter().zip(&before) {
        let container = status["clientProxyContainerId"].as_str().unwrap();
        let server = i32::try_from(status["serverProxyProcessId"].as_i64().unwrap()).unwrap();
        for pid in [client_process(container), server] {
            kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        until_dead(&status["serverProxyProcessId"]);
    }

    rig.start_again();
    for (name, before) in ["p", "q"].iter().zip(&before) {
        let after = rig.until(name, "another pair", |status| {
            assert_ne!(status["state"], "Failed", "{status:#}");
            is_ready(status) && status["serverProxyProcessId"] != before["serverProxyProcessId"]
        });
        assert_eq!(after["restartCount"], Value::Null, "a start is no restart");
        let port = &tunnel_status(&after, "t")["clientProxyPort"];
        assert_eq!(port, &tunnel_status(before, "t")["clientProxyPort"]);
        assert_eq!(rig.guest(name).echo("h", port, "again"), "again");
    }
    // What dies now dies under their eyes.
    let pid = rig.status("p")["serverProxyProcessId"].as_i64().unwrap();
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
    rig.until_state("p", "Failed");
    rig.end();
}

fn is_clean(rig: &Rig) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| rig.assert_nothing_is_left())).is_ok()
}

/// An API server and controllers apart, on one engine.
struct Apart {
    folder: tempfile::TempDir,
    engine: TestEngine,
}

impl Apart {
    fn controllers(&self, server: &underpass_testbed::Underpass) -> (underpass_testbed::Process, tempfile::TempDir) {
        let (variable, address) = self.engine.variable();
        let launch = Launch::command(BINARY, "controllers").env(variable, address);
        let launch = launch.arg("--kubeconfig").arg(server.kubeconfig());
        launch.arg("--data-dir").arg(self.folder.path().join("controllers")).spawn()
    }
}

fn until_ready(kubectl: &underpass_testbed::Kubectl, name: &str) -> Value {
    kubectl.ok(&format!("wait --for=condition=Ready cntp/{name} --timeout=120s"));
    kubectl.json(&format!("get cntp {name}"))["status"].clone()
}

/// Where containers reach a tunnel; this host does, too.
fn client_address(status: &Value, name: &str) -> SocketAddr {
    let tunnel = tunnel_status(status, name);
    let port = u16::try_from(tunnel["clientProxyPort"].as_u64().unwrap()).unwrap();
    SocketAddr::new(tunnel["clientProxyAddresses"][0].as_str().unwrap().parse().unwrap(), port)
}

fn controllers_that_end_in_order_leave_a_pair_that_the_next_ones_adopt(kind: EngineKind) {
    let apart = Apart { folder: tempfile::tempdir().unwrap(), engine: TestEngine::shared(kind) };
    let server = Launch::apiserver(BINARY).start();
    let kubectl = server.kubectl();
    let echo = servers::echo();
    kubectl.ok_with("apply -f -", &crate::network("p"));
    kubectl.ok_with("apply -f -", &proxy("p", &format!("aliases: [h]\ntunnels:\n{}", tunnel("t", echo))));
    let (first, _home) = apart.controllers(&server);
    let before = until_ready(&kubectl, "p");
    first.signal(Signal::TERM);
    assert_eq!(first.wait().code, Some(0));
    assert!(is_alive(&before["serverProxyProcessId"]), "tunnels go on without controllers");

    let (mut second, _home) = apart.controllers(&server);
    second.wait_for_stderr("the adoption", |text| text.contains("server proxy adopted").then_some(()));
    let after = until_ready(&kubectl, "p");
    assert_eq!(after["serverProxyProcessId"], before["serverProxyProcessId"]);
    assert_eq!(after["clientProxyContainerId"], before["clientProxyContainerId"]);
    // The end of a process that somebody else started is seen, too.
    let pid = before["serverProxyProcessId"].as_i64().unwrap();
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
    kubectl.ok("wait --for=jsonpath={.status.state}=Failed cntp/p --timeout=60s");
    kubectl.ok("delete cntp p --timeout=60s");
    kubectl.ok("delete ctrnet p --timeout=60s");
    second.signal(Signal::TERM);
    assert_eq!(second.wait().code, Some(0));
}

/// The API server lives, so that whoever is left can say what has happened.
fn killed_controllers_leave_no_object_that_says_ready(kind: EngineKind) {
    let apart = Apart { folder: tempfile::tempdir().unwrap(), engine: TestEngine::shared(kind) };
    let server = Launch::apiserver(BINARY).start();
    let kubectl = server.kubectl();
    let tunnel = tunnel("t", servers::echo()).replace('}', ", clientServiceName: web}");
    let spec = format!("aliases: [h]\ntunnels:\n{tunnel}");
    kubectl
        .ok_with("apply -f -", &format!("{}---\n{}---\n{}", client_service(), crate::network("p"), proxy("p", &spec)));
    let (first, _home) = apart.controllers(&server);
    let before = until_ready(&kubectl, "p");
    assert_eq!(slices(&kubectl), 1);
    let watchdog = format!("monitor\0--pid\0{}\0", first.pid());
    let watchdog = process_where(|file| file("cmdline").contains(&watchdog)).expect("a watchdog");
    let killed = first.pid();
    first.signal(Signal::KILL);
    first.wait();
    for object in ["ctrnet/p", "cntp/p"] {
        kubectl.ok(&format!("wait --for=condition=Ready=False {object} --timeout=60s"));
        let status = kubectl.json(&format!("get {object}"))["status"].clone();
        let ready = condition(&status, "Ready");
        assert_eq!(ready["reason"], "ControllersKilled", "{status:#}");
        let message = ready["message"].as_str().unwrap();
        crate::assert_contains(message, &[&format!("process {killed}"), "`underpass controllers`"]);
        assert_eq!(status["state"], "Pending", "{status:#}");
    }
    let status = kubectl.json("get cntp p")["status"].clone();
    let told = tunnel_status(&status, "t");
    assert_eq!((&told["state"], &told["clientProxyPort"]), (&"NotReady".into(), &Value::Null));
    assert_eq!(slices(&kubectl), 0, "nobody answers there any more");
    until_dead(&before["serverProxyProcessId"]);
    until_dead(&watchdog.into());

    let (second, _home) = apart.controllers(&server);
    let after = until_ready(&kubectl, "p");
    assert_ne!(after["serverProxyProcessId"], before["serverProxyProcessId"], "being killed is no failure of the pair");
    assert_eq!(slices(&kubectl), 1);
    kubectl.ok("delete cntp p --timeout=60s");
    kubectl.ok("delete ctrnet p --timeout=60s");
    second.signal(Signal::TERM);
    assert_eq!(second.wait().code, Some(0));
}

fn client_service() -> &'static str {
    "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: default}\nspec: {ports: [{port: 80}]}\n"
}

fn slices(kubectl: &underpass_testbed::Kubectl) -> usize {
    kubectl.ok("get endpointslices -A -l underpass.dev/owner-uid -o name").lines().count()
}

fn a_killed_api_server_costs_no_connection(kind: EngineKind) {
    let apart = Apart { folder: tempfile::tempdir().unwrap(), engine: TestEngine::shared(kind) };
    let data = apart.folder.path().join("api");
    let server = Launch::apiserver(BINARY).data_dir(&data).start();
    let address = server.ready().api.trim_start_matches("https://").to_owned();
    let echo = servers::echo();
    server.kubectl().ok_with("apply -f -", &crate::network("p"));
    server.kubectl().ok_with("apply -f -", &proxy("p", &format!("aliases: [h]\ntunnels:\n{}", tunnel("t", echo))));
    let (controllers, _home) = apart.controllers(&server);
    let before = until_ready(&server.kubectl(), "p");
    let mut held = TcpStream::connect(client_address(&before, "t")).unwrap();
    held.set_read_timeout(Some(PATIENCE)).unwrap();
    held.write_all(b"before and ").unwrap();
    server.kill();
    assert!(is_alive(&before["serverProxyProcessId"]));
    let next = Launch::apiserver(BINARY).data_dir(&data).arg("--listen").arg(&address).start();
    let kubectl = next.kubectl();
    kubectl.ok("annotate cntp p seen=again");
    let after = until_ready(&kubectl, "p");
    assert_eq!(after["serverProxyProcessId"], before["serverProxyProcessId"], "the pair did not notice");
    held.write_all(b"after").unwrap();
    held.shutdown(Shutdown::Write).unwrap();
    let mut said = String::new();
    held.read_to_string(&mut said).unwrap();
    assert_eq!(said, "before and after", "nor did who was connected");
    kubectl.ok("delete cntp p --timeout=120s");
    kubectl.ok("delete ctrnet p --timeout=60s");
    until_dead(&before["serverProxyProcessId"]);
    controllers.signal(Signal::TERM);
    assert_eq!(controllers.wait().code, Some(0));
}

/// Each has a data directory, an API server and controllers of its own; the program, and so the image, is the same.
fn two_instances_at_once_load_one_image(kind: EngineKind) {
    instances_at_once_load_one_image(kind, 2);
}

fn five_instances_at_once_load_one_image(kind: EngineKind) {
    instances_at_once_load_one_image(kind, 5);
}

fn instances_at_once_load_one_image(kind: EngineKind, count: usize) {
    let engine = TestEngine::shared(kind);
    let folder = tempfile::tempdir().unwrap();
    // Another program than all other tests have: its image is not there yet.
    let program = folder.path().join("underpass");
    write_program(&program, &[&std::fs::read(BINARY).unwrap(), engine.name("a program of its own").as_bytes()]);
    let manifest = folder.path().join("pair.yaml");
    std::fs::write(&manifest, format!("{}---\n{}", crate::network("p"), proxy("p", "aliases: [h]"))).unwrap();
    let (variable, address) = engine.variable();
    let start = |number: usize| {
        let launch = Launch::up(program.to_str().unwrap()).env(variable, address);
        launch.data_dir(&folder.path().join(number.to_string())).file(&manifest).start()
    };
    let instances: Vec<_> = std::thread::scope(|scope| {
        let starting: Vec<_> = (0..count).map(|number| scope.spawn(move || start(number))).collect();
        starting.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let images: std::collections::BTreeSet<String> = instances
        .iter()
        .map(|up| until_ready(&up.kubectl(), "p")["clientProxyContainerImage"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(images.len(), 1, "{images:?}");
    let loads: usize = instances
        .into_iter()
        .map(|up| {
            let ended = up.stop();
            assert_eq!(ended.code, Some(0), "{ended}");
            ended.stderr.matches("image made").count()
        })
        .sum();
    assert_eq!(loads, 1, "exactly one of them loaded the image");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let image = engine.engine.find_image(images.first().unwrap()).await.unwrap();
        engine.engine.remove_image(&image.expect("it stays for the next").id).await.unwrap();
    });
}

fn down_ends_an_instance_from_outside(kind: EngineKind) {
    let mut rig = Rig::start(kind);
    rig.apply_proxy("p", "aliases: [h]");
    let status = rig.until_ready("p");
    let pid = rig.up.as_ref().unwrap().ready().pid;
    watchdog_of(pid);
    let down = || Launch::command(BINARY, "down").arg("--data-dir").arg(rig.data_dir()).run();
    let ended = down();
    assert_eq!(ended.code, Some(0), "{ended}");
    crate::assert_contains(&ended.stderr, &["deleted  ContainerNetworkTunnelProxy p", "deleted  ContainerNetwork p"]);
    let again = down();
    assert_eq!(again.code, Some(0), "{again}");
    crate::assert_contains(&again.stderr, &["no underpass runs on the data directory"]);
    let up = rig.up.take().unwrap().wait();
    assert_eq!(up.code, Some(0), "{up}");
    until_dead(&status["serverProxyProcessId"]);
    wait_until("the end of the watchdog", PATIENCE, || find_watchdog_of(pid).is_none().then_some(()));
    rig.assert_nothing_is_left();
    until_no_lock_is_left();
    assert!(!rig.data_dir().join("kubeconfig").exists());
}

/// Nobody is left to clean up, but whoever asks for it.
fn down_removes_what_a_killed_instance_has_left(kind: EngineKind) {
    let mut rig = Rig::start(kind);
    rig.apply_proxy("p", "aliases: [h]");
    let status = rig.until_ready("p");
    let container = rig.containers("p")[0].name.clone();
    kill_all_but_the_pair(&mut rig);
    assert!(is_alive(&status["serverProxyProcessId"]), "nobody was left to clean up");
    let (variable, address) = rig.engine.variable();
    let down = |launch: Launch| launch.arg("--data-dir").arg(rig.data_dir()).run();
    let blind = down(Launch::command(BINARY, "down"));
    assert_eq!(blind.code, Some(1), "what is in an engine that does not answer cannot be said to be gone: {blind}");
    crate::assert_contains(&blind.stderr, &["no-engine.sock", "call `underpass down` again"]);
    assert!(is_alive(&status["serverProxyProcessId"]), "nothing is half removed");
    let down = || down(Launch::command(BINARY, "down").env(variable, address));
    let ended = down();
    assert_eq!(ended.code, Some(0), "{ended}");
    let process = format!("process {}", status["serverProxyProcessId"]);
    let told =
        ["no underpass runs", "removed  container", &container, "removed  network p-", &process, "2 objects are kept"];
    crate::assert_contains(&ended.stderr, &told);
    until_dead(&status["serverProxyProcessId"]);
    rig.assert_nothing_is_left();
    assert!(!rig.data_dir().join("kubeconfig").exists());
    let again = down();
    assert_eq!(again.code, Some(0), "{again}");
    assert!(!again.stderr.contains("removed"), "{again}");
    rig.start_again();
    rig.until_ready("p");
    rig.end();
}

fn down_says_who_keeps_it_from_ending(kind: EngineKind) {
    let mut rig = Rig::start(kind);
    rig.apply_proxy("p", "aliases: [h]");
    rig.until_ready("p");
    let name = rig.engine.name("stays");
    let foreign = rig.guest("p").bystander(&name, &[]);
    let down = |timeout: &str| {
        Launch::command(BINARY, "down").arg("--timeout").arg(timeout).arg("--data-dir").arg(rig.data_dir()).run()
    };
    let refused = down("5");
    assert_eq!(refused.code, Some(1), "{refused}");
    crate::assert_contains(&refused.stderr, &["after 5 seconds", "ContainerNetwork p", &name]);
    assert!(!refused.stderr.contains("Ctrl-C"), "nobody pressed it: {refused}");
    let listed = Launch::command(BINARY, "status").arg("--data-dir").arg(rig.data_dir()).run();
    crate::assert_contains(&listed.stdout, &["NetworkInUse", "being deleted: "]);
    rig.wait_for(rig.engine.engine.remove_container(&foreign)).unwrap();
    assert_eq!(down("60").code, Some(0));
    assert_eq!(rig.up.take().unwrap().wait().code, Some(0));
    rig.assert_nothing_is_left();
    assert!(!rig.data_dir().join("tunnels").exists(), "no empty folder is left");
}

/// What was made in one engine is not gone because another does not have it.
fn another_engine_touches_nothing(kind: EngineKind) {
    let mut rig = Rig::start(kind);
    rig.apply_proxy("p", "aliases: [h]");
    let status = rig.until_ready("p");
    let uid = rig.kubectl().ok("get cntp p -o jsonpath={.metadata.uid}");
    kill_all_but_the_pair(&mut rig);
    let other = TestEngine::shared(if kind == EngineKind::Docker { EngineKind::Podman } else { EngineKind::Docker });
    let run = |command: &str, (variable, address): (&str, &str)| {
        Launch::command(BINARY, command).env(variable, address).arg("--data-dir").arg(rig.data_dir()).run()
    };
    let how = format!("--container-runtime {}", kind.to_string().to_lowercase());
    for command in ["down", "up"] {
        let refused = run(command, other.variable());
        assert_eq!(refused.code, Some(1), "{refused}");
        crate::assert_contains(&refused.stderr, &[&rig.engine.address, &other.address, &how]);
        assert!(is_alive(&status["serverProxyProcessId"]), "{command} touches nothing");
        assert_eq!(rig.containers_of(&uid).len(), 1, "{command} touches nothing");
        assert!(rig.data_dir().join("tunnels").join(&uid).exists(), "{command} touches nothing");
    }
    let ended = run("down", rig.engine.variable());
    assert_eq!(ended.code, Some(0), "{ended}");
    until_dead(&status["serverProxyProcessId"]);
    rig.assert_nothing_is_left();
    let elsewhere = run("down", other.variable());
    assert_eq!(elsewhere.code, Some(0), "nothing is left that the other engine could not tell of: {elsewhere}");
}

/// The watchdog first, while its controllers stand still and start no other.
fn kill_all_but_the_pair(rig: &mut Rig) {
    let pid = rig.up.as_ref().unwrap().ready().pid;
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::STOP).unwrap();
    kill_watchdog_of(pid);
    rig.kill();
}

/// Everything is killed at once, the watchdog too; then the object is gone from the store before anybody looks.
fn leftovers_without_an_owner_go_at_the_next_start(kind: EngineKind) {
    let apart = Apart { folder: tempfile::tempdir().unwrap(), engine: TestEngine::shared(kind) };
    let server = Launch::apiserver(BINARY).start();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", &crate::network("p"));
    kubectl.ok_with("apply -f -", &proxy("p", "aliases: [h]"));
    let (first, _home) = apart.controllers(&server);
    let before = until_ready(&kubectl, "p");
    kill_watchdog_of(first.pid());
    first.signal(Signal::KILL);
    first.wait();
    assert!(is_alive(&before["serverProxyProcessId"]), "nobody was left to clean up");
    for kind in ["cntp", "ctrnet"] {
        kubectl.ok(&format!("patch {kind} p --type=merge -p {{\"metadata\":{{\"finalizers\":null}}}}"));
        kubectl.ok(&format!("delete {kind} p --timeout=60s"));
    }
    let (second, _home) = apart.controllers(&server);
    until_dead(&before["serverProxyProcessId"]);
    let instance = identity(&kubectl);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    wait_until("no container and no network", PATIENCE, || {
        let mine = [(underpass_engines::labels::INSTANCE, instance.as_str())];
        runtime.block_on(async {
            let containers = apart.engine.engine.list_containers(&mine).await.unwrap();
            let networks = apart.engine.engine.list_networks(&mine).await.unwrap();
            (containers.is_empty() && networks.is_empty()).then_some(())
        })
    });
    second.signal(Signal::TERM);
    assert_eq!(second.wait().code, Some(0));
}

fn kill_watchdog_of(pid: u32) {
    kill_process(watchdog_of(pid), Signal::KILL).unwrap();
}
