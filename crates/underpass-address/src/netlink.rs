//! What is said to the kernel about addresses and where they answer, and what it says: messages of rtnetlink, as far as an address needs them.
//!
//! Numbers are in the byte order of the machine. A crate for all of rtnetlink was rejected: these are five messages.

use std::net::IpAddr;

use ipnet::IpNet;

const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const GET_ADDRESS: u16 = 22;
const NEW_ROUTE: u16 = 24;
const NEW_RULE: u16 = 32;

const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const REPLACE: u16 = 0x100;
const EXCLUDE: u16 = 0x200;
const CREATE: u16 = 0x400;
const DUMP: u16 = 0x300;

const FAMILY_V4: u8 = 2;
const FAMILY_V6: u8 = 10;

/// Attributes of an address.
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const CACHE_INFO: u16 = 6;
/// Of a route.
const DESTINATION: u16 = 1;
const INTERFACE: u16 = 4;
const GATEWAY: u16 = 5;
/// Of a rule.
const SOURCE: u16 = 2;
const PRIORITY: u16 = 6;

/// No duplicate address detection by the kernel, which would keep the address silent for a second or more: we have asked ourselves.
const NO_DETECTION: u8 = 0x02;

/// A rule that names a table; routes to a machine, of which it is known by whom they were made, and how far away it is.
const TO_TABLE: u8 = 1;
const UNICAST: u8 = 1;
const BY_ADMINISTRATOR: u8 = 4;
const ANYWHERE: u8 = 0;
const ON_THE_LINK: u8 = 253;
/// The gateway is on the link, whatever addresses the interface has now.
const IS_NEAR: u32 = 4;

const HEADER: usize = 16;
/// Family, prefix length, flags, scope and index of the interface.
const ADDRESS_HEADER: usize = 8;
const ATTRIBUTE_HEADER: usize = 4;

/// A message of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Of the request that it answers.
    pub sequence: u32,
    pub content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// One of several; more will come, until `End`.
    Address {
        interface: u32,
        address: IpAddr,
        prefix: u8,
    },
    /// A request was carried out (0) or not (the error's number).
    Verdict(i32),
    End,
    /// Something that we have not asked for.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the kernel's answer is malformed at byte {0}")]
pub struct Malformed(pub usize);

/// Puts an address onto an interface for a number of seconds, from when the kernel reads it; or lets it stay for that long.
pub fn put(sequence: u32, interface: u32, address: IpNet, seconds: u32) -> Vec<u8> {
    let mut lifetime = Vec::with_capacity(16);
    for number in [seconds, seconds, 0, 0] {
        lifetime.extend(number.to_ne_bytes());
    }
    let flags = if address.addr().is_ipv6() { NO_DETECTION } else { 0 };
    let mut body = address_header(address.addr(), address.prefix_len(), flags, interface);
    for kind in [LOCAL, ADDRESS] {
        body.extend(attribute(kind, &octets(address.addr())));
    }
    body.extend(attribute(CACHE_INFO, &lifetime));
    message(NEW_ADDRESS, REQUEST | ACKNOWLEDGE | CREATE | REPLACE, sequence, &body)
}

/// Takes an address with this prefix off an interface.
pub fn take_off(sequence: u32, interface: u32, address: IpNet) -> Vec<u8> {
    let mut body = address_header(address.addr(), address.prefix_len(), 0, interface);
    for kind in [LOCAL, ADDRESS] {
        body.extend(attribute(kind, &octets(address.addr())));
    }
    message(DELETE_ADDRESS, REQUEST | ACKNOWLEDGE, sequence, &body)
}

/// Asks for all addresses of the family of this one, on all interfaces.
pub fn list(sequence: u32, like: IpAddr) -> Vec<u8> {
    message(GET_ADDRESS, REQUEST | DUMP, sequence, &address_header(like, 0, 0, 0))
}

/// What is sent from this address goes by a table of its own. Said twice, it is an error that it is there already.
pub fn rule(sequence: u32, from: IpAddr, table: u8, priority: u32) -> Vec<u8> {
    let octets = octets(from);
    let length = u8::try_from(octets.len() * 8).expect("an address has 128 bits at most");
    let mut body = vec![family(from), 0, length, 0, table, 0, 0, TO_TABLE, 0, 0, 0, 0];
    body.extend(attribute(SOURCE, &octets));
    body.extend(attribute(PRIORITY, &priority.to_ne_bytes()));
    message(NEW_RULE, REQUEST | ACKNOWLEDGE | CREATE | EXCLUDE, sequence, &body)
}

