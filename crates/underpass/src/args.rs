//! The words on the command line, exactly as typed. What they mean is decided in `settings.rs`. The texts here are the help.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args as Group, Parser, Subcommand, ValueEnum};
use ipnet::IpNet;
use underpass_deploy::MOST_REPLICAS;
use underpass_protocols::NormalName;
use underpass_resources::proxy_server::ADMIN_PORT;
use underpass_resources::proxy_server::LogLevel;

use crate::floating::ReadyUrl;
use crate::proxy::Pod;

const EXAMPLES: &str = "\
Examples:
  underpass up                              run everything here, until Ctrl-C
  underpass up -f network.yaml              the same, and apply a file once it is ready
  underpass plan -f network.yaml            what would be done, and why; touches nothing
  underpass status --watch                  does it work?
  underpass proxy -f proxy.yaml             a ProxyServer here, without a cluster
  eval \"$(underpass completion bash)\"       completion for this shell

Exit codes:
  0    done
  1    failed; the reason is on stderr
  2    the command line is wrong
  130  ended by a second signal, before everything was cleaned up";

/// Builds connections across network boundaries: declare what must reach what, and underpass makes the crossing.
#[derive(Debug, Parser)]
#[command(name = "underpass", version, after_help = EXAMPLES, max_term_width = 120)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) logging: Logging,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Group)]
#[command(next_help_heading = "Logging")]
pub(crate) struct Logging {
    /// How much to log to stderr: error, warn, info, debug, trace, or a filter such as
    /// "info,audit=debug" (with a line for every write to the API server) [default: info; for a proxy: its spec.logLevel]
    #[arg(long, global = true, env = "RUST_LOG", value_name = "LEVEL", value_parser = log_filter)]
    pub(crate) log_level: Option<String>,
    /// How a log line looks [default: human; in a cluster's pods: json]
    #[arg(long, global = true, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Human,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the API server and the controllers in this process, until Ctrl-C
    #[command(after_help = UP_EXAMPLES)]
    Up(Up),
    /// Run the API server alone, until Ctrl-C; its objects stay
    #[command(after_help = APISERVER_EXAMPLES)]
    Apiserver(Apiserver),
    /// Run the controllers alone, against the API server of a kubeconfig, until Ctrl-C; the objects stay
    #[command(after_help = CONTROLLERS_EXAMPLES)]
    Controllers(Controllers),
    /// Run the controllers on a cluster, until SIGTERM; of several replicas one works
    #[command(after_help = OPERATOR_EXAMPLES)]
    Operator(Operator),
    /// Delete all objects of a running instance in order, and end it
    #[command(after_help = DOWN_EXAMPLES)]
    Down(Down),
    /// Run the native proxy for the ProxyServer in a file, until Ctrl-C; needs no cluster
    #[command(after_help = PROXY_EXAMPLES)]
    Proxy(Proxy),
    /// Run the half of a tunnel that dials servers, until told to end; controllers start it
    #[command(hide = true, after_help = TUNNEL_SERVER_EXAMPLES)]
    TunnelServer(TunnelServer),
    /// Run the half of a tunnel that listens where clients are, until told to end; it is what runs in a tunnel proxy's container
    #[command(hide = true, after_help = TUNNEL_CLIENT_EXAMPLES)]
    TunnelClient(TunnelClient),
    /// Have an address while it is this pod's turn, until SIGTERM; of several pods one has it
    #[command(hide = true, after_help = FLOATING_ADDRESS_EXAMPLES)]
    FloatingAddress(FloatingAddress),
    /// Say which rule decides about a connection, and why; needs no server
    Explain(Explain),
    /// Show what would be done for the objects in files, and why; needs no server and touches nothing
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(Plan),
    /// Show every object of ours, and whether it works
    #[command(after_help = STATUS_EXAMPLES)]
    Status(Status),
    /// Write this program as a container image, for a cluster or an engine
    #[command(after_help = IMAGE_EXAMPLES)]
    Image(Image),
    /// Put the operator onto a cluster, or this version in place of another, and wait until it works
    #[command(after_help = INSTALL_EXAMPLES)]
    Install(Install),
    /// Remove the operator from a cluster, with all objects of ours and what was built for them
    #[command(after_help = UNINSTALL_EXAMPLES)]
    Uninstall(Uninstall),
    /// Print the CustomResourceDefinitions of our kinds
    #[command(after_help = "Example:\n  underpass crds | kubectl apply --server-side -f -")]
    Crds(Crds),
    /// Wait for the end of the controllers, and clean up when they were killed; started by them
    #[command(hide = true, after_help = MONITOR_EXAMPLES)]
    Monitor(Monitor),
    /// Print the completion script for a shell
    #[command(after_help = "Example:\n  eval \"$(underpass completion bash)\"")]
    Completion {
        /// Whose completion
        shell: clap_complete::Shell,
    },
    /// Print the version
    #[command(after_help = "Example:\n  underpass version --output json")]
    Version {
        /// What it looks like
        #[arg(short, long, value_name = "FORMAT", default_value = "text")]
        output: TextOrJson,
    },
}

