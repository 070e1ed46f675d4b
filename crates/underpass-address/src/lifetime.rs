//! How long the address stays, worked out so that no two machines ever have it.
//!
//! The kernel takes an address away when its lifetime is over, by its own clock, also from under a process that was killed, stopped or
//! cut off. What has to hold is that it does so before anybody else may have the lease. All times are counted from when the holder was
//! about to send the renewal that succeeded last (`asked`): whoever waits for the lease saw that renewal later, and so begins to count
//! later, whatever the clocks say.
//!
//! | seconds after `asked` | |
//! | --- | --- |
//! | 0.3, and again | the next renewal, after which everything is counted anew ([`RENEW_AFTER`]) |
//! | up to 0.25 | the lifetime may be set again, to one second ([`EXTEND_UNTIL`]); the last time at 0.2 ([`EXTEND_AT`]) |
//! | 1.13 | the holder has not been able to renew and takes the address off itself ([`STOP_AFTER`]) |
//! | 1.18 to 1.5 | otherwise the kernel does: lifetimes are whole seconds, and it rounds up to a quarter of a second |
//! | 2.25 | at the very latest: it looks at its addresses at most once a second, so that it may be late by one ([`LATENESS`]) |
//! | 2.15 | the lease is over for whoever waits, at the earliest ([`TERM`] and [`GRACE`]); it begins to ask the network |
//! | 2.3 | nobody has answered ([`ASKING`]): it takes the lease, and then the address |
//!
//! The lease is written only with the version that was read before asking, so that a renewal that came meanwhile wins. So there are
//! 0.05 seconds or more between two holders by clocks alone, 0.8 as a rule. Behind that is a second lock, for machines on which even the
//! kernel is late (one that sleeps, in which nothing wakes it for an address): it would answer the question, and while anybody
//! answers nobody claims.
//!
//! What is left: a process that is stopped between looking at the clock and the system call that follows, microseconds later, sets a
//! lifetime too late when it wakes up. It looks at the clock again after the call, and takes the address off at once.
//!
//! With the last address of an interface the kernel takes every route that leads out by it. So wherever the address is put, that what is
//! sent from it goes by the gateway is said again.
//!
//! The sum leaves a server 0.25 seconds for a write. One that takes longer, and less than a candidate waits for an answer, keeps a lease with its
//! holder and the address from everybody. That is safe and of no use to anybody, so it is told ([`Stay`]).
//!
//! A shorter lifetime is not to be had from the kernel, and a longer one would make the fail-over longer: a few hundredths of a second until
//! the last renewal is seen (0.2 at most, when nothing tells of it), 2.3 until it is over, and a few more for two requests and the
//! announcement.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::{Interface, InterfaceError};

/// What is written into the lease.
pub const TERM: Duration = Duration::from_secs(2);
/// When its holder renews it. The more often, the sooner it is over for a holder that died, and the longer may a server be silent.
pub const RENEW_AFTER: Duration = Duration::from_millis(300);
/// When a holder that cannot renew it has no address any more.
pub const STOP_AFTER: Duration = Duration::from_millis(1130);
/// How long whoever waits for the lease waits beyond the term.
pub const GRACE: Duration = Duration::from_millis(150);
/// How long the network is asked before the lease is taken.
pub const ASKING: Duration = Duration::from_millis(150);
/// What the kernel is told; the least that it takes.
const LIFETIME: u32 = 1;
/// When the lifetime is set for the last time, if no renewal comes.
const EXTEND_AT: Duration = Duration::from_millis(200);
/// Beyond this it is not set any more.
pub const EXTEND_UNTIL: Duration = Duration::from_millis(250);
/// How late the kernel may be.
const LATENESS: Duration = Duration::from_secs(1);

const _: () = {
    let gone = EXTEND_UNTIL.as_millis() + LIFETIME as u128 * 1000 + LATENESS.as_millis();
    let taken = TERM.as_millis() + GRACE.as_millis() + ASKING.as_millis();
    assert!(gone < taken, "the address would outlive the lease");
    // Otherwise the kernel would take it from a holder who still has time to renew; it counts the last fiftieth of a second as over.
    assert!(EXTEND_AT.as_millis() + LIFETIME as u128 * 1000 - 20 > STOP_AFTER.as_millis());
};

/// The address on an interface. It goes with this value.
#[derive(Debug)]
pub struct Held<'a> {
    interface: &'a Interface,
    address: IpNet,
    /// Who leads to other networks.
    gateway: Option<IpAddr>,
    stays: &'a watch::Sender<Stay>,
}

/// How long the address stays where it is held, and what keeps it from staying longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stay {
    /// When its last lifetime is over. `None`: it has none.
    pub until: Option<Instant>,
    /// After how long the last renewal was known, if that was too late to put the address there.
    pub late: Option<Duration>,
}

impl Stay {
    pub fn lasts(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// After how long a renewal was known, when it is for this that the address is not there.
    pub fn missed(&self, now: Instant) -> Option<Duration> {
        self.late.filter(|_| !self.lasts(now))
    }
}

impl<'a> Held<'a> {
    /// Nothing is there before it is kept there.
    pub fn new(
        interface: &'a Interface,
        address: IpNet,
        gateway: Option<IpAddr>,
        stays: &'a watch::Sender<Stay>,
    ) -> Self {
        Self { interface, address, gateway, stays }
    }

    /// Puts the address onto the interface by right of each renewal, told by when it was asked for, and lets the kernel take it when none
    /// comes. Ends by an error, and when nobody renews any more.
    pub async fn keep(&self, mut renewals: watch::Receiver<Instant>) -> Result<(), InterfaceError> {
        loop {
            let asked = *renewals.borrow_and_update();
            if !self.extend(asked)? {
                self.stays.send_modify(|stay| stay.late = Some(asked.elapsed()));
            }
            let mut renewed = timeout_at(asked + EXTEND_AT, renewals.changed()).await;
            if renewed.is_err() {
                self.extend(asked)?;
                renewed = Ok(renewals.changed().await);
            }
            if matches!(renewed, Ok(Err(_))) {
                // Nobody renews any more.
                return Ok(());
            }
        }
    }

    /// Whether it was not too late.
    fn extend(&self, asked: Instant) -> Result<bool, InterfaceError> {
        let now = Instant::now();
        if now.duration_since(asked) > EXTEND_UNTIL {
            return Ok(false);
        }
        self.interface.put(self.address, LIFETIME)?;
        if let Some(gateway) = self.gateway {
            self.interface.lead(self.address, gateway)?;
        }
        if asked.elapsed() > EXTEND_UNTIL {
            self.interface.take_off(self.address)?;
            self.stays.send_modify(|stay| stay.until = None);
            return Ok(false);
        }
        let until = now + Duration::from_secs(LIFETIME.into());
        self.stays.send_replace(Stay { until: Some(until), late: None });
        Ok(true)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Should it fail, the kernel does it within two seconds.
        let _ = self.interface.take_off(self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_that_was_late_is_missed_when_the_lifetime_before_it_is_over() {
        let now = Instant::now();
        let (end, late) = (now + Duration::from_secs(1), Some(Duration::from_millis(400)));
        let stay = Stay { until: Some(end), late };
        assert_eq!((stay.lasts(now), stay.missed(now)), (true, None));
        assert_eq!((stay.lasts(end), stay.missed(end)), (false, late));
        assert_eq!(Stay { until: Some(end), late: None }.missed(end), None, "no renewal at all");
        assert_eq!(Stay { until: None, late }.missed(now), late, "it was never there");
        assert_eq!(Stay::default().missed(now), None);
    }
}
