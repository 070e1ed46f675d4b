//! `underpass floating-address`: an address that one of several pods has, as one of them.

use tokio_util::sync::CancellationToken;
use tracing::info;
use underpass_address::{GRACE, Interface, RENEW_AFTER, STOP_AFTER, TERM};
use underpass_operator::host;
use underpass_operator::leadership::{self, Seat, Terms};

use super::controllers::until_signalled;
use crate::args::FloatingAddress;
use crate::exit::Ended;
use crate::floating::Floating;
use crate::server;
use crate::signals::Signals;

/// Worked out in [`underpass_address`].
const TERMS: Terms = Terms { term: TERM, grace: GRACE, renew_after: RENEW_AFTER, stop_after: STOP_AFTER };

pub(crate) async fn run(args: FloatingAddress) -> anyhow::Result<Ended> {
    let mut signals = Signals::listen()?;
    let interface = Interface::find(&args.interface)?;
    let client = server::from_file_or_pod(args.kubeconfig).await?;
    let pod = std::env::var("POD_NAME").ok().filter(|name| !name.is_empty());
    let candidate = leadership::candidate(&pod.unwrap_or_else(host));
    let seat = Seat { namespace: args.namespace, name: args.lease, candidate, terms: TERMS };
    info!(address = %args.address, interface = interface.name, mac = %interface.mac,
        lease = %format_args!("{}/{}", seat.namespace, seat.name), candidate = seat.candidate, "floating address started");
    let (address, gateway) = (args.address, args.gateway);
    let floating = Floating { address, interface, gateway, seat, ready: args.ready };
    let stop = CancellationToken::new();
    let holding = async { Ok(floating.run(client, stop.clone()).await?) };
    let ended = until_signalled(holding, &stop, &mut signals).await;
    info!("floating address ended");
    ended
}
