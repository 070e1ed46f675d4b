//! The words of what programs start: in pods, in containers, and as parts of an instance.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Args as Group;
use ipnet::IpNet;
use underpass_resources::proxy_server::{ADMIN_PORT, LogLevel};

use super::{ClientFlags, EngineFlags, ServerFlags, TextOrJson, address};
use crate::floating::ReadyUrl;
use crate::proxy::Pod;

pub(super) const APISERVER_EXAMPLES: &str = "\
Example:
  underpass apiserver --kubeconfig ./kubeconfig

Exit codes: 0 ended by a signal; 1 failed; 130 ended by a second signal, before all requests were answered.";

pub(super) const CONTROLLERS_EXAMPLES: &str = "\
Example:
  underpass controllers --kubeconfig ./kubeconfig

Of several on one API server one works and the others wait; when it ends, another takes over at once, and when it is killed, within \
20 seconds. An API server that starts again elsewhere is followed: the kubeconfig is read again when it does not answer.

Exit codes: 0 ended by a signal; 1 failed; 130 ended by a second signal, in the middle of its work.";

pub(super) const OPERATOR_EXAMPLES: &str = "\
Examples:
  underpass operator                                 in a pod: as its service account
  underpass operator --kubeconfig ./kubeconfig       from elsewhere
  curl http://127.0.0.1:8080/readyz                  what it does, or what it still waits for

