//! The words on the command line, exactly as typed. What they mean is decided in `settings.rs`. The texts here are the help.

mod machines;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args as Group, Parser, Subcommand, ValueEnum};
use underpass_deploy::MOST_REPLICAS;
use underpass_protocols::NormalName;

use machines::{
    APISERVER_EXAMPLES, CONTROLLERS_EXAMPLES, FLOATING_ADDRESS_EXAMPLES, MONITOR_EXAMPLES, OPERATOR_EXAMPLES,
    PROXY_EXAMPLES, TUNNEL_CLIENT_EXAMPLES, TUNNEL_SERVER_EXAMPLES,
};
pub(crate) use machines::{
    Apiserver, Controllers, FloatingAddress, Monitor, Operator, Proxy, TunnelClient, TunnelServer,
};

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
    /// How a log line looks [default: human; of the operator and of floating addresses: json]
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

const DOWN_EXAMPLES: &str = "\
Examples:
  underpass down
  underpass down --data-dir ./state

Objects are deleted in dependency order, and with them all that was made for them: containers, networks, processes, files.
Of an instance that was killed what it made is removed, and its objects are kept.

Kept are the data directory (pki/, and objects.redb with objects of other kinds) and the client proxies' image in the engine. To remove
these too: rm -r DATA_DIR, and docker (or podman) image rm of what image ls --filter label=dev.underpass.image lists.

Exit codes: 0 nothing runs any more; 1 failed, or something could not be cleaned up: it still runs then.";

const PLAN_EXAMPLES: &str = "\
Examples:
  underpass plan -f network.yaml
  cat *.yaml | underpass plan -f - -o json

Objects of our kinds are checked against the schemas and rules that the API server would use, and unknown fields are refused. Of other \
kinds, and of names and labels, only their server can judge.

Exit codes: 0 planned; 1 something is wrong, and every error is listed on stderr.";

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
  underpass install --dry-run -o yaml
  underpass install --dry-run --context staging | kubectl --context staging diff --server-side --field-manager underpass-install -f -

The cluster is asked first whether it would take everything; when it would not, nothing is changed. Objects of ours are kept, and so is
what was built for them. What an older version had and this one has not is removed. --dry-run prints what would be applied to the cluster
that --kubeconfig or --context names; with neither it asks nobody, so that --platform and --api-server-port have their defaults (kubernetes,
6443) unless said.

Exit codes: 0 the operator works; 1 it does not, and why is on stderr; 130 interrupted.";

const UNINSTALL_EXAMPLES: &str = "\
Examples:
  underpass uninstall
  underpass uninstall --keep-objects        the operator goes; objects, and what was built for them, stay
  underpass uninstall --yes                 nobody is asked

Objects go first, in dependency order, while the operator can still remove what it built for them; then the operator, the
definitions and the namespace, which stays when others use it. Where no operator works any more, install it again first. What was built
for objects whose finalizers somebody took away is named, and nothing more is removed before it is gone.

Exit codes: 0 nothing is left; 1 something is, or the answer was not yes; 130 interrupted.";

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
    /// Print what would be applied; nobody is asked unless --kubeconfig or --context names a cluster
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
    #[arg(long, value_name = "NAME:TAG", value_parser = image)]
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        super::Args::command().debug_assert();
    }
}
