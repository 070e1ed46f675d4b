//! What the first bytes of a connection say.
//!
//! [`inspect`] tells a TLS ClientHello (and which name it asks for) from plain HTTP and from anything else;
//! [`proxy_protocol`] reads and writes the header that a load balancer puts before them, [`stream_header`] the one that the halves of a
//! tunnel use between each other.
//!
//! Every parser here is total and incremental in the simplest way: the caller keeps what has arrived and asks again, from the
//! start, when there is more. A state machine that remembers where it stopped was rejected: a whole hello takes less time to
//! parse than one system call, and a parser without memory can be compared byte by byte with another one. An answer other than
//! "incomplete" is final: no byte that follows changes it.
//!
//! Where the standards leave room, the stricter reading wins. A relay that reads another name out of a hello than the server
//! behind it does would let clients through to places where they have no business.

mod client_hello;
mod cursor;
mod http;
mod inspect;
mod name;
pub mod proxy_protocol;
mod record;
mod server_name;
pub mod stream_header;

pub use client_hello::{Alpn, ClientHello};
pub use http::{Sniffed, sniff};
pub use inspect::{HelloError, Inspected, inspect};
pub use name::{MAX_NAME, NameError, NormalName};
pub use record::MAX_HELLO;
pub use server_name::{ServerName, Sni};
