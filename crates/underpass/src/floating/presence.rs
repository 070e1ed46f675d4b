//! Whether the address is here while the lease is held, and where that is told: in the log, on the lease, and to who announces it.

use std::collections::BTreeMap;
use std::time::Duration;

use ipnet::IpNet;
use tokio::sync::Notify;
use tokio::sync::watch::{self, error::RecvError};
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};
use underpass_address::{EXTEND_UNTIL, Interface, Stay};

/// On the lease: how long a renewal of it took, when nobody has the address for that reason. For whoever shows the state of the address.
const ANNOTATION: &str = "underpass.dev/address-late";

/// What was said last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Nothing,
    Here,
    /// A renewal took that long.
    Off(Duration),
}

impl Said {
    /// What there is to say now, if it is another thing than this.
    fn news(self, stay: &Stay, now: Instant) -> Option<Self> {
        match (self, stay.missed(now)) {
            (Self::Nothing | Self::Off(_), _) if stay.lasts(now) => Some(Self::Here),
            (Self::Nothing | Self::Here, Some(took)) => Some(Self::Off(took)),
            _ => None,
        }
    }
}

/// Says when the address comes, and when it is off although the lease is held. Ends when nobody tells any more.
pub(super) async fn follow(address: IpNet, interface: &Interface, mut stays: watch::Receiver<Stay>, came: &Notify) {
    let mut said = Said::Nothing;
    loop {
        let (stay, now) = (*stays.borrow_and_update(), Instant::now());
        if let Some(news) = said.news(&stay, now) {
            say(news, address, interface);
            if news == Said::Here {
                came.notify_one();
            }
            said = news;
        }
        if changed(&mut stays, stay.until.filter(|_| stay.lasts(now))).await.is_err() {
            return;
        }
    }
}

/// On the lease, by the renewals themselves: the server has enough to do. As it was at first: whoever shows it would have news all the time.
pub(super) fn mark(annotations: &mut BTreeMap<String, String>, stay: &Stay) {
    match stay.missed(Instant::now()) {
        Some(took) => drop(annotations.entry(ANNOTATION.to_owned()).or_insert(format!("{:.2}s", took.as_secs_f32()))),
        None => drop(annotations.remove(ANNOTATION)),
    }
}

fn say(news: Said, address: IpNet, interface: &Interface) {
    match news {
        Said::Here => info!(%address, interface = interface.name, mac = %interface.mac, "the address is here"),
        Said::Off(took) => {
            let (took, most) = (took.as_secs_f32(), EXTEND_UNTIL.as_secs_f32());
            warn!(%address, "the API server is too slow for the address: a renewal took {took:.2} s, and one that takes longer than {most} s is too late; \
                nobody has the address until renewals are faster");
        }
        Said::Nothing => {}
    }
}

/// The kernel takes the address without telling: then it is worth a look, too.
async fn changed(stays: &mut watch::Receiver<Stay>, until: Option<Instant>) -> Result<(), RecvError> {
    match until {
        Some(until) => timeout_at(until, stays.changed()).await.unwrap_or(Ok(())),
        None => stays.changed().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Duration = Duration::from_millis(412);

    #[test]
    fn each_loss_is_said_once_and_so_is_its_end() {
        let start = Instant::now();
        let end = start + Duration::from_secs(1);
        let (here, late) = (Stay { until: Some(end), late: None }, Stay { until: Some(end), late: Some(SLOW) });
        assert_eq!(Said::Nothing.news(&Stay::default(), start), None);
        assert_eq!(Said::Nothing.news(&here, start), Some(Said::Here));
        assert_eq!(Said::Here.news(&here, start), None);
        assert_eq!(Said::Here.news(&late, start), None, "it is there still");
        assert_eq!(Said::Here.news(&late, end), Some(Said::Off(SLOW)));
        assert_eq!(Said::Off(SLOW).news(&Stay { late: Some(SLOW * 2), ..late }, end), None);
        assert_eq!(Said::Off(SLOW).news(&here, start), Some(Said::Here));
        assert_eq!(Said::Here.news(&here, end), None, "no renewal at all is told by whoever renews");
        assert_eq!(Said::Nothing.news(&Stay { until: None, late: Some(SLOW) }, start), Some(Said::Off(SLOW)));
    }

    #[test]
    fn the_lease_has_the_first_number_until_the_address_is_back() {
        let (mut annotations, now) = (BTreeMap::new(), Instant::now());
        let other = annotations.clone();
        mark(&mut annotations, &Stay { until: None, late: Some(SLOW) });
        mark(&mut annotations, &Stay { until: None, late: Some(SLOW * 2) });
        assert_eq!(annotations[ANNOTATION], "0.41s");
        mark(&mut annotations, &Stay { until: Some(now + Duration::from_secs(60)), late: Some(SLOW) });
        assert_eq!(annotations, other);
    }
}