const UP_EXAMPLES: &str = "\
Examples:
  underpass up
  underpass up -f network.yaml -f tunnel.yaml
  generate | underpass up -f -
  underpass up --ephemeral --output json    for a test: nothing is kept, the first line is machine-readable

At the end (SIGINT, SIGTERM, SIGHUP) our objects are deleted in dependency order, and with them all that was made for them. A second signal, \
a second or more after the first, ends at once; what is then left is found by the next `up` on the same data directory. When a file \
is refused, what was applied before it stays, unless nothing is kept (--ephemeral).

Exit codes: 0 everything is cleaned up; 1 failed, or something could not be cleaned up; 130 ended by a second signal.";

const APISERVER_EXAMPLES: &str = "\
Example:
  underpass apiserver --kubeconfig ./kubeconfig

Exit codes: 0 ended by a signal; 1 failed; 130 ended by a second signal, before all requests were answered.";

const CONTROLLERS_EXAMPLES: &str = "\
Example:
  underpass controllers --kubeconfig ./kubeconfig

Of several on one API server one works and the others wait; when it ends, another takes over at once, and when it is killed, within \
20 seconds. An API server that starts again elsewhere is followed: the kubeconfig is read again when it does not answer.

Exit codes: 0 ended by a signal; 1 failed; 130 ended by a second signal, in the middle of its work.";

const OPERATOR_EXAMPLES: &str = "\
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

const DOWN_EXAMPLES: &str = "\
Examples:
  underpass down
  underpass down --data-dir ./state

Objects are deleted in dependency order, and with them all that was made for them: containers, networks, processes, files.
Of an instance that was killed what it made is removed, and its objects are kept.

Kept are the data directory (pki/, and objects.redb with objects of other kinds) and the client proxies' image in the engine. To remove
these too: rm -r DATA_DIR, and docker (or podman) image rm of what image ls --filter label=dev.underpass.image lists.

Exit codes: 0 nothing runs any more; 1 failed, or something could not be cleaned up: it still runs then.";

const MONITOR_EXAMPLES: &str = "\
Example:
  underpass monitor --pid 4711 --start 123456 --instance ID --folder ./state

When the process ends without having written \"done\" to our stdin, its server proxies are ended, and the containers, networks and \
folders of the instance are removed.

Exit codes: 0 nothing had to be done, or it was; 1 something is left.";

const PLAN_EXAMPLES: &str = "\
Examples:
  underpass plan -f network.yaml
  cat *.yaml | underpass plan -f - -o json

Objects of our kinds are checked against the schemas and rules that the API server would use, and unknown fields are refused. Of other \
kinds, and of names and labels, only their server can judge.

Exit codes: 0 planned; 1 something is wrong, and every error is listed on stderr.";

const PROXY_EXAMPLES: &str = "\
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

const TUNNEL_SERVER_EXAMPLES: &str = "\
Example:
  underpass tunnel-server --control 172.18.0.2:15049 --control 127.0.0.1:40001 \\
    --data 172.18.0.2:15050 --data 127.0.0.1:40002 < server.json