/// In this table, a network is behind the interface: itself, or behind a gateway there.
pub fn route(sequence: u32, interface: u32, to: IpNet, gateway: Option<IpAddr>, table: u8) -> Vec<u8> {
    let scope = if gateway.is_some() { ANYWHERE } else { ON_THE_LINK };
    let mut body = vec![family(to.addr()), to.prefix_len(), 0, 0, table, BY_ADMINISTRATOR, scope, UNICAST];
    body.extend(if gateway.is_some() { IS_NEAR } else { 0 }.to_ne_bytes());
    body.extend(attribute(DESTINATION, &octets(to.network())));
    body.extend(attribute(INTERFACE, &interface.to_ne_bytes()));
    if let Some(gateway) = gateway {
        body.extend(attribute(GATEWAY, &octets(gateway)));
    }
    message(NEW_ROUTE, REQUEST | ACKNOWLEDGE | CREATE | REPLACE, sequence, &body)
}

/// All messages in what the kernel has sent at once.
pub fn read(bytes: &[u8]) -> Result<Vec<Message>, Malformed> {
    let (mut messages, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let rest = &bytes[at..];
        let length = number(rest, 0).and_then(|length| usize::try_from(length).ok()).ok_or(Malformed(at))?;
        let whole = rest.get(..length).filter(|whole| whole.len() >= HEADER).ok_or(Malformed(at))?;
        messages.push(one(whole).ok_or(Malformed(at))?);
        at = at.saturating_add(padded(length));
    }
    Ok(messages)
}

fn one(whole: &[u8]) -> Option<Message> {
    let (kind, sequence, body) = (half(whole, 4)?, number(whole, 8)?, whole.get(HEADER..)?);
    let content = match kind {
        ERROR => Content::Verdict(number(body, 0)?.cast_signed().checked_neg()?),
        DONE => Content::End,
        NEW_ADDRESS => read_address(body)?,
        _ => Content::Other,
    };
    Some(Message { sequence, content })
}

/// The address is the local one where there is one: of a point-to-point link the other is the peer's.
fn read_address(body: &[u8]) -> Option<Content> {
    let (head, mut rest) = body.split_at_checked(ADDRESS_HEADER)?;
    let (mut local, mut address) = (None, None);
    while let Some(length) = half(rest, 0) {
        let length = usize::from(length);
        let value = rest.get(ATTRIBUTE_HEADER..length)?;
        match half(rest, 2)? {
            LOCAL => local = ip(head[0], value),
            ADDRESS => address = ip(head[0], value),
            _ => {}
        }
        rest = rest.get(padded(length)..).unwrap_or_default();
    }
    let Some(address) = local.or(address) else { return Some(Content::Other) };
    Some(Content::Address { interface: number(head, 4)?, address, prefix: head[1] })
}

fn ip(family: u8, value: &[u8]) -> Option<IpAddr> {
    match family {
        FAMILY_V4 => Some(IpAddr::from(<[u8; 4]>::try_from(value).ok()?)),
        FAMILY_V6 => Some(IpAddr::from(<[u8; 16]>::try_from(value).ok()?)),
        _ => None,
    }
}

fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + body.len()).expect("a message of ours is a few dozen bytes long");
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend([0; 4]);
    message.extend(body);
    message
}

fn address_header(of: IpAddr, prefix: u8, flags: u8, interface: u32) -> Vec<u8> {
    let mut header = vec![family(of), prefix, flags, 0];
    header.extend(interface.to_ne_bytes());
    header
}

fn family(of: IpAddr) -> u8 {
    if of.is_ipv4() { FAMILY_V4 } else { FAMILY_V6 }
}

