//! An interface, and the addresses that are put onto it and taken off.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::{LinkAddr, SockaddrStorage};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

use crate::Mac;
use crate::netlink::{self, Content, Malformed};

/// The kernel answers within the call. Whoever waits longer would hold up the lease.
const PATIENCE: Duration = Duration::from_millis(200);
/// More than the kernel puts into one answer.
const LARGEST_ANSWER: usize = 64 * 1024;
/// Any number: of a socket that is used once.
const SEQUENCE: u32 = 1;
/// Of routes that hold for one address only, in a pod that is ours; and before the rule for all others, which has 32766.
const OWN_TABLE: u8 = 100;
const RULE_PRIORITY: u32 = 1000;
const LOOPBACK: &str = "lo";
/// The kind of hardware that has addresses like ours, and ARP.
const ETHERNET: u16 = 1;

/// As it was when it was looked for.
#[derive(Debug, Clone)]
pub struct Interface {
    pub name: String,
    pub mac: Mac,
    pub(crate) link: LinkAddr,
}

#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    #[error("the interfaces cannot be listed")]
    List(#[source] std::io::Error),
    #[error("there is no interface {name}; there are {others}: name another, or look at the pod's network annotation")]
    Missing { name: String, others: String },
    #[error("no interface has the address {address}")]
    Nowhere { address: IpAddr },
    #[error("{name} is not an Ethernet: nobody can be asked there who has an address")]
    NotEthernet { name: String },
    #[error("the kernel cannot be asked about {name}")]
    Kernel {
        name: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{address} cannot be put onto {name}")]
    Put {
        address: IpNet,
        name: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{address} cannot be taken off {name}")]
    TakeOff {
        address: IpNet,
        name: String,
        #[source]
        source: std::io::Error,
    },
    #[error("what is sent from {address} cannot be led by {gateway} on {name}")]
    Lead {
        address: IpNet,
        gateway: IpAddr,
        name: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the process may not change addresses: give it the capability NET_ADMIN")]
    NotAllowed,
}

impl Interface {
    pub fn find(name: &str) -> Result<Self, InterfaceError> {
        let all = getifaddrs().map_err(|error| InterfaceError::List(error.into()))?;
        let mut others = Vec::new();
        for interface in all {
            let Some(link) = interface.address.and_then(|address| address.as_link_addr().copied()) else { continue };
            if interface.interface_name != name {
                others.push(interface.interface_name);
                continue;
            }
            let Some(mac) = link.addr().filter(|_| link.hatype() == ETHERNET) else {
                return Err(InterfaceError::NotEthernet { name: name.to_owned() });
            };
            return Ok(Self { name: name.to_owned(), mac: Mac(mac), link });
        }
        Err(InterfaceError::Missing { name: name.to_owned(), others: others.join(", ") })
    }

    /// Whether something is at the other end of the cable. Without it the kernel takes addresses all the same, and nobody can be asked or
    /// answered. An interface on top of another has the carrier of that.
    pub fn has_carrier(&self) -> Result<bool, InterfaceError> {
        let carrier = InterfaceFlags::IFF_RUNNING | InterfaceFlags::IFF_LOWER_UP;
        let mut all = getifaddrs().map_err(|error| InterfaceError::List(error.into()))?;
        Ok(all.any(|interface| interface.interface_name == self.name && interface.flags.contains(carrier)))
    }

    /// The name of the one that has this address. Loopback has all of its network, of which one address is listed.
    pub fn holding(address: IpAddr) -> Result<String, InterfaceError> {
        if address.is_loopback() {
            return Ok(LOOPBACK.to_owned());
        }
        let mut all = getifaddrs().map_err(|error| InterfaceError::List(error.into()))?;
        let has_it = |own: &SockaddrStorage| match address {
            IpAddr::V4(address) => own.as_sockaddr_in().is_some_and(|own| own.ip() == address),
            IpAddr::V6(address) => own.as_sockaddr_in6().is_some_and(|own| own.ip() == address),
        };
        let found = all.find(|interface| interface.address.as_ref().is_some_and(has_it));
        found.map(|interface| interface.interface_name).ok_or(InterfaceError::Nowhere { address })
    }

    /// From now on the address is there for so many seconds, whether it was there before or not.
    pub fn put(&self, address: IpNet, seconds: u32) -> Result<(), InterfaceError> {
        let verdict = self.ask(&netlink::put(SEQUENCE, self.index(), address, seconds));
        verdict.map(drop).map_err(|source| match Errno::from_io_error(&source) {
            Some(Errno::PERM | Errno::ACCESS) => InterfaceError::NotAllowed,
            _ => InterfaceError::Put { address, name: self.name.clone(), source },
        })
    }

    /// Whether it was there. With whatever prefix it was: it is the address that answers.
    pub fn take_off(&self, address: IpNet) -> Result<bool, InterfaceError> {
        let mut prefixes = self.prefixes_of(address.addr())?;
        let was_there = !prefixes.is_empty();
        // Also when it is not there: who may not do this is to know it at the start.
        prefixes.push(address);
        for address in prefixes {
            self.take_off_one(address)?;
        }
        Ok(was_there)
    }

    /// From now on what is sent from the address leaves by this interface: to machines of its own network directly, to others by a gateway
    /// there. Everything else goes as before. Said twice it holds as well; and it has to be said again when the interface had lost its last
    /// address, because its routes go with that.
    pub fn lead(&self, address: IpNet, gateway: IpAddr) -> Result<(), InterfaceError> {
        let everywhere = match gateway {
            IpAddr::V4(_) => IpNet::from(Ipv4Net::default()),
            IpAddr::V6(_) => IpNet::from(Ipv6Net::default()),
        };
        let said = [
            netlink::route(SEQUENCE, self.index(), address, None, OWN_TABLE),
            netlink::route(SEQUENCE, self.index(), everywhere, Some(gateway), OWN_TABLE),
            netlink::rule(SEQUENCE, address.addr(), OWN_TABLE, RULE_PRIORITY),
        ];
        for message in said {
            self.ask(&message).map(drop).or_else(|source| match Errno::from_io_error(&source) {
                Some(Errno::EXIST) => Ok(()),
                Some(Errno::PERM | Errno::ACCESS) => Err(InterfaceError::NotAllowed),
                _ => Err(InterfaceError::Lead { address, gateway, name: self.name.clone(), source }),
            })?;
        }
        Ok(())
    }

    fn take_off_one(&self, address: IpNet) -> Result<(), InterfaceError> {
        let verdict = self.ask(&netlink::take_off(SEQUENCE, self.index(), address));
        verdict.map(drop).or_else(|source| match Errno::from_io_error(&source) {
            Some(Errno::ADDRNOTAVAIL) => Ok(()),
            Some(Errno::PERM | Errno::ACCESS) => Err(InterfaceError::NotAllowed),
            _ => Err(InterfaceError::TakeOff { address, name: self.name.clone(), source }),
        })
    }

    fn prefixes_of(&self, wanted: IpAddr) -> Result<Vec<IpNet>, InterfaceError> {
        let told = self.ask(&netlink::list(SEQUENCE, wanted));
        let told = told.map_err(|source| InterfaceError::Kernel { name: self.name.clone(), source })?;
        let ours = told.into_iter().filter_map(|content| match content {
            Content::Address { interface, address, prefix } if (interface, address) == (self.index(), wanted) => {
                IpNet::new(address, prefix).ok()
            }
            _ => None,
        });
        Ok(ours.collect())
    }

    /// What the kernel tells until it is done.
    fn ask(&self, request: &[u8]) -> std::io::Result<Vec<Content>> {
        let socket = kernel_socket()?;
        send(&socket, request, SendFlags::empty())?;
        let mut told = Vec::new();
        let mut buffer = vec![0; LARGEST_ANSWER];
        loop {
            let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
            let messages = netlink::read(&buffer[..length]).map_err(malformed)?;
            for message in messages.into_iter().filter(|message| message.sequence == SEQUENCE) {
                match message.content {
                    Content::End | Content::Verdict(0) => return Ok(told),
                    Content::Verdict(error) => return Err(std::io::Error::from_raw_os_error(error)),
                    content => told.push(content),
                }
            }
        }
    }

    fn index(&self) -> u32 {
        u32::try_from(self.link.ifindex()).expect("the kernel numbers interfaces with 31 bits")
    }
}

/// Nothing has to be said of where to: without a destination it is the kernel. For one question, so that no answer is another's.
fn kernel_socket() -> rustix::io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    Ok(socket)
}

fn malformed(error: Malformed) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, error)
}