The secrets of this half are read from stdin, as JSON. When it takes orders, one line of JSON is printed on stdout, with controlPort (on
127.0.0.1, for whoever has the caller's secrets) and pid. It dials the client half, never the other way round, and goes on trying for
ever. Its tunnels are those that it is asked for; a new process has none.

Exit codes: 0 ended by an order, a signal, or with the process that it watches; 1 failed; 130 ended by a second signal.";

const TUNNEL_CLIENT_EXAMPLES: &str = "\
Example:
  underpass tunnel-client --secrets ./client.json --control-port 0 --data-port 0

It listens on all addresses, IPv4 and IPv6: for its server half on two ports, and for clients on a port per tunnel. Whoever connects to
the first two and does not prove to be the other half is refused and counted. Tunnels stay when the server half goes; their clients wait
a few seconds for another one.

Exit codes: 0 ended by a signal; 1 failed; 130 ended by a second signal.";

const FLOATING_ADDRESS_EXAMPLES: &str = "\
Example:
  underpass floating-address --address 192.168.100.4/24 --interface net1 \\
    --namespace clusters --lease my-proxy-address --ready http://127.0.0.1:9901/ready

Of all that share a Lease one has the address. When it ends, the next one has it within a second; when it is killed, stopped or cut off \
from the API server, within three. It competes while --ready answers 200, and gives the address back after two answers that are not. Nobody takes \
an address that somebody else on the network has: the log tells whose it is, and so does the annotation underpass.dev/address-conflict of \
the Lease. On the interface the address has a lifetime of a second, so that the kernel takes it off when nobody else does.

$POD_NAME, else the name of the host, begins the holder's name in the Lease, before the first _.

It needs the capabilities NET_ADMIN, for addresses, and NET_RAW, for ARP and neighbour discovery, and no other; and on the API server get, \
create and update for that Lease.

Exit codes: 0 ended by a signal, the address is off and the lease given back; 1 failed; 130 ended by a second signal.";

const EXPLAIN_ROUTE_EXAMPLES: &str = "\
Examples:
  underpass explain route -f proxy.yaml --port 443 --sni api.example.com
  underpass explain route -f proxy.yaml --port 443 --source 192.168.100.50
  underpass explain route -f proxy.yaml --port 6443 --plain -o json

The answer comes from the same table and the same function that the proxy uses.

Exit codes: 0 answered, also when the answer is a refusal or that nothing listens there; 1 the file cannot be used; 2 the command line \
is wrong.";

const STATUS_EXAMPLES: &str = "\
Examples:
  underpass status
  underpass status --watch
  underpass status --data-dir ./state       of an `underpass up --data-dir ./state`
  underpass status -o json | jq '.items[].status'

Exit codes: 0 shown, whatever the objects' state; 1 the API server cannot be asked.";

const IMAGE_EXAMPLES: &str = "\
Examples:
  underpass image -o underpass-image.tar
  ctr -n k8s.io images import underpass-image.tar    onto a node of a cluster
  podman load -i underpass-image.tar                 or docker load

The image has this program in it and nothing else, runs as user 65532, and is an OCI layout that Docker reads too. The same program gives \
the same bytes and the same digest. Nothing is pulled or built.

Exit codes: 0 written; 1 failed.";

const INSTALL_EXAMPLES: &str = "\
Examples:
  underpass install
  underpass install --context staging --image registry.example/underpass:0.1.0
  underpass install --dry-run -o yaml | kubectl diff -f -

The cluster is asked first whether it would take everything; when it would not, nothing is changed. Objects of ours are kept, and so is
what was built for them. What an older version had and this one has not is removed. --dry-run prints what would be applied and asks
nobody, so that --platform and --api-server-port have their defaults (kubernetes, 6443) unless said.

Exit codes: 0 the operator works; 1 it does not, and why is on stderr.";

const UNINSTALL_EXAMPLES: &str = "\
Examples:
  underpass uninstall
  underpass uninstall --keep-objects        the operator goes; objects, and what was built for them, stay
  underpass uninstall --yes                 nobody is asked

Objects go first, in dependency order, while the operator can still remove what it built for them; then the operator, the
definitions and the namespace, which stays when others use it.

Exit codes: 0 nothing is left; 1 something is, or the answer was not yes.";

/// Where an API server keeps things and listens.
#[derive(Debug, Group)]
pub(crate) struct ServerFlags {
    /// Where objects and keys are kept [default: $XDG_STATE_HOME/underpass or ~/.local/state/underpass]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Where the kubeconfig is written, once the server is ready [default: DATA_DIR/kubeconfig]
    #[arg(long, value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The address to listen on; port 0 lets the system choose
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = address)]
    pub(crate) listen: SocketAddr,
    /// Keep nothing: objects live in memory, and everything else in a temporary folder unless --data-dir names one
    #[arg(long)]
    pub(crate) ephemeral: bool,
    /// How many events watches can resume over, so that tests can make history end soon
    #[arg(long, value_name = "NUMBER", hide = true)]
    pub(crate) keep_events: Option<usize>,
    /// What is printed on stdout when the server is ready
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: TextOrJson,
}

