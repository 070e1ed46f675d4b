//! Much of everything: bytes, tunnels, streams.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use underpass_engines::EngineKind;

use super::guest::resolve;
use super::rig::tunnel;
use super::{Rig, on_both, servers};

on_both!(
    a_gibibyte_each_way_arrives_unchanged,
    a_hundred_users_connect_anew_for_each_of_five_thousand_round_trips,
    two_hundred_tunnels_in_one_object,
    two_thousand_streams_do_not_wait_for_a_dead_and_a_slow_server,
);

const GIBIBYTE: u64 = 1 << 30;

/// For what comes next, on a busy machine. A server that does not answer costs its own streams ten seconds: whoever waited for theirs to end
/// would take longer than this.
const DEADLINE: Duration = Duration::from_secs(8);

/// By one stream, whose client sends back what it gets, so that both ways are busy at once. It is no container: an engine takes the network
/// of one that has ended away, with what the kernel had still to send.
fn a_gibibyte_each_way_arrives_unchanged(kind: EngineKind) {
    let rig = Rig::start(kind);
    let (server, sums) = servers::random(GIBIBYTE);
    rig.apply_proxy("much", &format!("tunnels:\n{}", tunnel("t", server)));
    let status = rig.until_ready("much");
    let client = OwnedFd::from(std::net::TcpStream::connect(clients(&status)[0]).unwrap());
    let reflected = Command::new("cat").stdin(client.try_clone().unwrap()).stdout(client).status().unwrap();
    assert!(reflected.success());
    let sums = sums.recv().unwrap();
    assert_eq!(sums.received, sums.sent);
    let nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert!(!sums.sent.starts_with(nothing), "it has sent something");
    rig.end();
}

fn a_hundred_users_connect_anew_for_each_of_five_thousand_round_trips(kind: EngineKind) {
    const USERS: usize = 100;
    const EACH: usize = 50;
    let rig = Rig::start(kind);
    rig.apply_proxy("users", &format!("tunnels:\n{}", tunnel("t", rig.wait_for(echo_server()))));
    let client = clients(&rig.until_ready("users"))[0];
    rig.wait_for(async {
        let user = || async move {
            for _ in 0..EACH {
                timeout(DEADLINE, stream(client)).await.expect("nobody waits").expect("it is served");
            }
        };
        (0..USERS).map(|_| user()).collect::<JoinSet<()>>().join_all().await
    });
    rig.end();
}

fn two_hundred_tunnels_in_one_object(kind: EngineKind) {
    let rig = Rig::start(kind);
    let server = servers::echo();
    let tunnels: Vec<String> = (0..200).map(|number| tunnel(&format!("t{number:03}"), server)).collect();
    rig.apply_proxy("many", &format!("aliases: [h]\ntunnels:\n{}", tunnels.join("\n")));
    let status = rig.until("many", "all tunnels", |status| status["tunnelsReady"] == "200/200");
    let ports: Vec<String> = clients(&status).iter().map(|client| client.port().to_string()).collect();
    let script = format!(
        "{}\nfor port in {}; do printf \"$port \" | /busybox nc $ip $port; done",
        resolve("h"),
        ports.join(" ")
    );
    assert_eq!(rig.guest("many").run(&script), ports.join(" "), "each leads to the server, and each is another");
    rig.end();
}

/// Where the clients of all tunnels connect to, in the order of their names.
fn clients(status: &Value) -> Vec<SocketAddr> {
    let client = |tunnel: &Value| {
        let port = u16::try_from(tunnel["clientProxyPort"].as_u64().unwrap()).unwrap();
        SocketAddr::new(tunnel["clientProxyAddresses"][0].as_str().unwrap().parse().unwrap(), port)
    };
    status["tunnelStatuses"].as_array().unwrap().iter().map(client).collect()
}

