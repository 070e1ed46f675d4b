//! frp: frps is in the network, frpc on the host. As it comes, one connection carries all streams; its other way is measured too, because
//! it is cheaper for bulk.

use std::fmt::Write as _;
use std::process::Command;

use super::{Bed, Running, on_host, put};
use crate::site::FOLDER;

const CONTROL: u16 = 7000;
/// Connections that wait for streams; its documentation recommends them for many short streams. More are refused as it comes.
const POOL: u32 = 5;
const QUIET: &str = "log.level = \"warn\"\nlog.disablePrintColor = true\n";

pub(super) fn start<'a>(bed: &Bed<'a>, one_connection: bool) -> anyhow::Result<Running<'a>> {
    let server = format!("bindPort = {CONTROL}\ntransport.tcpMux = {one_connection}\n{QUIET}");
    let guest =
        bed.site.run(bed.program, &["-c", &format!("{FOLDER}/frps.toml")], &[("frps.toml", server)], CONTROL)?;
    let mut client = format!(
        "serverAddr = \"{}\"\nserverPort = {CONTROL}\ntransport.tcpMux = {one_connection}\n\
         transport.tls.enable = false\ntransport.poolCount = {POOL}\n{QUIET}",
        guest.address
    );
    for (name, port, target) in bed.tunnels() {
        let (host, local) = (target.ip(), target.port());
        let _ = writeln!(
            client,
            "[[proxies]]\nname = \"{name}\"\ntype = \"tcp\"\nlocalIP = \"{host}\"\nlocalPort = {local}\nremotePort = {port}"
        );
    }
    let folder = tempfile::tempdir()?;
    let file = put(&folder, "frpc.toml", &client)?;
    let process = on_host(Command::new(bed.program.with_file_name("frpc")).arg("-c").arg(file));
    Running::of_two_halves(guest, vec![process], folder)
}