/// Which API server to talk to.
#[derive(Debug, Group)]
pub(crate) struct ClientFlags {
    /// The kubeconfig of the API server [default: $KUBECONFIG, else that of an `underpass up` on the default data directory]
    // Not clap's `env`: a variable that is set to nothing counts as not set, as it does for kubectl.
    #[arg(long, value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// Which cluster to work on.
#[derive(Debug, Clone, Group)]
pub(crate) struct ClusterFlags {
    /// The kubeconfig of the cluster [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context in it [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

#[derive(Debug, Group)]
pub(crate) struct Install {
    #[command(flatten)]
    pub(crate) cluster: ClusterFlags,
    /// The namespace of the operator; made when it is not there, left as it is when somebody else made it
    #[arg(short, long, value_name = "NAME", default_value = underpass_deploy::NAMESPACE)]
    pub(crate) namespace: String,
    /// The image of the operator, as the cluster's nodes can pull it [default: underpass:VERSION]
    #[arg(long, value_name = "IMAGE", value_parser = image)]
    pub(crate) image: Option<String>,
    /// How many pods: one works, the others wait to take over
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=MOST_REPLICAS.into()))]
    pub(crate) replicas: u16,
    /// What kind of cluster it is [default: asked of it]
    #[arg(long, value_name = "PLATFORM")]
    pub(crate) platform: Option<PlatformName>,
    /// Where the API server listens behind its Service, for the NetworkPolicy [default: asked of the cluster]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) api_server_port: Option<u16>,
    /// Take over fields that somebody else has changed
    #[arg(long)]
    pub(crate) force_conflicts: bool,
    /// How many seconds the operator may take until it works
    #[arg(long, value_name = "SECONDS", default_value_t = 180)]
    pub(crate) timeout: u64,
    /// Print what would be applied, and ask nobody
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// What --dry-run prints
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml", requires = "dry_run")]
    pub(crate) output: YamlOrJson,
}

