//! Where something on this machine listens, as the kernel lists it in /proc. Asking by a connection would be noticed: a server that
//! serves one connection and ends, as `nc -l` does, would have served us.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const LISTEN: &str = "0A";

/// All sockets that listen for TCP.
#[derive(Default)]
pub(super) struct Listening(HashSet<SocketAddr>);

impl Listening {
    pub(super) fn now() -> Self {
        let files = ["/proc/net/tcp", "/proc/net/tcp6"];
        // What cannot be read is not there: a kernel without IPv6 has no such file.
        let lines = files.into_iter().filter_map(|path| File::open(path).ok()).flat_map(listed);
        Self(lines.collect())
    }

    /// Whether a connection to this address is sure to meet a listener. One for all IPv6 addresses may or may not take IPv4, which
    /// is not listed: it is no answer for those.
    pub(super) fn has(&self, address: SocketAddr) -> bool {
        let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        self.0.contains(&address) || self.0.contains(&SocketAddr::new(any, address.port()))
    }
}

/// Listeners come first; behind them may stand a line for each of many connections.
fn listed(file: File) -> impl Iterator<Item = SocketAddr> {
    BufReader::new(file).lines().map_while(Result::ok).skip(1).map_while(|line| listener(&line))
}

fn listener(line: &str) -> Option<SocketAddr> {
    let mut words = line.split_whitespace().skip(1);
    let (local, _remote, state) = (words.next()?, words.next()?, words.next()?);
    let (ip, port) = local.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    (state == LISTEN).then_some(SocketAddr::new(address(ip)?, port))
}

/// Words of 32 bits, each as this machine reads a number from the bytes that go over the network.
fn address(digits: &str) -> Option<IpAddr> {
    let word = |from: usize| Some(u32::from_str_radix(digits.get(from..from + 8)?, 16).ok()?.to_ne_bytes());
    if digits.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let words = [word(0)?, word(8)?, word(16)?, word(24)?];
    let octets: [u8; 16] = words.concat().try_into().ok()?;
    Some(IpAddr::V6(Ipv6Addr::from(octets)).to_canonical())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_listener_is_seen_until_it_is_gone() {
        for ip in ["127.0.0.1", "0.0.0.0"] {
            let listener = TcpListener::bind((ip, 0)).unwrap();
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port()));
            assert!(Listening::now().has(address), "{ip}");
            drop(listener);
            assert!(!Listening::now().has(address), "{ip}");
        }
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn lines_are_read_as_the_kernel_writes_them() {
        let of =
            |local: &str, state: &str| listener(&format!("  0: {local} 00000000:0000 {state} 00000000:00000000 00"));
        assert_eq!(of("0100007F:1F90", LISTEN), Some("127.0.0.1:8080".parse().unwrap()));
        assert_eq!(of("0100007F:1F90", "01"), None, "that is a connection");
        assert_eq!(of("00000000000000000000000001000000:0050", LISTEN), Some("[::1]:80".parse().unwrap()));
        assert_eq!(of("0000000000000000FFFF00000100007F:0050", LISTEN), Some("127.0.0.1:80".parse().unwrap()));
        assert_eq!(of("00:0050", LISTEN), None);
        let any = Listening(HashSet::from(["[::]:80".parse().unwrap()]));
        assert!(any.has("[::1]:80".parse().unwrap()) && !any.has("127.0.0.1:80".parse().unwrap()));
    }
}
