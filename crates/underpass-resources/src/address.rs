//! Addresses as people write them: hosts, networks, resolvers, network cards. IPv4 and IPv6 alike.

use std::net::IpAddr;

use crate::text::text;

text! {
    /// One IPv4 or IPv6 address, without a prefix length.
    IpAddress, max 45,
    rule "isIP(self)",
    says "is not an IP address; write an IPv4 or IPv6 address without a prefix, for example 192.168.100.4 or fd00:100::4"
}

text! {
    /// One address, with or without the prefix length of its network: `192.168.100.4` or `192.168.100.4/24`.
    HostAddress, max 49,
    rule "isIP(self) || isCIDR(self)",
    says "is not an IP address; write an IPv4 or IPv6 address, with or without a prefix, for example 192.168.100.4 or 192.168.100.4/24"
}

text! {
    /// A network: an address and a prefix length.
    Cidr, max 49,
    rule "isCIDR(self)",
    says "is not a network; write an address and a prefix length, for example 192.168.100.0/24 or fd00:100::/64"
}

text! {
    /// A DNS resolver: an address, or an address and a port (`9.9.9.9`, `9.9.9.9:5353`, `[2620:fe::fe]:53`).
    ResolverAddress, max 53,
    rule "isIP(self) || (self.matches('^([0-9.]+|\\\\[[0-9a-fA-F:.]+\\\\]):([1-9][0-9]{0,4})$') && \
          isIP(self.substring(0, self.lastIndexOf(':')).replace('[', '').replace(']', '')) && \
          int(self.substring(self.lastIndexOf(':') + 1)) <= 65535)",
    says "is not a resolver; write an IP address, or address:port, for example 9.9.9.9 or [2620:fe::fe]:53"
}

text! {
    /// A host by address or by name.
    Host, max 253,
    rule "isIP(self) || (self.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$') && \
          !self.matches('^[0-9.]+$'))",
    says "is not a host; write an IP address or a lower-case host name, for example 127.0.0.1 or db.example.com"
}

text! {
    /// The hardware address of a network card, lower-case, with colons.
    MacAddress, max 17,
    rule "self.matches('^([0-9a-f]{2}:){5}[0-9a-f]{2}$')",
    says "is not a hardware address; write six pairs of lower-case hexadecimal digits with colons, for example 52:54:00:12:34:56"
}

impl IpAddress {
    pub fn address(&self) -> Option<IpAddr> {
        self.parse().ok()
    }
}

impl HostAddress {
    pub fn address(&self) -> Option<IpAddr> {
        let bare = self.split_once('/').map_or(&**self, |(address, _)| address);
        bare.parse().ok()
    }

    pub fn prefix_length(&self) -> Option<u8> {
        self.split_once('/')?.1.parse().ok()
    }
}

impl Cidr {
    /// The address as written and the prefix length.
    pub fn parts(&self) -> Option<(IpAddr, u8)> {
        let (address, prefix) = self.split_once('/')?;
        Some((address.parse().ok()?, prefix.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_address_gives_its_parts() {
        let with = HostAddress::from("192.168.100.4/24");
        assert_eq!(with.address(), Some("192.168.100.4".parse().unwrap()));
        assert_eq!(with.prefix_length(), Some(24));
        let without = HostAddress::from("fd00::4");
        assert_eq!(without.address(), Some("fd00::4".parse().unwrap()));
        assert_eq!(without.prefix_length(), None);
        assert_eq!(HostAddress::from("999.1.1.1").address(), None);
    }

    #[test]
    fn a_network_gives_its_parts() {
        assert_eq!(Cidr::from("10.0.0.0/8").parts(), Some(("10.0.0.0".parse().unwrap(), 8)));
        assert_eq!(Cidr::from("10.0.0.0").parts(), None);
    }
}
