//! What a connection says first, and what is made of it.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use underpass_relay::{End, Settings};
use underpass_tables::{Limits, ProxyHeader, Route, RouteId, Rule, Unnamed};

use crate::rig::{Rig, accept, echo_server, hello, listener, plain_table, read_exactly, read_to_end, route, table};

const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

#[test]
fn a_hello_may_come_byte_by_byte() {
    let rig = Rig::start(table(vec![route("a", &[echo_server()])]));
    let mut client = rig.connect();
    client.set_nodelay(true).unwrap();
    let sent = hello("a.example.com");
    for byte in &sent {
        client.write_all(&[*byte]).unwrap();
    }
    assert_eq!(read_exactly(&mut client, sent.len()), sent);
}

#[test]
fn names_are_compared_without_case_and_an_unknown_one_is_told_so() {
    let rig = Rig::start(table(vec![route("a", &[echo_server()])]));
    let mut client = rig.ask("A.Example.COM");
    read_exactly(&mut client, hello("A.Example.COM").len());
    let mut client = rig.ask("b.example.com");
    assert_eq!(read_to_end(&mut client), UNRECOGNIZED_NAME);
    drop(client);
    rig.wait_for(End::UnknownName, 1);
}

#[test]
fn without_a_name_only_the_default_is_used() {
    let mut with_default = table(vec![route("a", &[echo_server()])]);
    let no_name = {
        let mut bytes = hello("");
        // The extension block is cut off: a hello without extensions.
        let end = bytes.len() - (2 + 4 + 2 + 3);
        bytes.truncate(end);
        let record = u16::try_from(bytes.len() - 5).unwrap().to_be_bytes();
        let message = u16::try_from(bytes.len() - 9).unwrap().to_be_bytes();
        bytes[3..5].copy_from_slice(&record);
        bytes[7..9].copy_from_slice(&message);
        bytes
    };
    let rig = Rig::start(with_default.clone());
    let mut client = rig.connect();
    client.write_all(&no_name).unwrap();
    assert_eq!(read_to_end(&mut client), UNRECOGNIZED_NAME);
    drop(client);
    rig.wait_for(End::NoName, 1);

    with_default.listeners[0].rules.unnamed = Some(Unnamed { route: RouteId(0), rule: Rule::Default });
    let rig = Rig::start(with_default);
    let mut client = rig.connect();
    client.write_all(&no_name).unwrap();
    assert_eq!(read_exactly(&mut client, no_name.len()), no_name);
}

#[test]
fn plain_http_is_answered_and_other_bytes_are_refused() {
    let rig = Rig::start(table(vec![route("a", &[echo_server()])]));
    let mut client = rig.connect();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a.example.com\r\n\r\n").unwrap();
    let answer = String::from_utf8(read_to_end(&mut client)).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
    drop(client);
    rig.wait_for(End::PlainHttp, 1);
    let mut client = rig.connect();
    client.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").unwrap();
    let _ = client.read(&mut [0]);
    rig.wait_for(End::NotTls, 1);
}

#[test]
fn a_plain_port_lets_the_server_speak_first() {
    let (server, address) = listener();
    let rig = Rig::start(plain_table(address));
    let mut client = rig.connect();
    let mut upstream = accept(&server);
    upstream.write_all(b"220 ready\r\n").unwrap();
    assert_eq!(read_exactly(&mut client, 11), b"220 ready\r\n");
}

#[test]
fn a_plain_port_carries_what_looks_like_the_beginning_of_something_else() {
    let rig = Rig::start(plain_table(echo_server()));
    // Methods in part and whole, and what may become a hello of TLS or SSLv2: none of them is followed by anything.
    for beginning in [
        &b"D"[..],
        b"P",
        b"GET",
        b"DELETE",
        b"OPTIONS ",
        b"PRI",
        b"\x16",
        b"\x80",
        b"\x80\x2e\x01",
        b"\x80\x2e\x01\x03",
    ] {
        let mut client = rig.connect();
        client.write_all(beginning).unwrap();
        assert_eq!(read_exactly(&mut client, beginning.len()), beginning);
        client.write_all(b"ATA").unwrap();
        assert_eq!(read_exactly(&mut client, 3), b"ATA");
    }
}