#[derive(Debug, Group)]
pub(crate) struct Uninstall {
    #[command(flatten)]
    pub(crate) cluster: ClusterFlags,
    /// Keep our objects and their definitions, and what was built for them
    #[arg(long)]
    pub(crate) keep_objects: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// How many seconds objects may take to go, and how many the rest
    #[arg(long, value_name = "SECONDS", default_value_t = 180)]
    pub(crate) timeout: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlatformName {
    Kubernetes,
    Openshift,
}

/// Which container engine to drive.
#[derive(Debug, Group)]
pub(crate) struct EngineFlags {
    /// The container engine to drive [default: the first that answers where the engines' own clients look]
    #[arg(long, value_name = "ENGINE")]
    pub(crate) container_runtime: Option<ContainerRuntime>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ContainerRuntime {
    Docker,
    Podman,
}

impl Command {
    /// How a log line looks when nobody says: a cluster's logs are read by programs first.
    pub(crate) fn log_format(&self) -> LogFormat {
        if matches!(self, Self::Operator(_) | Self::FloatingAddress(_)) { LogFormat::Json } else { LogFormat::Human }
    }
}

#[derive(Debug, Group)]
pub(crate) struct FloatingAddress {
    /// The address, and how long the prefix of its network is
    #[arg(long, value_name = "ADDRESS/LENGTH", value_parser = floating_address)]
    pub(crate) address: IpNet,
    /// The interface that gets it
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: String,
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
pub(crate) struct Up {
    #[command(flatten)]
    pub(crate) server: ServerFlags,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    /// A file of objects (YAML or JSON, several documents allowed) to apply once ready; - is stdin; repeatable
    #[arg(short, long = "file", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
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
pub(crate) struct Down {
    /// The data directory of the instance [default: $XDG_STATE_HOME/underpass or ~/.local/state/underpass]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data_dir: Option<PathBuf>,
    /// The kubeconfig of the instance [default: DATA_DIR/kubeconfig]
    #[arg(long, value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// How many seconds objects may take to go; then what is left is told, and the instance goes on
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub(crate) timeout: u64,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
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

#[derive(Debug, Group)]
pub(crate) struct Explain {
    #[command(subcommand)]
    pub(crate) what: ExplainWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExplainWhat {
    /// Which backend of a ProxyServer gets a connection
    #[command(after_help = EXPLAIN_ROUTE_EXAMPLES)]
    Route(ExplainRoute),
}

#[derive(Debug, Group)]
pub(crate) struct ExplainRoute {
    /// The file (YAML or JSON, several documents) with the ProxyServer and what it leads to
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The port that the client connects to
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    /// The server name in the client's TLS hello; left out: TLS without a name
    #[arg(long, value_name = "NAME", conflicts_with_all = ["plain", "udp"], value_parser = server_name)]
    pub(crate) sni: Option<ServerName>,
    /// The client's address
    #[arg(long, value_name = "IP")]
    pub(crate) source: Option<IpAddr>,
    /// The client does not speak TLS
    #[arg(long, conflicts_with = "udp")]
    pub(crate) plain: bool,
    /// The client sends datagrams
    #[arg(long)]
    pub(crate) udp: bool,
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: PlanFormat,
}

/// What a client can send as a server name.
#[derive(Debug, Clone)]
pub(crate) enum ServerName {
    /// In lower case, without a trailing dot.
    Host(String),
    /// Which is no name.
    Address,
}

#[derive(Debug, Group)]
pub(crate) struct Plan {
    /// A file of objects (YAML or JSON, several documents allowed); - is stdin; repeatable
    #[arg(short, long = "file", value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// What the plan looks like
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: PlanFormat,
}

#[derive(Debug, Group)]
pub(crate) struct Status {
    /// Stay, and show every change
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// What the objects look like; with --watch, a line or a document per change
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: StatusFormat,
    #[command(flatten)]
    pub(crate) server: ClientFlags,
    /// The data directory of the `underpass up` to ask, in place of a kubeconfig
    #[arg(long, value_name = "FOLDER", conflicts_with = "kubeconfig")]
    pub(crate) data_dir: Option<PathBuf>,
}

#[derive(Debug, Group)]
pub(crate) struct Image {
    /// Where the archive goes
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// What the image is called [default: underpass:VERSION]
    #[arg(long, value_name = "NAME:TAG")]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Group)]
pub(crate) struct Crds {
    /// What the definitions look like
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    pub(crate) output: YamlOrJson,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TextOrJson {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum YamlOrJson {
    Yaml,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlanFormat {
    Text,
    Yaml,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatusFormat {
    Table,
    Yaml,
    Json,
}

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "give an IP address and a port, as in 127.0.0.1:6443 or [::1]:0")
}

fn floating_address(text: &str) -> Result<IpNet, &'static str> {
    let address: IpNet = text.parse().map_err(|_| "give an IP address and a length, as in 192.168.100.4/24")?;
    let ip = address.addr();
    if ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() {
        return Err("not an address that an interface of a network can have");
    }
    Ok(address)
}

/// As `underpass_resources::name::Image` has it.
fn image(text: &str) -> Result<String, &'static str> {
    let begins = text.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit());
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "._:/@-".contains(letter);
    let good = begins && text.chars().all(allowed) && text.len() <= underpass_resources::name::Image::MAX_LENGTH;
    good.then(|| text.to_owned())
        .ok_or("not a container image: write a reference such as registry.example.com/team/image:tag, without spaces")
}

fn server_name(text: &str) -> Result<ServerName, &'static str> {
    if text.parse::<IpAddr>().is_ok() {
        return Ok(ServerName::Address);
    }
    let name = NormalName::new(text).map(|name| ServerName::Host(name.to_string()));
    name.ok_or("not a host name: a client that sends it is refused for an invalid hello")
}

fn log_filter(text: &str) -> Result<String, String> {
    match tracing_subscriber::EnvFilter::try_new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// In the words of a ProxyServer.
fn proxy_log_level(text: &str) -> Result<LogLevel, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        super::Args::command().debug_assert();
    }
}
