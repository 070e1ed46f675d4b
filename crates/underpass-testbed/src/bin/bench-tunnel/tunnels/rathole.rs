//! rathole: its server is in the network, its client on the host.

use std::fmt::Write as _;
use std::process::Command;

use super::{Bed, Running, on_host, put};
use crate::site::FOLDER;

const CONTROL: u16 = 2333;
/// It cannot do without.
const TOKEN: &str = "bench";

pub(super) fn start<'a>(bed: &Bed<'a>) -> anyhow::Result<Running<'a>> {
    let mut server = half("server", &format!("bind_addr = \"0.0.0.0:{CONTROL}\""));
    let mut client = String::new();
    for (name, port, target) in bed.tunnels() {
        let _ = writeln!(server, "[server.services.{name}]\nbind_addr = \"0.0.0.0:{port}\"");
        let _ = writeln!(client, "[client.services.{name}]\nlocal_addr = \"{target}\"");
    }
    let guest = bed.site.run(
        bed.program,
        &["--server", &format!("{FOLDER}/server.toml")],
        &[("server.toml", server)],
        CONTROL,
    )?;
    let folder = tempfile::tempdir()?;
    let head = half("client", &format!("remote_addr = \"{}:{CONTROL}\"", guest.address));
    let file = put(&folder, "client.toml", &(head + &client))?;
    let process = on_host(Command::new(bed.program).arg("--client").arg(file));
    Running::of_two_halves(guest, vec![process], folder)
}

/// What both halves are told alike.
fn half(side: &str, address: &str) -> String {
    format!(
        "[{side}]\n{address}\ndefault_token = \"{TOKEN}\"\n[{side}.transport]\ntype = \"tcp\"\n[{side}.transport.tcp]\nnodelay = true\n"
    )
}