/// Values here are whole words, so that nothing has to be padded.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).expect("an attribute of ours is a few bytes long");
    let mut attribute = length.to_ne_bytes().to_vec();
    attribute.extend(kind.to_ne_bytes());
    attribute.extend(value);
    attribute
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn padded(length: usize) -> usize {
    length.saturating_add(3) & !3
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    /// Put together by hand from linux/netlink.h and linux/if_addr.h.
    #[test]
    #[cfg(target_endian = "little")]
    fn requests_are_byte_for_byte_what_the_kernel_reads() {
        #[rustfmt::skip]
        let wanted = [
            60, 0, 0, 0, 20, 0, 5, 5, 7, 0, 0, 0, 0, 0, 0, 0,
            2, 24, 0, 0, 3, 0, 0, 0,
            8, 0, 2, 0, 192, 168, 100, 4,
            8, 0, 1, 0, 192, 168, 100, 4,
            20, 0, 6, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(put(7, 3, net("192.168.100.4/24"), 1), wanted);
        assert_eq!(
            list(7, net("fd00::4/64").addr()),
            [24, 0, 0, 0, 22, 0, 1, 3, 7, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0]
        );
        let six = put(7, 3, net("fd00::4/64"), 1);
        assert_eq!(
            (six.len(), &six[16..24]),
            (84, &[10, 64, 2, 0, 3, 0, 0, 0][..]),
            "without the kernel's own detection"
        );
        assert_eq!(take_off(7, 3, net("192.168.100.4/24"))[..8], [40, 0, 0, 0, 21, 0, 5, 0]);
    }

    /// The same from linux/fib_rules.h and linux/rtnetlink.h.
    #[test]
    #[cfg(target_endian = "little")]
    fn rules_and_routes_are_byte_for_byte_what_the_kernel_reads() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        #[rustfmt::skip]
        let wanted = [
            44, 0, 0, 0, 32, 0, 5, 6, 7, 0, 0, 0, 0, 0, 0, 0,
            2, 0, 32, 0, 100, 0, 0, 1, 0, 0, 0, 0,
            8, 0, 2, 0, 192, 168, 100, 4,
            8, 0, 6, 0, 99, 0, 0, 0,
        ];
        assert_eq!(rule(7, address("192.168.100.4"), 100, 99), wanted);
        #[rustfmt::skip]
        let wanted = [
            52, 0, 0, 0, 24, 0, 5, 5, 7, 0, 0, 0, 0, 0, 0, 0,
            2, 0, 0, 0, 100, 4, 0, 1, 4, 0, 0, 0,
            8, 0, 1, 0, 0, 0, 0, 0,
            8, 0, 4, 0, 3, 0, 0, 0,
            8, 0, 5, 0, 192, 168, 100, 1,
        ];
        assert_eq!(route(7, 3, net("0.0.0.0/0"), Some(address("192.168.100.1")), 100), wanted);
        let near = route(7, 3, net("fd00::4/64"), None, 100);
        assert_eq!((near.len(), &near[16..28]), (56, &[10, 64, 0, 0, 100, 4, 253, 1, 0, 0, 0, 0][..]));
        assert_eq!(near[32..48], net("fd00::/64").addr().to_string().parse::<std::net::Ipv6Addr>().unwrap().octets());
    }

    /// What we write for an address is what the kernel tells of one.
    fn told(sequence: u32, interface: u32, address: IpNet) -> Vec<u8> {
        put(sequence, interface, address, 1)
    }

    #[test]
    fn answers_are_read_one_by_one() {
        let mut bytes = told(1, 3, net("192.168.100.4/24"));
        bytes.extend(message(ERROR, 0, 2, &(-99i32).to_ne_bytes()));
        bytes.extend(message(DONE, 0, 3, &[0; 4]));
        bytes.extend(message(16, 0, 4, &[]));
        let contents: Vec<_> = read(&bytes).unwrap().into_iter().map(|it| (it.sequence, it.content)).collect();
        let address = Content::Address { interface: 3, address: net("192.168.100.4/24").addr(), prefix: 24 };
        assert_eq!(contents, [(1, address), (2, Content::Verdict(99)), (3, Content::End), (4, Content::Other)]);
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        assert_eq!(read(&[16, 0, 0]), Err(Malformed(0)));
        let mut bytes = message(DONE, 0, 1, &[]);
        bytes.extend(8u32.to_ne_bytes());
        bytes.extend([0; 12]);
        assert_eq!(read(&bytes), Err(Malformed(16)), "shorter than a header");
        let mut bytes = told(1, 3, net("fd00::4/64"));
        bytes[24] = 2;
        assert_eq!(read(&bytes), Err(Malformed(0)), "an attribute shorter than its own header");
        let mut bytes = told(1, 3, net("fd00::4/64"));
        bytes[25] = 1;
        assert_eq!(read(&bytes), Err(Malformed(0)), "an attribute longer than the message");
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
            let _ = read(&message(NEW_ADDRESS, 0, 1, &bytes));
            let _ = read(&message(ERROR, 0, 1, &bytes));
        }

        #[test]
        fn an_address_is_read_as_it_was_written(sequence: u32, interface: u32, address: IpAddr, prefix in 0u8..=32) {
            let net = IpNet::new(address, prefix).unwrap();
            let content = Content::Address { interface, address, prefix };
            prop_assert_eq!(read(&told(sequence, interface, net)), Ok(vec![Message { sequence, content }]));
        }
    }
}