#[test]
fn a_slow_hello_on_a_plain_port_is_still_a_hello() {
    let rig = Rig::start(plain_table(echo_server()));
    let hello = hello("unknown.example.com");
    let mut client = rig.connect();
    client.write_all(&hello[..2]).unwrap();
    // Longer than a client that may want the server to speak first is waited for; nothing can be seen from outside meanwhile.
    std::thread::sleep(Duration::from_millis(400));
    client.write_all(&hello[2..]).unwrap();
    rig.wait_for(End::UnknownName, 1);
}

#[test]
fn a_plain_port_carries_a_few_bytes_and_an_end() {
    let (server, address) = listener();
    let rig = Rig::start(plain_table(address));
    let mut client = rig.connect();
    client.write_all(b"GE").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_to_end(&mut accept(&server)), b"GE");
}

#[test]
fn a_proxy_header_tells_the_source_and_is_not_passed_on() {
    let (server, address) = listener();
    let mut wanted = route("a", &[address]);
    wanted.sources = vec!["192.0.2.0/24".parse().unwrap()];
    wanted.proxy_header = Some(ProxyHeader::V1);
    let mut with_header = table(vec![wanted]);
    with_header.listeners[0].proxy_header = true;
    let rig = Rig::start(with_header);
    let mut client = rig.connect();
    client.write_all(b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\n").unwrap();
    client.write_all(&hello("a.example.com")).unwrap();
    let expected = [b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\n", &*hello("a.example.com")].concat();
    assert_eq!(read_exactly(&mut accept(&server), expected.len()), expected);

    let mut stranger = rig.connect();
    stranger.write_all(b"PROXY TCP4 203.0.113.1 198.51.100.1 4711 443\r\n").unwrap();
    stranger.write_all(&hello("a.example.com")).unwrap();
    rig.wait_for(End::SourceNotAllowed, 1);
    let mut naked = rig.ask("a.example.com");
    let _ = naked.read(&mut [0]);
    rig.wait_for(End::InvalidProxyHeader, 1);
}

/// What comes through a load balancer is for a server like any other, which may be the one who speaks first.
#[test]
fn behind_a_header_silence_and_an_end_are_carried_as_they_are_without_one() {
    let (server, address) = listener();
    let mut plain = plain_table(address);
    let wanted = Route { sources: vec!["192.0.2.0/24".parse().unwrap()], ..plain.routes[0].as_ref().clone() };
    plain.routes = vec![wanted.into()];
    plain.listeners[0].proxy_header = true;
    let rig = Rig::start(plain);
    let header = b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 25\r\n";

    let mut silent = rig.connect();
    let (half, rest) = header.split_at(20);
    silent.write_all(half).unwrap();
    silent.write_all(rest).unwrap();
    let mut upstream = accept(&server);
    upstream.write_all(b"220 ready\r\n").unwrap();
    assert_eq!(read_exactly(&mut silent, 11), b"220 ready\r\n");
    silent.write_all(b"EHLO").unwrap();
    assert_eq!(read_exactly(&mut upstream, 4), b"EHLO", "without the header");

    let mut short = rig.connect();
    short.write_all(&[&header[..], b"\x16"].concat()).unwrap();
    short.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_to_end(&mut accept(&server)), b"\x16");

    for (number, left) in [half, b"PROXY UNKNOWN\r\n", b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"].into_iter().enumerate() {
        let mut ended = rig.connect();
        ended.write_all(left).unwrap();
        ended.shutdown(Shutdown::Write).unwrap();
        rig.wait_for(End::ClientLeft, number as u64 + 1);
    }
}

/// TLVs are another proxy's words about itself and about a connection that ended there; who wants them has to ask it.
#[test]
fn of_a_header_with_tlvs_the_addresses_are_sent_on() {
    let (server, address) = listener();
    let wanted = Route { proxy_header: Some(ProxyHeader::V2), ..route("a", &[address]) };
    let mut with_header = table(vec![wanted]);
    with_header.listeners[0].proxy_header = true;
    let rig = Rig::start(with_header);
    let header = |tlvs: &[u8]| {
        let addresses = [192, 0, 2, 7, 198, 51, 100, 1, 0x12, 0x67, 0x01, 0xbb];
        let length = u16::try_from(addresses.len() + tlvs.len()).unwrap().to_be_bytes();
        [b"\r\n\r\n\0\r\nQUIT\n\x21\x11", &length[..], &addresses, tlvs].concat()
    };
    let mut client = rig.connect();
    client.write_all(&header(b"\xea\0\x04\x01vpc")).unwrap();
    client.write_all(&hello("a.example.com")).unwrap();
    let expected = [header(b""), hello("a.example.com")].concat();
    assert_eq!(read_exactly(&mut accept(&server), expected.len()), expected);
}

#[test]
fn limits_refuse_what_is_too_much() {
    let mut narrow = table(vec![route("a", &[echo_server()])]);
    narrow.limits.half_open = Some(2);
    let rig = Rig::start(narrow.clone());
    let _held: Vec<_> = (0..2).map(|_| rig.connect()).collect();
    let mut third = rig.connect();
    let _ = third.read(&mut [0]);
    rig.wait_for(End::TooManyHalfOpen, 1);

    narrow.limits.half_open = None;
    narrow.limits.per_second_per_source = Some(1);
    let rig = Rig::start(narrow);
    let streams: Vec<_> = (0..8).map(|_| rig.ask("a.example.com")).collect();
    let answered = |mut stream: std::net::TcpStream| matches!(stream.read(&mut [0; 8]), Ok(1..));
    let served = streams.into_iter().map(answered).filter(|answered| *answered).count();
    assert!((1..8).contains(&served), "{served} of eight connections at once, of which one per second is allowed");
}

/// Whoever has the relay looks from the same machine whether it works.
#[test]
fn its_owner_is_beyond_all_limits_and_takes_nobodys_place() {
    for proxy_header in [false, true] {
        let mut narrow = table(vec![route("a", &[echo_server()])]);
        narrow.limits = Limits { connections: Some(1), half_open: Some(1), per_second_per_source: Some(1) };
        narrow.listeners[0].proxy_header = proxy_header;
        let rig = Rig::start_with(Settings { workers: 2, spares_own: true, ..Settings::default() }, narrow);
        let _silent: Vec<_> = (0..4).map(|_| rig.connect()).collect();
        for mut stream in (0..8).map(|_| rig.connect()).collect::<Vec<_>>() {
            if proxy_header {
                stream.write_all(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0").unwrap();
            }
            stream.write_all(&hello("a.example.com")).unwrap();
            read_exactly(&mut stream, hello("a.example.com").len());
        }
        assert_eq!(rig.relay.connections(), 0);
    }
}

#[test]
fn behind_a_load_balancer_each_client_has_a_rate_of_its_own() {
    let mut narrow = table(vec![route("a", &[echo_server()])]);
    narrow.limits.per_second_per_source = Some(1);
    narrow.listeners[0].proxy_header = true;
    let rig = Rig::start(narrow);
    let ask = |client: u8| {
        let mut stream = rig.connect();
        stream.write_all(format!("PROXY TCP4 192.0.2.{client} 198.51.100.1 4711 443\r\n").as_bytes()).unwrap();
        stream.write_all(&hello("a.example.com")).unwrap();
        stream
    };
    for mut stream in (1..8).map(ask).collect::<Vec<_>>() {
        read_exactly(&mut stream, hello("a.example.com").len());
    }
    let answered = |mut stream: std::net::TcpStream| matches!(stream.read(&mut [0; 8]), Ok(1..));
    let served = (0..8).map(|_| ask(99)).collect::<Vec<_>>().into_iter().map(answered).filter(|answered| *answered);
    assert!((1..8).contains(&served.count()), "eight of one client, of which one per second is allowed");
}

#[test]
fn an_ipv4_client_of_an_ipv6_listener_is_told_as_such() {
    let (server, address) = listener();
    let mut both = table(vec![Route { proxy_header: Some(ProxyHeader::V1), ..route("a", &[address]) }]);
    both.listeners[0].address = "[::]:0".parse().unwrap();
    let mut rig = Rig::start(both);
    rig.address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    let client = rig.ask("a.example.com");
    let (own, door) = (client.local_addr().unwrap().port(), rig.address.port());
    let expected = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {own} {door}\r\n").into_bytes();
    assert_eq!(read_exactly(&mut accept(&server), expected.len()), expected);
}
