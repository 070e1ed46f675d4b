//! The network behind an interface: who there has an address is asked, who has it now is told.
//!
//! Frames go through a packet socket, for IPv6 too: a raw IPv6 socket cannot ask without having an address itself.

use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::socket::bind;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, eth, recv, socket_with};
use tokio::net::UnixDatagram;
use tokio::time::{Instant, sleep, timeout_at};

use crate::lifetime::ASKING;
use crate::{Interface, Mac, arp, discovery};

/// Questions, evenly over the time of asking: one may be lost while a switch learns who we are.
const QUESTIONS: u32 = 3;
/// Long enough for every frame that matters here; the rest of longer ones is of no interest.
const FRAME: usize = 256;
/// How often the new holder is announced: at once to those who listen, then to those who missed it.
const SOON: (u32, Duration) = (3, Duration::from_millis(100));
const LATER: (u32, Duration) = (3, Duration::from_secs(1));

/// An interface's network, open for one kind of address.
#[derive(Debug)]
pub struct Wire {
    /// Of no such family, but all that the runtime does with it is to send and to receive.
    socket: UnixDatagram,
    interface: Interface,
    address: IpAddr,
}

#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("the process may not send frames: give it the capability NET_RAW")]
    NotAllowed,
    #[error("no frames can be sent on {name}")]
    Open {
        name: String,
        #[source]
        source: std::io::Error,
    },
    #[error("a frame cannot be sent on {name}")]
    Send {
        name: String,
        #[source]
        source: std::io::Error,
    },
    #[error("nothing can be received on {name}")]
    Receive {
        name: String,
        #[source]
        source: std::io::Error,
    },
}

/// Who else on the network has the address. When nobody does, this takes [`ASKING`], and never less.
pub async fn ask(interface: &Interface, address: IpAddr) -> Result<Option<Mac>, WireError> {
    let wire = Wire::open(interface, address)?;
    let begun = Instant::now();
    for question in 1..=QUESTIONS {
        wire.send(&wire.probe()).await?;
        let answer = timeout_at(begun + ASKING * question / QUESTIONS, wire.claimant()).await;
        if let Ok(claimant) = answer {
            return claimant.map(Some);
        }
    }
    Ok(None)
}

/// Tells everybody that the address is here now. Ends when it has been said often enough.
pub async fn announce(interface: &Interface, address: IpAddr) -> Result<(), WireError> {
    let wire = Wire::open(interface, address)?;
    for (times, pause) in [SOON, LATER] {
        for _ in 0..times {
            wire.send(&wire.announcement()).await?;
            sleep(pause).await;
        }
    }
    Ok(())
}

impl Wire {
    pub fn open(interface: &Interface, address: IpAddr) -> Result<Self, WireError> {
        let (interface, protocol) = (interface.clone(), if address.is_ipv4() { eth::ARP } else { eth::IPV6 });
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, Some(protocol));
        let socket = socket.map_err(|error| match error {
            Errno::PERM | Errno::ACCESS => WireError::NotAllowed,
            error => WireError::Open { name: interface.name.clone(), source: error.into() },
        })?;
        let failed = |source| WireError::Open { name: interface.name.clone(), source };
        // Without a protocol in the address, which we cannot put there, it stays that of the socket.
        bind(socket.as_raw_fd(), &interface.link).map_err(|error| failed(error.into()))?;
        // What has come before is from other interfaces.
        while recv(&socket, &mut [0; 1], RecvFlags::DONTWAIT).is_ok() {}
        let socket = UnixDatagram::from_std(socket.into()).map_err(failed)?;
        Ok(Self { socket, interface, address })
    }

    async fn send(&self, frame: &[u8]) -> Result<(), WireError> {
        let sent = self.socket.send(frame).await;
        sent.map(drop).map_err(|source| WireError::Send { name: self.interface.name.clone(), source })
    }

    /// Until somebody else claims the address.
    async fn claimant(&self) -> Result<Mac, WireError> {
        let failed = |source| WireError::Receive { name: self.interface.name.clone(), source };
        let mut frame = [0; FRAME];
        loop {
            let length = self.socket.recv(&mut frame).await.map_err(failed)?;
            if let Some(mac) = self.claimed(&frame[..length]).filter(|mac| *mac != self.interface.mac) {
                return Ok(mac);
            }
        }
    }

    fn probe(&self) -> Vec<u8> {
        match self.address {
            IpAddr::V4(address) => arp::probe(self.interface.mac, address),
            IpAddr::V6(address) => discovery::probe(self.interface.mac, address),
        }
    }

    fn announcement(&self) -> Vec<u8> {
        match self.address {
            IpAddr::V4(address) => arp::announcement(self.interface.mac, address),
            IpAddr::V6(address) => discovery::announcement(self.interface.mac, address),
        }
    }

    fn claimed(&self, frame: &[u8]) -> Option<Mac> {
        match self.address {
            IpAddr::V4(address) => arp::claimant(frame, address),
            IpAddr::V6(address) => discovery::claimant(frame, address),
        }
    }
}
