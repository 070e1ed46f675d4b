//! `underpass tunnel-client`: the half of a tunnel that listens where clients are.

use anyhow::Context;
use serde_json::json;
use underpass_tunnel::ClientSecrets;
use underpass_tunnel::client::{Client, Settings};

use crate::args::TunnelClient;
use crate::descriptors;
use crate::exit::Ended;
use crate::output;
use crate::signals::Signals;

pub(crate) async fn run(args: TunnelClient) -> anyhow::Result<Ended> {
    let mut signals = Signals::listen()?;
    descriptors::raise_limit();
    let json = std::fs::read(&args.secrets).with_context(|| format!("cannot read {}", args.secrets.display()))?;
    let secrets = ClientSecrets::parse(&json).with_context(|| format!("cannot use {}", args.secrets.display()))?;
    let TunnelClient { control_port, data_port, .. } = args;
    let client = Client::start(&secrets, Settings { control_port, data_port, ..Settings::default() }).await?;
    let (control, data) = (client.control_address().port(), client.data_address().port());
    let ready = json!({ "controlPort": control, "dataPort": data, "pid": std::process::id() });
    output::print(&format!("{ready}\n"))?;
    signals.next().await;
    tokio::select! {
        () = client.stop() => Ok(Ended::Well),
        () = signals.next() => Ok(Ended::Forced),
    }
}