Replicas share the Lease underpass-operator in their own namespace ($POD_NAMESPACE, else the service account's, else underpass-system): \
one works, the others wait and are ready. When it ends, the next one works within two seconds; when it is killed, within 20. \
$POD_NAME, else the name of the host, is what `kubectl get lease` shows.

  /healthz   200 while it lives; a process that hangs answers 500
  /readyz    200 when it works and has seen every object, or waits for the one that does; else 503 and why
  /metrics   for Prometheus: underpass_leader, underpass_reconciles_total by kind and result, underpass_objects by kind, ...

It drives no container engine. ContainerNetworks and tunnel proxies say so in their condition Ready, and are left to `underpass controllers` \
on a machine that has one. Objects of kinds that this version does not build yet say that; nothing else is touched. It waits for \
definitions and rights that are not there yet.

Exit codes: 0 ended by a signal, and the lease is given back; 1 failed; 130 ended by a second signal, in the middle of its work.";

pub(super) const MONITOR_EXAMPLES: &str = "\
Example:
  underpass monitor --pid 4711 --start 123456 --instance ID --folder ./state

When the process ends without having written \"done\" to our stdin, its server proxies are ended, and the containers, networks and \
folders of the instance are removed.

Exit codes: 0 nothing had to be done, or it was; 1 something is left.";

pub(super) const PROXY_EXAMPLES: &str = "\
Examples:
  underpass proxy -f proxy.yaml
  underpass proxy -f proxy.yaml --workers 2 --access-log off
  underpass proxy -f proxy.yaml --output json    the first line on stdout is machine-readable
  curl http://127.0.0.1:9901/clusters            what is known of the endpoints

FILE has a ProxyServer and the Services and EndpointSlices that it leads to, as on Kubernetes. It listens on spec.networkConfig.serverIP
and each backend's port. FILE is watched: a change applies at once, connections go on. A backend that is wrong is left out, told in the
log and at /config_dump, and the others are served; a file that cannot be parsed changes nothing.

At the end (SIGINT, SIGTERM, SIGHUP) nothing new is accepted, and connections may go on for spec.drainSeconds. A second signal, a
second or more after the first, ends at once.

Exit codes: 0 ended by a signal, or another process has taken over; 1 failed; 130 ended by a second signal, and connections were cut.";

pub(super) const TUNNEL_SERVER_EXAMPLES: &str = "\
Example:
  underpass tunnel-server --control 172.18.0.2:15049 --control 127.0.0.1:40001 \\
    --data 172.18.0.2:15050 --data 127.0.0.1:40002 < server.json

The secrets of this half are read from stdin, as JSON. When it takes orders, one line of JSON is printed on stdout, with controlPort (on
127.0.0.1, for whoever has the caller's secrets) and pid. It dials the client half, never the other way round, and goes on trying for
ever. Its tunnels are those that it is asked for; a new process has none.

Exit codes: 0 ended by an order, a signal, or with the process that it watches; 1 failed; 130 ended by a second signal.";

pub(super) const TUNNEL_CLIENT_EXAMPLES: &str = "\
Example:
  underpass tunnel-client --secrets ./client.json --control-port 0 --data-port 0

It listens on all addresses, IPv4 and IPv6: for its server half on two ports, and for clients on a port per tunnel. Whoever connects to
the first two and does not prove to be the other half is refused and counted. Tunnels stay when the server half goes; their clients wait
a few seconds for another one.

Exit codes: 0 ended by a signal; 1 failed; 130 ended by a second signal.";

pub(super) const FLOATING_ADDRESS_EXAMPLES: &str = "\
Example:
  underpass floating-address --address 192.168.100.4/24 --interface net1 \\
    --namespace clusters --lease my-proxy-address --ready http://127.0.0.1:9901/ready

Of all that share a Lease one has the address. When it ends, the next one has it within a second; when it is killed, stopped or cut off \
from the API server, within three. It competes while --ready answers 200 and the interface has a carrier, and gives the address back after two \
looks that find it otherwise. Nobody takes an address that somebody else on the network has: the log tells whose it is, and so does the annotation \
underpass.dev/address-conflict of the Lease. A renewal that takes the API server longer than 0.25 seconds keeps the address from all: the log says \
so, and the annotation underpass.dev/address-late. On the interface the address has a lifetime of a second, so that the kernel takes it off when \
nobody else does.

$POD_NAME, else the name of the host, begins the holder's name in the Lease, before the first _.

It needs the capabilities NET_ADMIN, for addresses and routes, and NET_RAW, for ARP and neighbour discovery, and no other; and on the API server get, \
create and update for that Lease.

Exit codes: 0 ended by a signal, the address is off and the lease given back; 1 failed; 130 ended by a second signal.";

#[derive(Debug, Group)]
pub(crate) struct FloatingAddress {
    /// The address, and how long the prefix of its network is
    #[arg(long, value_name = "ADDRESS/LENGTH", value_parser = floating_address)]
    pub(crate) address: IpNet,
    /// The interface that gets it
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: String,
    /// Who leads from its network to others: they are answered too
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) gateway: Option<IpAddr>,
    /// The namespace of the Lease
    #[arg(long, value_name = "NAME")]
    pub(crate) namespace: String,
    /// The Lease that says whose turn it is; made when it is not there
    #[arg(long, value_name = "NAME")]
    pub(crate) lease: String,
    /// The page that answers 200 while connections to the address would be served
    #[arg(long, value_name = "URL")]
    pub(crate) ready: ReadyUrl,
    /// The kubeconfig of the cluster [default: $KUBECONFIG, else the one in which this is a pod]
    #[arg(long, value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

#[derive(Debug, Group)]
pub(crate) struct Apiserver {
    #[command(flatten)]
    pub(crate) server: ServerFlags,
}

#[derive(Debug, Group)]
pub(crate) struct Controllers {
    #[command(flatten)]
    pub(crate) server: ClientFlags,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    /// Where secrets and logs of tunnels are kept, in a folder per API server [default: $XDG_STATE_HOME/underpass/controllers or
    /// ~/.local/state/underpass/controllers]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data_dir: Option<PathBuf>,
}

#[derive(Debug, Group)]
pub(crate) struct Operator {
    /// The kubeconfig of the cluster [default: $KUBECONFIG, else the pod's service account]
    // Not clap's `env`: a variable that is set to nothing counts as not set, as it does for kubectl.
    #[arg(long, value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Where /healthz, /readyz and /metrics are served; port 0 lets the system choose, and the log says which
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", value_parser = address)]
    pub(crate) listen: SocketAddr,
    /// The image that pods of ours run from unless their object says otherwise
    #[arg(long, value_name = "IMAGE", default_value_t = format!("underpass:{}", underpass_deploy::VERSION))]
    pub(crate) image: String,
    /// Pods get no user of our choice, and leave to use the constraints that are installed for them
    #[arg(long)]
    pub(crate) openshift: bool,
}

#[derive(Debug, Group)]
pub(crate) struct Monitor {
    /// The process to wait for
    #[arg(long, value_name = "PID")]
    pub(crate) pid: u32,
    /// When it began, in ticks since boot: another process of the same number is not it
    #[arg(long, value_name = "TICKS")]
    pub(crate) start: u64,
    /// Whose things to remove: the label on them
    #[arg(long, value_name = "ID")]
    pub(crate) instance: String,
    /// Where the pairs' folders are
    #[arg(long, value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// The API server to tell that they were killed
    #[arg(long, value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

#[derive(Debug, Group)]
pub(crate) struct Proxy {
    /// The file (YAML or JSON, several documents) with the ProxyServer and what it leads to; it is watched
    #[arg(short, long, value_name = "FILE", required_unless_present = "proxy_name", conflicts_with = "proxy_name")]
    pub(crate) file: Option<PathBuf>,
    /// The ProxyServer of a cluster, which is watched with the Services that it leads to
    #[arg(long, value_name = "NAME")]
    pub(crate) proxy_name: Option<String>,
    /// Its namespace
    #[arg(long, value_name = "NAMESPACE", default_value = "default")]
    pub(crate) namespace: String,
    /// The kubeconfig of that cluster [default: $KUBECONFIG, or in a pod its own]
    #[arg(long, value_name = "PATH", requires = "proxy_name")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// How much is logged until the ProxyServer says so itself
    #[arg(long, value_name = "LEVEL", value_parser = proxy_log_level)]
    pub(crate) proxy_log_level: Option<LogLevel>,
    /// Where /ready, /stats, /clusters and /config_dump are served, read-only; port 0 lets the system choose
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from(([127, 0, 0, 1], ADMIN_PORT)))]
    pub(crate) admin: SocketAddr,
    /// Feed an Envoy by xDS at this port of loopback, instead of carrying the traffic; 0 lets the system choose
    #[arg(long, value_name = "PORT")]
    pub(crate) xds_port: Option<u16>,
    /// Where the bootstrap configuration of that Envoy is written: start it with `envoy -c PATH`
    #[arg(long, value_name = "PATH", requires = "xds_port")]
    pub(crate) envoy_bootstrap: Option<PathBuf>,
    /// The pod that this runs in: its state is told in the ProxyServer's status
    #[arg(long, value_name = "NAME", requires_all = ["proxy_name", "pod_ip"])]
    pub(crate) pod: Option<String>,
    /// The pod's address, at which others may see /ready and /stats/prometheus of the data plane (port 9902), and /healthz,
    /// /readyz and /metrics of what feeds an Envoy (port 9903)
    #[arg(long, value_name = "ADDRESS", requires = "pod")]
    pub(crate) pod_ip: Option<IpAddr>,
    /// How many threads carry the traffic [default: one per core]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: Option<u16>,
    /// Send small messages one by one, as is done anyway where the kernel or a container engine forbids io_uring
    #[arg(long)]
    pub(crate) no_io_uring: bool,
    /// Where a line of JSON per connection goes: a file, - for stdout, or off
    #[arg(long, value_name = "PATH", default_value = "-")]
    pub(crate) access_log: PathBuf,
    /// A Unix socket for upgrades: a proxy that is started with the path of a running one takes its ports over,
    /// and the running one ends once its connections have; nobody is refused meanwhile
    #[arg(long, value_name = "PATH")]
    pub(crate) handover: Option<PathBuf>,
    /// What is printed on stdout when the proxy is ready
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: TextOrJson,
}

impl Proxy {
    /// Where it runs, if that is a pod.
    pub(crate) fn in_pod(&self) -> Option<Pod> {
        Some(Pod { name: self.pod.clone()?, address: self.pod_ip? })
    }
}

#[derive(Debug, Group)]
pub(crate) struct TunnelServer {
    /// Where the client half may take orders; repeatable, the best first
    #[arg(long, value_name = "ADDRESS", required = true, value_parser = address)]
    pub(crate) control: Vec<SocketAddr>,
    /// Where the client half may take data connections; repeatable, the best first
    #[arg(long, value_name = "ADDRESS", required = true, value_parser = address)]
    pub(crate) data: Vec<SocketAddr>,
    /// A process to end with
    #[arg(long, value_name = "PID", requires = "monitor_start")]
    pub(crate) monitor: Option<u32>,
    /// When that process began, in ticks since boot: field 22 of /proc/PID/stat
    #[arg(long, value_name = "TICKS", requires = "monitor")]
    pub(crate) monitor_start: Option<u64>,
}

#[derive(Debug, Group)]
pub(crate) struct TunnelClient {
    /// The file with the secrets of this half, as JSON
    #[arg(long, value_name = "PATH", default_value = "/etc/underpass/pair.json")]
    pub(crate) secrets: PathBuf,
    /// Where the server half gives orders; 0 lets the system choose
    #[arg(long, value_name = "PORT", default_value_t = underpass_tunnel::CONTROL_PORT)]
    pub(crate) control_port: u16,
    /// Where the server half brings data connections; 0 lets the system choose
    #[arg(long, value_name = "PORT", default_value_t = underpass_tunnel::DATA_PORT)]
    pub(crate) data_port: u16,
}

fn floating_address(text: &str) -> Result<IpNet, &'static str> {
    let address: IpNet = text.parse().map_err(|_| "give an IP address and a length, as in 192.168.100.4/24")?;
    let ip = address.addr();
    if ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() {
        return Err("not an address that an interface of a network can have");
    }
    Ok(address)
}

/// In the words of a ProxyServer.
fn proxy_log_level(text: &str) -> Result<LogLevel, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}
