//! Tables swapped while connections run.

use std::io::Write;
use std::time::Duration;

use underpass_relay::{End, RelayError};
use underpass_tables::Route;

use crate::rig::{Rig, echo_server, hello, listener, read_exactly, read_to_end, route, table};

#[test]
fn a_new_table_is_obeyed_and_running_connections_go_on() {
    let first = table(vec![route("a", &[echo_server()])]);
    let rig = Rig::start(first);
    let mut old = rig.ask("a.example.com");
    read_exactly(&mut old, hello("a.example.com").len());

    let mut second = table(vec![route("a", &[echo_server()]), route("b", &[echo_server()])]);
    second.generation = 2;
    second.listeners[0].address = rig.address;
    assert_eq!(rig.relay.apply(second).unwrap(), []);
    let mut new = rig.ask("b.example.com");
    read_exactly(&mut new, hello("b.example.com").len());
    old.write_all(b"still here").unwrap();
    assert_eq!(read_exactly(&mut old, 10), b"still here");
}

#[test]
fn connections_of_a_removed_route_end_after_the_drain_time_and_others_do_not() {
    let rig = Rig::start(table(vec![route("a", &[echo_server()]), route("b", &[echo_server()])]));
    let mut removed = rig.ask("a.example.com");
    let mut stays = rig.ask("b.example.com");
    for stream in [&mut removed, &mut stays] {
        read_exactly(stream, hello("a.example.com").len());
    }
    let mut second = table(vec![rig.relay.live().routes[1].route.as_ref().clone()]);
    second.generation = 2;
    second.drain = Duration::from_millis(300);
    second.listeners[0].address = rig.address;
    rig.relay.apply(second).unwrap();
    removed.write_all(b"x").unwrap();
    assert_eq!(read_exactly(&mut removed, 1), b"x");
    assert_eq!(read_to_end(&mut removed), b"");
    rig.wait_for(End::Drained, 1);
    stays.write_all(b"x").unwrap();
    assert_eq!(read_exactly(&mut stays, 1), b"x");
}

#[test]
fn a_route_that_comes_back_within_the_drain_time_has_its_connections_again() {
    let rig = Rig::start(table(vec![route("a", &[echo_server()]), route("b", &[echo_server()])]));
    let [mut kept, mut cut] = ["a.example.com", "b.example.com"].map(|name| rig.ask(name));
    for stream in [&mut kept, &mut cut] {
        read_exactly(stream, hello("a.example.com").len());
    }
    let routes: Vec<_> = rig.relay.live().routes.iter().map(|live| live.route.as_ref().clone()).collect();
    let retargeted = Route { target: "default/elsewhere:443".into(), ..routes[0].clone() };
    for (generation, routes) in [vec![retargeted], Vec::new(), vec![routes[0].clone()]].into_iter().enumerate() {
        let mut next = table(routes);
        next.generation = generation as u64 + 2;
        next.drain = Duration::from_millis(300);
        next.listeners[0].address = rig.address;
        rig.relay.apply(next).unwrap();
    }
    assert_eq!(read_to_end(&mut cut), b"");
    rig.wait_for(End::Drained, 1);
    kept.write_all(b"x").unwrap();
    assert_eq!(read_exactly(&mut kept, 1), b"x");
}

#[test]
fn who_is_there_to_listen_keeps_what_there_is_when_nothing_else_can_be() {
    let (taken, address) = listener();
    let rig = Rig::start(table(vec![route("a", &[echo_server()])]));
    let mut deaf = table(vec![route("a", &[echo_server()])]);
    deaf.generation = 2;
    deaf.listeners[0].address = address;
    let refused = rig.relay.apply_to_listen(deaf.clone());
    assert!(matches!(refused, Err(RelayError::NothingListens { rejects }) if rejects.len() == 1));
    assert_eq!(rig.relay.live().table.generation, 1);
    assert!(!rig.relay.could_listen_more(&deaf));
    drop(taken);
    assert!(rig.relay.could_listen_more(&deaf));
    assert_eq!(rig.relay.apply_to_listen(deaf.clone()).unwrap(), []);
    assert!(!rig.relay.could_listen_more(&deaf), "it is open");
}

#[test]
fn an_older_table_is_refused() {
    let mut newer = table(vec![route("a", &[echo_server()])]);
    newer.generation = 5;
    let rig = Rig::start(newer);
    let older = table(Vec::new());
    assert!(matches!(rig.relay.apply(older), Err(RelayError::Older { offered: 1, running: 5 })));
}

#[test]
fn a_listener_that_cannot_be_opened_is_left_out_and_told() {
    let (taken, address) = listener();
    let rig = Rig::start(table(vec![route("a", &[echo_server()])]));
    let mut second = table(vec![route("a", &[echo_server()])]);
    second.generation = 2;
    second.listeners[0].address = rig.address;
    let mut busy = second.listeners[0].clone();
    busy.name = "busy".into();
    busy.address = address;
    second.listeners.push(busy);
    let rejects = rig.relay.apply(second).unwrap();
    assert_eq!(rejects.len(), 1);
    assert_eq!(rejects[0].entry, "listener busy");
    assert!(rejects[0].reason.contains("is in use by another process"), "{}", rejects[0].reason);
    read_exactly(&mut rig.ask("a.example.com"), 5);
    drop(taken);
}

#[test]
fn draining_lets_connections_finish() {
    let rig = Rig::start(table(vec![route("a", &[echo_server()])]));
    let mut client = rig.ask("a.example.com");
    read_exactly(&mut client, hello("a.example.com").len());
    std::thread::scope(|scope| {
        let drained = scope.spawn(|| rig.relay.drain(Duration::from_secs(30)));
        client.write_all(b"last words").unwrap();
        assert_eq!(read_exactly(&mut client, 10), b"last words");
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(read_to_end(&mut client), b"");
        drained.join().unwrap();
    });
    assert!(std::net::TcpStream::connect(rig.address).is_err());
}
