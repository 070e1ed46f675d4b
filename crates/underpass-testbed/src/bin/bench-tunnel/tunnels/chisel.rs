//! chisel: its server is in the network, its client on the host. It always encrypts, because its streams are those of one SSH connection.

use std::process::Command;

use super::{Bed, Running, on_host};

const CONTROL: u16 = 8080;

pub(super) fn start<'a>(bed: &Bed<'a>) -> anyhow::Result<Running<'a>> {
    let guest = bed.site.run(bed.program, &["server", "--reverse", "--port", &CONTROL.to_string()], &[], CONTROL)?;
    let mut client = Command::new(bed.program);
    client.args(["client", &format!("http://{}:{CONTROL}", guest.address)]);
    client.args(bed.tunnels().map(|(_, port, target)| format!("R:0.0.0.0:{port}:{target}")));
    let process = on_host(&mut client);
    Running::of_two_halves(guest, vec![process], tempfile::tempdir()?)
}
