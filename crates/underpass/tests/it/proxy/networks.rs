//! A pod that is on two networks: what it shows on the pod network, or to itself, cannot be had from the network of the clients, whichever
//! of the pod's addresses they name.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use underpass_testbed::{Kubectl, Launch, NetNamespace, PATIENCE, Process, Switch, Underpass, http, wait_until};

use super::cluster::service;
use crate::BINARY;

const POD_IP: Ipv4Addr = Ipv4Addr::new(10, 66, 0, 5);
const SERVER_IP: &str = "192.168.100.4";
/// Where the pod listens without any care, which shows that a client gets that far.
const CARELESS: u16 = 7000;
const XDS: u16 = 18000;
/// As in a pod: not even who is root may do more than anybody.
const NOBODY: [&str; 3] = ["setpriv", "--bounding-set=-all", "--"];

/// The pod network with an API server on it, the clients' network, a pod on both, and a client that has a route to all of the pod's addresses.
struct Scene {
    processes: Vec<Process>,
    folders: Vec<TempDir>,
    _careless: Vec<TcpListener>,
    server: Underpass,
    client: NetNamespace,
    pod: NetNamespace,
    pods: Switch,
    _clients: Switch,
}

impl Scene {
    #[track_caller]
    fn new() -> Self {
        let (pods, clients) = (Switch::new("10.66.0.1/24"), Switch::new("192.168.100.1/24"));
        let pod = clients.machine("pod", &format!("{SERVER_IP}/24"));
        pods.connect(&pod, "eth0", &format!("{POD_IP}/24"));
        let client = clients.machine("client", "192.168.100.50/24");
        client.ip("address delete 127.0.0.1/8 dev lo");
        for address in [POD_IP, Ipv4Addr::LOCALHOST] {
            client.ip(&format!("route add {address} via {SERVER_IP}"));
        }
        // As nodes have it for kube-proxy's sake, and pods of theirs too.
        for namespace in [&pod, &client] {
            namespace.within(|| std::fs::write("/proc/sys/net/ipv4/conf/all/route_localnet", "1").unwrap());
        }
        let server = Launch::command("ip", "netns")
            .args(["exec", pods.namespace().name(), BINARY, "apiserver", "--listen", "10.66.0.1:0"])
            .start();
        let kubectl = Kubectl::new(server.kubeconfig());
        pods.namespace().within(|| {
            kubectl.ok("create namespace cp");
            kubectl.ok_with("apply -f -", &objects());
        });
        let careless =
            [POD_IP, Ipv4Addr::LOCALHOST].map(|ip| pod.within(|| TcpListener::bind((ip, CARELESS)).unwrap()));
        Self {
            processes: Vec::new(),
            folders: Vec::new(),
            _careless: careless.into(),
            server,
            client,
            pod,
            pods,
            _clients: clients,
        }
    }

    /// The proxy, as its pod starts it.
    fn start(&mut self, more: &[&str]) {
        let pod_ip = POD_IP.to_string();
        let launch = Launch::command("ip", "netns").args(["exec", self.pod.name()]).args(NOBODY);
        let launch = launch.args([BINARY, "proxy", "--proxy-name", "edge", "--namespace", "cp", "--pod", "edge-1"]);
        let launch = launch.args(["--pod-ip", &pod_ip, "--kubeconfig"]).arg(self.server.kubeconfig()).args(more);
        let (mut process, folder) = launch.spawn();
        process.wait_for_stdout("that it is ready", |text| text.contains("is ready").then_some(()));
        self.processes.push(process);
        self.folders.push(folder);
    }

    fn start_envoy(&mut self, bootstrap: &str) {
        let program = std::env::var_os("UNDERPASS_TEST_ENVOY").expect("scripts/test says where Envoy is");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.pod.name()]).args(NOBODY).arg(program);
        command.args(["-c", bootstrap, "--disable-hot-restart", "--concurrency", "2"]);
        self.processes.push(Process::start(&mut command));
    }

    /// Waits for a page, asked for from there.
    #[track_caller]
    fn shows(from: &NetNamespace, address: impl Into<IpAddr>, port: u16, path: &str) {
        let address = SocketAddr::new(address.into(), port);
        wait_until(&format!("{path} at {address}"), PATIENCE, || {
            from.within(|| http::get(address, path)).ok().filter(|(status, _)| *status == 200)
        });
    }

    /// What a client gets of a port at both addresses.
    fn client_finds(&self, port: u16) -> [Result<(), ErrorKind>; 2] {
        const LONG: Duration = Duration::from_secs(5);
        [POD_IP, Ipv4Addr::LOCALHOST].map(|ip| {
            let found = self.client.within(|| TcpStream::connect_timeout(&(ip, port).into(), LONG));
            found.map(drop).map_err(|error| error.kind())
        })
    }

    #[track_caller]
    fn keeps_from_clients(&self, ports: &[u16]) {
        assert_eq!(self.client_finds(CARELESS), [Ok(()), Ok(())], "the client has its routes");
        for port in ports {
            assert_eq!(self.client_finds(*port), [Err(ErrorKind::ConnectionRefused); 2], "{port}");
        }
    }
}

/// Nobody has to be behind it.
fn objects() -> String {
    let proxy = json!({
        "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer",
        "metadata": { "name": "edge", "namespace": "cp" },
        "spec": {
            "networkConfig": { "serverIP": SERVER_IP, "networkAttachmentName": "vlan" },
            "backends": [{
                "name": "api", "hostname": "api.example.com", "port": 6443,
                "targetService": "api", "targetNamespace": "cp", "targetPort": 1,
            }],
        },
    });
    format!("{proxy}\n{}", service("api", "localhost"))
}

#[test]
fn clients_do_not_see_the_pages_of_our_own_data_plane() {
    let mut scene = Scene::new();
    scene.start(&[]);
    Scene::shows(scene.pods.namespace(), POD_IP, 9902, "/ready");
    Scene::shows(&scene.pod, Ipv4Addr::LOCALHOST, 9901, "/ready");
    scene.keeps_from_clients(&[9901, 9902]);
}

#[test]
fn clients_do_not_see_the_pages_of_an_envoy_nor_those_of_who_feeds_it() {
    let (mut scene, folder) = (Scene::new(), tempfile::tempdir().unwrap());
    let bootstrap = folder.path().join("bootstrap.json").display().to_string();
    scene.start(&["--xds-port", &XDS.to_string(), "--envoy-bootstrap", &bootstrap]);
    scene.start_envoy(&bootstrap);
    Scene::shows(scene.pods.namespace(), POD_IP, 9902, "/ready");
    Scene::shows(scene.pods.namespace(), POD_IP, 9903, "/readyz");
    Scene::shows(&scene.pod, Ipv4Addr::LOCALHOST, 9901, "/ready");
    scene.keeps_from_clients(&[9901, 9902, 9903, XDS]);
}
