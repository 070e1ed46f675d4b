//! sniproxy: a table of patterns for each port. It has no workers; its documentation has several instances share a port.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::routing::{Port, Routing};
use super::{Place, WORKERS};

pub(super) fn write(place: &Place, routing: &Routing) -> Instant {
    let write_for = |worker| {
        let pid = place.path(&format!("sniproxy-{worker}.pid"));
        let log = place.path(&format!("sniproxy-{worker}.log"));
        let mut text = format!(
            "user root\npidfile {}\nerror_log {{\n  filename {}\n  priority error\n}}\naccess_log {{\n  filename /dev/null\n  priority emergency\n}}\n",
            pid.display(),
            log.display()
        );
        routing.ports.iter().for_each(|port| listener(&mut text, place, port));
        place.put(&file(worker), &text)
    };
    (0..WORKERS).map(write_for).max().expect("there are workers")
}

pub(super) fn commands(program: &Path, place: &Place) -> Vec<Command> {
    let command = |worker| {
        let mut command = Command::new(program);
        command.arg("-f").arg("-c").arg(place.path(&file(worker)));
        command
    };
    (0..WORKERS).map(command).collect()
}

fn file(worker: u32) -> String {
    format!("sniproxy-{worker}.conf")
}

fn listener(text: &mut String, place: &Place, port: &Port) {
    let (listen, number) = (place.listen, port.number);
    let _ = write!(text, "listener {listen}:{number} {{\n  protocol tls\n  reuseport yes\n  table port_{number}\n");
    // What cannot be read and what is unknown goes there too: sniproxy does not tell the two apart.
    if let Some(route) = port.routes.iter().find(|route| route.default) {
        let _ = writeln!(text, "  fallback {}", route.targets[0]);
    }
    let _ = writeln!(text, "}}\ntable port_{number} {{");
    let hosts = port.routes.iter().flat_map(|route| route.hosts.iter().map(move |host| (host, route)));
    let mut hosts: Vec<_> = hosts.collect();
    // The first pattern that fits decides.
    hosts.sort_by_key(|(host, _)| host.starts_with('*'));
    for (host, route) in hosts {
        let header = if route.sends.is_some() { " proxy_protocol" } else { "" };
        let _ = writeln!(text, "  {} {}{header}", pattern(host), route.targets[0]);
    }
    text.push_str("}\n");
}

/// A host name as a regular expression, without case and trailing dot. The configuration reads `\\` as one.
fn pattern(host: &str) -> String {
    match host.strip_prefix("*.") {
        Some(suffix) => format!("(?i)^.+\\\\.{}\\\\.?$", suffix.replace('.', "\\\\.")),
        None => format!("(?i)^{}\\\\.?$", host.replace('.', "\\\\.")),
    }
}

#[cfg(test)]
mod tests {
    use super::pattern;

    #[test]
    fn a_wildcard_needs_a_label() {
        assert_eq!(pattern("a.test"), r"(?i)^a\\.test\\.?$");
        assert_eq!(pattern("*.a.test"), r"(?i)^.+\\.a\\.test\\.?$");
    }
}
