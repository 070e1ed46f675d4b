//! nginx: the stream module with ssl_preread, and a map from names to upstreams for each port.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::routing::{Kind, Port, Route, Routing};
use super::{HELLO_DEADLINE, Place, WORKERS};

const FILE: &str = "nginx.conf";
const STREAM_MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

pub(super) fn write(place: &Place, routing: &Routing) -> Instant {
    let longest = routing.routes().count().max(64) * 8;
    let mut text = format!(
        "daemon off;\nuser root;\npid {pid};\nerror_log stderr error;\nworker_processes {WORKERS};\nworker_rlimit_nofile 20000;\n\
         load_module {STREAM_MODULE};\nevents {{ worker_connections 19000; }}\nstream {{\n  access_log off;\n  tcp_nodelay on;\n\
         \x20 preread_timeout {deadline}s;\n  proxy_protocol_timeout {deadline}s;\n  proxy_connect_timeout 5s;\n  proxy_timeout 1h;\n\
         \x20 proxy_half_close on;\n  map_hash_max_size {longest};\n  map_hash_bucket_size 256;\n",
        pid = place.path("nginx.pid").display(),
        deadline = HELLO_DEADLINE.as_secs(),
    );
    for port in &routing.ports {
        port.routes.iter().for_each(|route| upstream(&mut text, route));
        server(&mut text, place, port);
    }
    text.push_str("}\n");
    place.put(FILE, &text)
}

pub(super) fn command(program: &Path, place: &Place) -> Command {
    let mut command = Command::new(program);
    command.arg("-p").arg(place.folder.path()).arg("-c").arg(place.path(FILE)).args(["-e", "stderr"]);
    command
}

fn upstream(text: &mut String, route: &Route) {
    let _ = writeln!(text, "  upstream {} {{", route.name);
    for target in &route.targets {
        let _ = writeln!(text, "    server {target} max_fails=0;");
    }
    text.push_str("  }\n");
}

fn server(text: &mut String, place: &Place, port: &Port) {
    let (listen, number) = (place.listen, port.number);
    let accepts = if port.accepts_proxy_header { " proxy_protocol" } else { "" };
    let target = match port.kind {
        Kind::Plain => port.routes[0].name.clone(),
        Kind::Tls => {
            names(text, port);
            format!("$target_{number}")
        }
    };
    let preread = if port.kind == Kind::Tls { "ssl_preread on; " } else { "" };
    // A switch of the whole port: it cannot depend on the name.
    let sends = if port.routes.iter().any(|route| route.sends.is_some()) { "proxy_protocol on; " } else { "" };
    let _ = writeln!(
        text,
        "  server {{ listen {listen}:{number} backlog=4096{accepts}; {preread}{sends}proxy_pass {target}; }}"
    );
}

/// `hostnames` compares without case and without a trailing dot.
fn names(text: &mut String, port: &Port) {
    let _ = writeln!(text, "  map $ssl_preread_server_name $target_{} {{\n    hostnames;", port.number);
    for route in &port.routes {
        for host in &route.hosts {
            let _ = writeln!(text, "    {host} {};", route.name);
        }
        if route.default {
            let _ = writeln!(text, "    \"\" {};", route.name);
        }
    }
    text.push_str("  }\n");
}