/// From here to the client proxy's own address, as its neighbours connect to it. The slow server answers nobody until everybody else
/// was served twice: whoever waits for it, waits for ever. So does whoever waits for the deaf one, on which somebody always waits.
fn two_thousand_streams_do_not_wait_for_a_dead_and_a_slow_server(kind: EngineKind) {
    const EACH: usize = 100;
    let rig = Rig::start(kind);
    let (dead, (open_gate, slow, waiting)) = (servers::dead(), rig.wait_for(slow_server()));
    let (deaf, _hears_nothing) = rig.wait_for(servers::deaf());
    let good: Vec<u16> = (0..18).map(|_| rig.wait_for(echo_server())).collect();
    let mut tunnels = vec![tunnel("a-dead", dead), tunnel("b-deaf", deaf), tunnel("b-slow", slow)];
    tunnels.extend(good.iter().enumerate().map(|(number, port)| tunnel(&format!("c{number:02}"), *port)));
    rig.apply_proxy("crowd", &format!("tunnels:\n{}", tunnels.join("\n")));
    let clients = clients(&rig.until("crowd", "all tunnels", |status| status["tunnelsReady"] == "21/21"));
    let streams = |client: SocketAddr| (0..EACH).map(move |_| client);
    rig.wait_for(async {
        let dead: Vec<_> = streams(clients[0]).map(|to| tokio::spawn(stream(to))).collect();
        let mut deaf = JoinSet::new();
        streams(clients[1]).for_each(|to| drop(deaf.spawn(again_and_again(to))));
        let slow: Vec<_> = streams(clients[2]).map(|to| tokio::spawn(stream(to))).collect();
        let in_time = |to| tokio::spawn(timeout(DEADLINE, stream(to)));
        let good: Vec<_> = clients[3..].iter().copied().flat_map(streams).map(in_time).collect();
        let mut open = Vec::new();
        for stream in good {
            open.push(stream.await.unwrap().expect("nobody waits").expect("it is served"));
        }
        for stream in &mut open {
            timeout(DEADLINE, exchange(stream)).await.expect("nobody waits").expect("it is served again");
        }
        assert!(slow.iter().all(|stream| !stream.is_finished()), "the slow server has answered nobody yet");
        for stream in dead {
            assert!(timeout(DEADLINE, stream).await.unwrap().unwrap().is_err(), "nobody is there");
        }
        timeout(DEADLINE, async {
            while waiting.load(Ordering::Relaxed) < EACH {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .expect("they reach the slow server, too");
        open_gate.send(true).unwrap();
        assert_eq!(deaf.len(), EACH);
        assert!(deaf.try_join_next().is_none(), "they still wait");
        for stream in slow {
            timeout(DEADLINE, stream).await.unwrap().unwrap().expect("late, but served");
        }
    });
    rig.end();
}

async fn stream(to: SocketAddr) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(to).await?;
    exchange(&mut stream).await?;
    Ok(stream)
}

/// In vain.
async fn again_and_again(to: SocketAddr) {
    while stream(to).await.is_err() {}
    panic!("a deaf server has answered");
}

async fn exchange(stream: &mut TcpStream) -> std::io::Result<()> {
    let sent: [u8; 16] = rand::random();
    let mut received = [0; 16];
    stream.write_all(&sent).await?;
    stream.read_exact(&mut received).await?;
    assert_eq!(received, sent);
    Ok(())
}

async fn echo_server() -> u16 {
    serve(|stream| async move {
        let (mut read, mut write) = stream.into_split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    })
    .await
}

/// What opens its gate, its port, and how many wait before it.
async fn slow_server() -> (watch::Sender<bool>, u16, Arc<AtomicUsize>) {
    let (open, gate) = watch::channel(false);
    let waiting = Arc::new(AtomicUsize::new(0));
    let counted = waiting.clone();
    let port = serve(move |stream| {
        let (mut gate, counted) = (gate.clone(), counted.clone());
        async move {
            counted.fetch_add(1, Ordering::Relaxed);
            let _ = gate.wait_for(|open| *open).await;
            let (mut read, mut write) = stream.into_split();
            let _ = tokio::io::copy(&mut read, &mut write).await;
        }
    });
    (open, port.await, waiting)
}

async fn serve<F: Future<Output = ()> + Send + 'static>(answer: impl Fn(TcpStream) -> F + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    port
}
