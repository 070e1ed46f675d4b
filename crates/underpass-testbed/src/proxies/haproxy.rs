//! HAProxy: content rules that wait for the hello, names in maps, splicing on, reloads by its master process.
//!
//! Splicing is always on rather than when HAProxy thinks it good (`splice-auto`): in trial runs that cost less per GiB (0.6 s beside 0.7 to
//! 1.1), and more per round trip (34 to 38 µs beside 27 to 30).

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::routing::{Kind, Port, ProxyHeader, Route, Routing};
use super::{HELLO_DEADLINE, Place, WORKERS};

const FILE: &str = "haproxy.cfg";
const SOCKET: &str = "haproxy.sock";
/// Each takes two descriptors and, for splicing, half a pipe; the machine may allow 20,000.
const MOST_CONNECTIONS: u32 = 7000;

pub(super) fn write(place: &Place, routing: &Routing) -> Instant {
    let mut text = format!(
        "global\n  nbthread {WORKERS}\n  maxconn {MOST_CONNECTIONS}\n  stats socket {} mode 600 level admin expose-fd listeners\n\
         defaults\n  mode tcp\n  option splice-request\n  option splice-response\n  option redispatch 1\n  retries 3\n  maxconn {MOST_CONNECTIONS}\n\
         \x20 timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n",
        place.path(SOCKET).display()
    );
    for port in &routing.ports {
        frontend(&mut text, place, port);
        port.routes.iter().for_each(|route| backend(&mut text, route));
    }
    place.put(FILE, &text)
}

pub(super) fn command(program: &Path, place: &Place) -> Command {
    let mut command = Command::new(program);
    command.arg("-W").arg("-f").arg(place.path(FILE));
    command
}

/// Whether the master has a handler for the signal that changes it.
pub(super) fn heeds_changes(pid: u32) -> bool {
    const CAUGHT_USR2: u64 = 1 << (12 - 1);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigCgt:")?.trim(), 16).ok());
    caught.is_some_and(|caught| caught & CAUGHT_USR2 != 0)
}

/// Refused by a rule, or broken before one could decide.
pub(super) fn refusals(place: &Place) -> u64 {
    let mut socket = UnixStream::connect(place.path(SOCKET)).expect("HAProxy has a socket");
    socket.write_all(b"show stat -1 1 -1\n").expect("HAProxy listens");
    let mut text = String::new();
    socket.read_to_string(&mut text).expect("HAProxy answers");
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let columns: Vec<usize> = ["dreq", "ereq"].iter().filter_map(|c| names.iter().position(|n| n == c)).collect();
    let number = |line: &str, column: &usize| line.split(',').nth(*column)?.parse::<u64>().ok();
    lines.flat_map(|line| columns.iter().filter_map(move |column| number(line, column))).sum()
}

fn frontend(text: &mut String, place: &Place, port: &Port) {
    let accepts = if port.accepts_proxy_header { " accept-proxy" } else { "" };
    let (listen, number) = (place.listen, port.number);
    let _ = write!(text, "frontend port-{number}\n  bind {listen}:{number}{accepts}\n");
    if port.kind == Kind::Plain {
        let _ = writeln!(text, "  default_backend {}", port.routes[0].name);
        return;
    }
    let delay = HELLO_DEADLINE.as_secs();
    let _ = write!(
        text,
        "  tcp-request inspect-delay {delay}s\n  tcp-request content accept if {{ req.ssl_hello_type 1 }}\n  tcp-request content reject\n"
    );
    for (rule, is_wildcard) in [("map_str", false), ("map_end", true)] {
        let file = names(place, port, is_wildcard);
        let name = format!("req.ssl_sni,lower,rtrim(.),{rule}({file})");
        let _ = writeln!(text, "  use_backend %[{name}] if {{ {name} -m found }}");
    }
    if let Some(route) = port.routes.iter().find(|route| route.default) {
        let _ = writeln!(text, "  use_backend {} if !{{ req.ssl_sni -m found }}", route.name);
    }
}

/// Writes the map from names (or from the ends of names) to backends.
fn names(place: &Place, port: &Port, is_wildcard: bool) -> String {
    let mut map = String::new();
    for route in &port.routes {
        for host in route.hosts.iter().filter(|host| host.starts_with('*') == is_wildcard) {
            let _ = writeln!(map, "{} {}", host.trim_start_matches('*'), route.name);
        }
    }
    let name = format!("{}-{}.map", port.number, if is_wildcard { "ends" } else { "names" });
    place.put(&name, &map);
    place.path(&name).display().to_string()
}

fn backend(text: &mut String, route: &Route) {
    let sends = match route.sends {
        None => "",
        Some(ProxyHeader::V1) => " send-proxy",
        Some(ProxyHeader::V2) => " send-proxy-v2",
    };
    let _ = writeln!(text, "backend {}", route.name);
    for (index, target) in route.targets.iter().enumerate() {
        let _ = writeln!(text, "  server s{index} {target}{sends}");
    }
}
