//! The floating address of this process: it has it while it holds the lease, and stands for the lease while its data plane is ready, the
//! network is there, and nobody else on it answers for the address.

mod conflict;
mod presence;
mod readiness;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use kube::Client;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use underpass_address::{Held, Interface, InterfaceError, Stay, Wire, WireError, announce, ask};
use underpass_operator::leadership::{Office, Seat, Stands, Words, lead};

use conflict::{Claims, Notice, Verdict};
pub(crate) use readiness::ReadyUrl;
use readiness::{follow, gone};

const WORDS: Words = Words {
    waits: "another process has the address; this one waits and takes over when that one ends",
    leads: "this process takes over the address",
    goes_on: "the lease can be renewed again; the address stays here",
    is_replaced: "the address is taken off here: another process has taken the lease",
    is_silenced: "the address is taken off here until the lease can be renewed: another process could have taken it by now",
};

/// After a predecessor has answered.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// What floats, and where.
pub(crate) struct Floating {
    pub(crate) address: IpNet,
    pub(crate) interface: Interface,
    /// Who leads from there to other networks.
    pub(crate) gateway: Option<IpAddr>,
    pub(crate) seat: Seat,
    pub(crate) ready: ReadyUrl,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum FloatingError {
    #[error("the address cannot be held here; the lease is given back")]
    Interface(#[from] InterfaceError),
    #[error("the network cannot be asked who has the address")]
    Wire(#[from] WireError),
}

/// Why an address is given back.
enum Left {
    Asked,
    NotReady,
    Failed(InterfaceError),
}

impl Floating {
    /// Holds the address whenever it is this process's turn, until `stop`.
    pub(crate) async fn run(self, client: Client, stop: CancellationToken) -> Result<(), FloatingError> {
        let address = self.address.addr();
        // What cannot work is said at once, and not when the others have died.
        Wire::open(&self.interface, address)?;
        if self.interface.take_off(self.address)? {
            info!(%address, "taken off: it was there from an earlier life");
        }
        if let Some(gateway) = self.gateway {
            self.interface.lead(self.address, gateway)?;
            info!(%address, %gateway, "other networks are answered by the gateway");
        }
        let (readiness, ready) = watch::channel(false);
        let (renewals, renewed) = watch::channel(Instant::now());
        let (stays, _) = watch::channel(Stay::default());
        let mut candidate = Candidate {
            interface: self.interface.clone(),
            address: self.address,
            ready: ready.clone(),
            claims: Claims::default(),
            unasked: false,
            notice: Notice::new(&client, &self.seat),
            renewals,
            stays: stays.clone(),
        };
        let this = &self;
        let following = follow(&self.ready, &self.interface, readiness);
        let holding = async {
            loop {
                let work = || this.hold(renewed.clone(), ready.clone(), &stays, &stop);
                match lead(&client, this.seat.clone(), &mut candidate, &stop, work).await {
                    Some(Left::NotReady) => {}
                    Some(Left::Failed(error)) => return Err(error.into()),
                    Some(Left::Asked) | None => return Ok(()),
                }
            }
        };
        tokio::select! {
            ended = holding => ended,
            () = following => Ok(()),
        }
    }

    /// When this returns, or is dropped, the address is off the interface.
    async fn hold(
        &self,
        renewals: watch::Receiver<Instant>,
        ready: watch::Receiver<bool>,
        stays: &watch::Sender<Stay>,
        stop: &CancellationToken,
    ) -> Left {
        let (address, begun, came) = (self.address, Instant::now(), Notify::new());
        let held = Held::new(&self.interface, address, self.gateway, stays);
        let left = tokio::select! {
            kept = held.keep(renewals) => kept.err().map_or(Left::Asked, Left::Failed),
            () = presence::follow(address, &self.interface, stays.subscribe(), &came) => Left::Asked,
            never = self.announce_whenever(&came) => match never {},
            () = gone(ready) => Left::NotReady,
            () = stop.cancelled() => Left::Asked,
        };
        if matches!(left, Left::NotReady) {
            warn!(address = %address, "the address is given to another: it cannot be served here");
        }
        info!(address = %address, seconds = begun.elapsed().as_secs(), "the address leaves");
        left
    }

    async fn announce_whenever(&self, it_came: &Notify) -> Infallible {
        loop {
            it_came.notified().await;
            if let Err(error) = announce(&self.interface, self.address.addr()).await {
                warn!("not everybody is told where the address is now: {:#}", anyhow::Error::new(error));
            }
        }
    }
}

/// This process, as one who could have the address.
struct Candidate {
    interface: Interface,
    address: IpNet,
    ready: watch::Receiver<bool>,
    claims: Claims,
    /// Whether it was said that the network cannot be asked.
    unasked: bool,
    notice: Notice,
    /// Where whoever holds the address hears of renewals.
    renewals: watch::Sender<Instant>,
    /// Where that one says what became of the address.
    stays: watch::Sender<Stay>,
}

impl Candidate {
    /// The carrier is looked at once more: without it silence is no answer.
    fn is_ready(&self) -> bool {
        *self.ready.borrow() && self.interface.has_carrier().unwrap_or(false)
    }
}

impl Office for Candidate {
    fn words(&self) -> &'static Words {
        &WORDS
    }

    async fn stands(&mut self) -> Stands {
        // What was too late in an earlier turn is not in this one.
        self.stays.send_replace(Stay::default());
        if !self.is_ready() || !self.claims.is_time(Instant::now()) {
            return Stands::No;
        }
        let claimant = match ask(&self.interface, self.address.addr()).await {
            Ok(claimant) => claimant,
            Err(error) => {
                if !self.unasked {
                    warn!("this process does not compete for the address: {:#}", anyhow::Error::new(error));
                }
                self.unasked = true;
                return Stands::No;
            }
        };
        self.unasked = false;
        match self.claims.hear(claimant, Instant::now()) {
            Verdict::Free if self.is_ready() => Stands::Yes,
            Verdict::Free => Stands::No,
            // Soon, because machines wait; but the lease is read first, because it may be the next holder who has answered.
            Verdict::StillThere => Stands::NotYet(ASK_AGAIN),
            Verdict::Conflict { mac, new } => {
                if new {
                    warn!(address = %self.address, mac = %mac, "somebody else on the network has the address; nobody takes it until that one is gone");
                }
                self.notice.tell(mac).await;
                Stands::No
            }
        }
    }

    /// Nobody else on the network has the address: whoever takes the lease has asked.
    fn mark(&self, annotations: &mut BTreeMap<String, String>) {
        annotations.remove(conflict::ANNOTATION);
        presence::mark(annotations, &self.stays.borrow());
    }

    fn holds(&self, asked: Instant) {
        self.renewals.send_replace(asked);
    }

    /// Another answers by right. What was heard before says nothing about whoever answers when that one is gone.
    fn waits_for(&mut self, _holder: &str) {
        self.claims = Claims::default();
    }

    fn troubled(&self, _why: &dyn fmt::Display) {}

    fn lost(&self) {}
}
