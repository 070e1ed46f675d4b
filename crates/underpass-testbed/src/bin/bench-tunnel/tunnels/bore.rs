//! bore: its server is in the network; on the host runs one process for each tunnel. It has neither a file nor a setting for TCP_NODELAY.

use std::process::Command;

use super::{Bed, Running, on_host};

const CONTROL: u16 = 7835;

pub(super) fn start<'a>(bed: &Bed<'a>) -> anyhow::Result<Running<'a>> {
    let guest = bed.site.run(bed.program, &["server"], &[], CONTROL)?;
    let client = |port: u16, target: std::net::SocketAddr| {
        let mut command = Command::new(bed.program);
        command.args(["local", &target.port().to_string(), "--local-host", &target.ip().to_string()]);
        command.args(["--to", &guest.address.to_string(), "--port", &port.to_string()]);
        on_host(&mut command)
    };
    let processes = bed.tunnels().map(|(_, port, target)| client(port, target)).collect();
    Running::of_two_halves(guest, processes, tempfile::tempdir()?)
}
