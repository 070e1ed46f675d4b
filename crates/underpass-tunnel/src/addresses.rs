//! The addresses of this machine or container, as its kernel lists them in /proc: an image with nothing but our program has no other
//! tool, and asking by netlink needs more words for the same answer.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Which addresses others can use: no loopback, and no link-local ones, which mean something else on every link.
pub(crate) fn reachable() -> Vec<IpAddr> {
    // What cannot be read is not there: a kernel without IPv6 has no such file.
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let (ipv4, ipv6) = (ipv4(&read("/proc/net/fib_trie")), ipv6(&read("/proc/net/if_inet6")));
    ipv4.into_iter().map(IpAddr::from).chain(ipv6.into_iter().map(IpAddr::from)).collect()
}

/// Leaves of the trie stand on a line of their own; what follows says what they are.
fn ipv4(trie: &str) -> BTreeSet<Ipv4Addr> {
    let mut leaf = None;
    let mut found = BTreeSet::new();
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse().ok();
        } else if line == "/32 host LOCAL" {
            found.extend(leaf.filter(|address: &Ipv4Addr| !address.is_loopback() && !address.is_link_local()));
        }
    }
    found
}

fn ipv6(table: &str) -> BTreeSet<Ipv6Addr> {
    let first = table.lines().filter_map(|line| line.split_whitespace().next());
    let addresses = first.filter_map(|digits| u128::from_str_radix(digits, 16).ok()).map(Ipv6Addr::from);
    addresses.filter(|address| !address.is_loopback() && !address.is_unicast_link_local()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIE: &str = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 172.18.0.0/16 2 0 2
        |-- 172.18.0.0
           /16 link UNICAST
        |-- 172.18.0.2
           /32 host LOCAL
        |-- 172.18.255.255
           /32 link BROADCAST
Local:
  +-- 0.0.0.0/0 3 0 5
     |-- 127.0.0.0
        /8 host LOCAL
     |-- 127.0.0.1
        /32 host LOCAL
     |-- 172.18.0.2
        /32 host LOCAL
     |-- 10.0.0.7
        /32 host LOCAL
";

    #[test]
    fn addresses_are_read_as_the_kernel_writes_them() {
        assert_eq!(
            ipv4(TRIE).into_iter().collect::<Vec<_>>(),
            [Ipv4Addr::new(10, 0, 0, 7), Ipv4Addr::new(172, 18, 0, 2)]
        );
        let table = "\
00000000000000000000000000000001 01 80 10 80       lo
fe800000000000000042acfffe120002 02 40 20 80     eth0
fd000000000000000000000000000002 02 40 00 80     eth0
";
        assert_eq!(ipv6(table).into_iter().collect::<Vec<_>>(), ["fd00::2".parse::<Ipv6Addr>().unwrap()]);
    }

    #[test]
    fn rubbish_has_no_addresses() {
        assert!(ipv4("|-- x\n/32 host LOCAL\n/32 host LOCAL").is_empty());
        assert!(ipv6("\n zz\n").is_empty());
    }
}
