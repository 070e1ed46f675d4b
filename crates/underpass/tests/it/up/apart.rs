//! API server and controllers as two processes: the same, except that objects outlive both.

use underpass_testbed::{Launch, Signal};

use super::{assert_contains, launch, network};
use crate::BINARY;

#[test]
fn two_processes_do_what_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let server = Launch::apiserver(BINARY).data_dir(folder.path()).start();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", &network("net"));
    let (mut controllers, _home) = launch("controllers").arg("--kubeconfig").arg(server.kubeconfig()).spawn();
    kubectl.ok("wait --for=condition=Ready=False ctrnet/net --timeout=60s");
    kubectl.ok("wait --for=create events --all --timeout=60s");
    assert_contains(&kubectl.ok("get ctrnet net"), &["NoContainerEngine"]);
    assert!(controllers.is_running());
    controllers.signal(Signal::TERM);
    assert_eq!(controllers.wait().code, Some(0));
    assert_eq!(
        kubectl.ok("get ctrnet -o name"),
        "containernetwork.underpass.dev/net\n",
        "objects stay without their controllers"
    );
    assert_eq!(server.end(Signal::TERM).code, Some(0));
    let next = Launch::apiserver(BINARY).data_dir(folder.path()).start();
    assert_eq!(
        next.kubectl().ok("get ctrnet -o name"),
        "containernetwork.underpass.dev/net\n",
        "and without their server"
    );
}

#[test]
fn controllers_wait_for_a_server_that_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let server = Launch::apiserver(BINARY).data_dir(folder.path()).start();
    let address = server.ready().api.trim_start_matches("https://").to_owned();
    let kubeconfig = folder.path().join("copy");
    std::fs::copy(server.kubeconfig(), &kubeconfig).unwrap();
    let (mut controllers, _home) = launch("controllers").arg("--kubeconfig").arg(&kubeconfig).spawn();
    let kubectl = server.kubectl();
    kubectl.ok_with("apply -f -", &network("before"));
    kubectl.ok("wait --for=condition=Ready=False ctrnet/before --timeout=60s");
    server.kill();
    let next = Launch::apiserver(BINARY).data_dir(folder.path()).arg("--listen").arg(&address).start();
    let kubectl = next.kubectl();
    kubectl.ok_with("apply -f -", &network("after"));
    kubectl.ok("wait --for=condition=Ready=False ctrnet/after --timeout=60s");
    assert!(controllers.is_running(), "{}", controllers.stderr());
}
