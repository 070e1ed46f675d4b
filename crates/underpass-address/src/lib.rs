//! An address that one of several machines has, and how it never has two.
//!
//! Who may have it is decided by a lease, elsewhere. Here is what keeps an interface from having the address for longer than the lease
//! lasts, whatever becomes of the process: see [`lifetime`]. Before anybody takes the address, the network is asked whether it is in
//! use ([`ask`]); afterwards everybody is told who has it ([`announce`]).
//!
//! Bytes are made and read by pure functions: [`netlink`] for the kernel, [`arp`] (IPv4) and [`discovery`] (IPv6) for the network.

pub mod arp;
pub mod discovery;
pub mod interface;
pub mod lifetime;
mod mac;
pub mod netlink;
pub mod wire;

pub use interface::{Interface, InterfaceError};
pub use lifetime::{ASKING, EXTEND_UNTIL, GRACE, Held, RENEW_AFTER, STOP_AFTER, Stay, TERM};
pub use mac::Mac;
pub use wire::{Wire, WireError, announce, ask};
