//! A plan as text for people: what `underpass plan` prints and what the tests compare.

use std::fmt;
use std::net::SocketAddr;

use serde_json::Value;

use underpass_resources::tunnel_proxy::TunnelProtocol;

use crate::plan::{Action, ClientEndpoints, ClientPort, Finalizer, Plan, Subject, TunnelRequest};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.subject)?;
        if self.changes_nothing() {
            writeln!(f, "  nothing to do")?;
        }
        if let Finalizer::Add(name) = self.finalizer {
            writeln!(f, "  finalizer   add {name}")?;
        }
        if let Some(status) = &self.status {
            write_status(f, status)?;
        }
        for event in &self.events {
            writeln!(f, "  event       {:?} {}: {}", event.severity, event.reason, event.note)?;
        }
        for action in &self.actions {
            writeln!(f, "  action      {action}")?;
        }
        if let Finalizer::Remove(name) = self.finalizer {
            writeln!(f, "  finalizer   remove {name}")?;
        }
        if let Some(after) = self.look_again_after {
            writeln!(f, "  look again  after {after:?}")?;
        }
        for reason in &self.reasons {
            writeln!(f, "  because     {reason}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateNetwork(request) => {
                let family = if request.ipv6 { "IPv4 and IPv6" } else { "IPv4" };
                let owner = request.owner.as_ref().map_or("kept at the end", |_| "owned by this object");
                write!(f, "create the network {} ({family}, {owner})", request.name)
            }
            Self::RemoveNetwork { id, name } => write!(f, "remove the network {name} ({id})"),
            Self::EnsureImage { base: None } => write!(f, "see that the engine has the client proxy's image"),
            Self::EnsureImage { base: Some(base) } => write!(f, "build the client proxy's image on {base}"),
            Self::StartClient(request) => {
                let aliases =
                    if request.aliases.is_empty() { "no alias".to_owned() } else { request.aliases.join(", ") };
                write!(f, "start the client proxy {} on the network {} ({aliases})", request.name, request.network_name)
            }
            Self::StartServer(request) => {
                let either =
                    |places: &[SocketAddr]| places.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
                write!(
                    f,
                    "start the server proxy (control {}, data {})",
                    either(&request.control),
                    either(&request.data)
                )
            }
            Self::PrepareTunnel(request) => write_tunnel(f, request),
            Self::DeleteTunnel { number } => write!(f, "delete the tunnel number {number}"),
            Self::RemoveContainer { id, name } => write!(f, "remove the container {name} ({id})"),
            Self::StopServer { pid } => write!(f, "stop the server proxy (process {pid})"),
            Self::RemovePairFolder => write!(f, "remove the pair's secrets, logs and records"),
            Self::WriteEndpoints(endpoints) => {
                let ClientEndpoints { namespace, name, service, addresses, port, .. } = endpoints;
                let addresses = addresses.join(", ");
                write!(f, "show {addresses} port {port} as endpoints of {namespace}/{service} (EndpointSlice {name})")
            }
            Self::RemoveEndpoints { namespace, name } => write!(f, "remove the EndpointSlice {namespace}/{name}"),
            Self::ApplyObject { place, .. } => write!(f, "apply {place}"),
            Self::DeleteObject { place, .. } => write!(f, "delete {place}"),
            Self::ForgetReport { pod } => write!(f, "forget what pod {pod} said, which is gone"),
        }
    }
}

fn write_tunnel(f: &mut fmt::Formatter<'_>, request: &TunnelRequest) -> fmt::Result {
    let TunnelRequest { number, name, server_host, server_port, .. } = request;
    let protocol = match request.protocol {
        TunnelProtocol::Tcp => "TCP",
        TunnelProtocol::Udp => "UDP",
    };
    let port = match request.client_port {
        ClientPort::Fixed(port) => format!("port {port}"),
        ClientPort::Preferred(port) => format!("port {port} if it is free"),
        ClientPort::Any => "any free port".to_owned(),
    };
    let limit = request.max_connections.map(|max| format!(", at most {max} connections")).unwrap_or_default();
    write!(f, "prepare the tunnel {name} (number {number}, {protocol}, {port}) to {server_host}:{server_port}{limit}")
}

/// One line per field; conditions as `Ready=False Reason: message`, without their times, which say nothing about the plan.
fn write_status(f: &mut fmt::Formatter<'_>, status: &Value) -> fmt::Result {
    let Some(fields) = status.as_object() else { return writeln!(f, "  status      {status}") };
    for (name, value) in fields.iter().filter(|(name, _)| *name != "conditions") {
        writeln!(f, "  status      {name}: {}", plain(value))?;
    }
    for condition in fields.get("conditions").and_then(Value::as_array).into_iter().flatten() {
        let word = |name: &str| condition[name].as_str().unwrap_or_default();
        writeln!(f, "  condition   {}={} {}: {}", word("type"), word("status"), word("reason"), word("message"))?;
    }
    Ok(())
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", plain(value))).collect();
            format!("[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
}
