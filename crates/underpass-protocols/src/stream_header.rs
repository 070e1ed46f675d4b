//! What the client half of a tunnel writes at the beginning of a stream: which tunnel it belongs to, its number, and who connected.
//!
//! ```text
//! 0 version (1)   1 family (4 or 6)   2-3 port   4-7 tunnel   8-15 stream   16-31 address, IPv4 in the first four bytes
//! ```
//!
//! All numbers are big-endian. The length is fixed, so that it is read in one go and nothing has to be looked for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub const LENGTH: usize = 32;

const VERSION: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamHeader {
    pub tunnel: u32,
    pub stream: u64,
    /// Who connected to the tunnel.
    pub source: SocketAddr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamHeaderError {
    #[error("version {0} of the stream header is not known")]
    Version(u8),
    #[error("{0} is no address family")]
    Family(u8),
    #[error("an IPv4 address is followed by something")]
    Padding,
}

impl StreamHeader {
    pub fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[0] = VERSION;
        bytes[2..4].copy_from_slice(&self.source.port().to_be_bytes());
        bytes[4..8].copy_from_slice(&self.tunnel.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.stream.to_be_bytes());
        match self.source.ip() {
            IpAddr::V4(address) => {
                bytes[1] = 4;
                bytes[16..20].copy_from_slice(&address.octets());
            }
            IpAddr::V6(address) => {
                bytes[1] = 6;
                bytes[16..].copy_from_slice(&address.octets());
            }
        }
        bytes
    }

    pub fn decode(bytes: &[u8; LENGTH]) -> Result<Self, StreamHeaderError> {
        let [VERSION, family, p0, p1, t0, t1, t2, t3, stream @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] =
            *bytes
        else {
            return Err(StreamHeaderError::Version(bytes[0]));
        };
        let mut address = [0; 16];
        address.copy_from_slice(&bytes[16..]);
        let [a, b, c, d, padding @ ..] = address;
        let address = match family {
            4 if padding == [0; 12] => IpAddr::from(Ipv4Addr::new(a, b, c, d)),
            4 => return Err(StreamHeaderError::Padding),
            6 => IpAddr::from(Ipv6Addr::from(address)),
            other => return Err(StreamHeaderError::Family(other)),
        };
        Ok(Self {
            tunnel: u32::from_be_bytes([t0, t1, t2, t3]),
            stream: u64::from_be_bytes(stream),
            source: SocketAddr::new(address, u16::from_be_bytes([p0, p1])),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_written_is_read(tunnel: u32, stream: u64, ip: IpAddr, port: u16) {
            let header = StreamHeader { tunnel, stream, source: SocketAddr::new(ip, port) };
            prop_assert_eq!(StreamHeader::decode(&header.encode()), Ok(header));
        }
    }
}
