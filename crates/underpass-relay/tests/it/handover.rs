//! One relay takes over from another, under load, and nobody is turned away.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use underpass_relay::handover::{Offer, take};
use underpass_relay::{Relay, Settings};

use crate::rig::{Rig, echo_server, hello, read_exactly, route, table, wait_until};

#[test]
fn a_successor_takes_the_sockets_and_no_connection_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("handover");
    assert!(take(&path).unwrap().is_none(), "nobody is there to take over from");
    let rig = Rig::start(table(vec![route("a", &[echo_server()])]));
    let offer = Offer::bind(&path).unwrap();
    let stop = AtomicBool::new(false);
    let served = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let predecessor = scope.spawn(|| {
            offer.wait(|| rig.relay.sockets(), |error| panic!("{error}")).unwrap();
            rig.relay.drain(Duration::from_secs(30));
        });
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    let mut client = TcpStream::connect(rig.address).unwrap();
                    client.write_all(&hello("a.example.com")).unwrap();
                    client.shutdown(Shutdown::Write).unwrap();
                    let mut answer = Vec::new();
                    client.read_to_end(&mut answer).unwrap();
                    assert_eq!(answer, hello("a.example.com"));
                    served.fetch_add(1, Relaxed);
                }
            });
        }
        wait_until(|| served.load(Relaxed) > 100, "the predecessor serves");
        let mut long = rig.ask("a.example.com");
        read_exactly(&mut long, hello("a.example.com").len());

        let inherited = take(&path).unwrap().unwrap();
        let successor =
            Relay::start(Settings { workers: 3, inherited: inherited.sockets.clone(), ..Settings::default() }).unwrap();
        let mut same = table(vec![route("a", &[echo_server()])]);
        same.listeners[0].address = rig.address;
        assert_eq!(successor.apply(same).unwrap(), []);
        inherited.serving().unwrap();
        let by_successor = || successor.live().listeners[0].stats.total.load(Relaxed);
        wait_until(|| rig.relay.draining() && by_successor() > 100, "the successor serves");
        long.write_all(b"still with the old one").unwrap();
        assert_eq!(read_exactly(&mut long, 22), b"still with the old one");
        drop(long);
        predecessor.join().unwrap();
        let before = by_successor();
        wait_until(|| by_successor() > before + 100, "the successor goes on alone");
        stop.store(true, Relaxed);
        // The load ends by itself; then the successor may.
        wait_until(|| successor.connections() == 0, "the load has ended");
        successor.drain(Duration::from_secs(5));
    });
}
