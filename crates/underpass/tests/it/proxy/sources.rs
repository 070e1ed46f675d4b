//! Who may connect: by where a client comes from, or by what a header says of that, alike on both data planes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use serde_json::json;
use underpass_testbed::{PATIENCE, wait_until};

use super::plane::{Carrier, Plane};
use super::{Backend, Site, hello};

const ONE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 11);
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 12);
const GUARDED: &str = "some.example.com";
const OPEN: &str = "all.example.com";

/// Who answers a client that comes from there and says this first; None: nobody.
fn answer_to(from: Ipv4Addr, door: SocketAddr, said: &[u8]) -> Option<String> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &SocketAddr::from((from, 0))).unwrap();
    connect(&socket, &door).ok()?;
    let mut client = TcpStream::from(socket);
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(said).ok()?;
    let mut answer = [0; 64];
    let count = client.read(&mut answer).ok().filter(|count| *count > 0)?;
    // A TLS alert is no answer.
    (answer[0] != 21).then(|| String::from_utf8_lossy(&answer[..count]).into_owned())
}

/// Who says where a client comes from.
#[derive(Clone, Copy, PartialEq)]
enum By {
    Address,
    /// Of a load balancer, whose own address would decide the other way.
    Header,
}

/// Who answers a client that comes from there.
fn answer(by: By, from: Ipv4Addr, door: SocketAddr, name: &str) -> Option<String> {
    if by == By::Address {
        return answer_to(from, door, &hello(name));
    }
    let header = format!("PROXY TCP4 {from} {} 4711 443\r\n", door.ip());
    let balancer = if from == ONE { OTHER } else { ONE };
    answer_to(balancer, door, &[header.as_bytes(), &hello(name)].concat())
}

/// Whether everybody from one address is answered, and nobody from the other. There are many, for more than one worker.
fn only_one_is_answered(by: By, [one, other]: [Ipv4Addr; 2], door: SocketAddr) -> bool {
    let answer = |from| answer(by, from, door, GUARDED);
    (0..20).all(|_| answer(one).as_deref() == Some("some") && answer(other).is_none())
}

fn allowed_sources_alone_connect(plane: Plane, by: By) {
    let (some, all) = (Backend::start("some"), Backend::start("all"));
    let accept = json!({ "accept": by == By::Header });
    let sources = json!(["127.0.0.11/32", "192.0.2.0/24", "2001:db8::/32"]);
    let mut site = Site::new();
    site.add("some", GUARDED, &some, &json!({ "proxyProtocol": accept, "sourceCIDRs": sources }));
    site.add("all", OPEN, &all, &json!({ "proxyProtocol": accept }));
    site.write();
    let mut carrier = Carrier::start(plane, &site);
    let door = site.door();
    wait_until("an answer", PATIENCE, || answer(by, ONE, door, GUARDED));
    assert!(only_one_is_answered(by, [ONE, OTHER], door), "{plane:?}");
    assert_eq!(answer(by, OTHER, door, OPEN).as_deref(), Some("all"), "{plane:?}: whom one refuses the next may take");
    site.change("some", &json!({ "sourceCIDRs": ["127.0.0.12/31"] }));
    site.write();
    wait_until("the other one's turn", PATIENCE, || only_one_is_answered(by, [OTHER, ONE], door).then_some(()));
    let said = carrier.reader().stderr();
    assert!(!said.contains("invalid configuration"), "{said}");
}

#[test]
fn an_envoy_lets_allowed_sources_alone_connect() {
    allowed_sources_alone_connect(Plane::Envoy, By::Address);
}

#[test]
fn an_envoy_lets_allowed_sources_alone_connect_by_what_a_header_says() {
    allowed_sources_alone_connect(Plane::Envoy, By::Header);
}

#[test]
fn our_own_data_plane_lets_allowed_sources_alone_connect() {
    allowed_sources_alone_connect(Plane::Native, By::Address);
}

#[test]
fn our_own_data_plane_lets_allowed_sources_alone_connect_by_what_a_header_says() {
    allowed_sources_alone_connect(Plane::Native, By::Header);
}
