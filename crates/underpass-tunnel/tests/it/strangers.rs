use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use underpass_tunnel::server::Server;
use underpass_tunnel::{Caller, PairSecrets, RefusalCounts};

use crate::rig::{Pair, connect, echo_server, exchange, listener, server_settings, wait_until, within};

/// Waits until so many were refused for a reason.
async fn refused(pair: &Pair, count: impl Fn(&RefusalCounts) -> u64, least: u64) {
    let seen = async || pair.list().await.client.map_or(0, |client| count(&client.refused));
    wait_until(async || seen().await >= least, "the refusal is counted").await;
}

/// Comes from another address of this machine.
async fn stranger(to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.66:0".parse().unwrap()).unwrap();
    within(socket.connect(to)).await.unwrap()
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    !matches!(within(stream.read(&mut [0; 64])).await, Ok(1..))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_half_with_another_key_gets_nowhere() {
    let pair = Pair::start().await;
    let port = pair.prepare(1, echo_server().await).await.port;
    let mut data_key_of_another = pair.secrets.clone();
    data_key_of_another.server = {
        let mut value = serde_json::to_value(&pair.secrets.server).unwrap();
        value["dataKey"] = serde_json::to_value(&PairSecrets::generate().unwrap().server).unwrap()["dataKey"].clone();
        serde_json::from_value(value).unwrap()
    };
    let other = Server::start(&data_key_of_another.server, server_settings(&pair.client)).await.unwrap();
    let caller = Caller::new(other.control_address(), &pair.secrets.caller).unwrap();
    wait_until(
        async || {
            let trouble = caller.list().await.unwrap().data[0].trouble.clone();
            trouble.is_some_and(|trouble| trouble.contains("does not know the key"))
        },
        "it says why",
    )
    .await;
    assert_eq!(caller.list().await.unwrap().data[0].idle, 0);
    for _ in 0..10 {
        exchange(&mut connect(port).await, "goes through the right one").await;
    }
    other.stop().await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rubbish_and_replays_on_the_data_port_are_refused_and_counted() {
    let pair = Pair::start().await;
    let data = pair.client.data_address();
    let mut rubbish = stranger(data).await;
    rubbish.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(is_closed(&mut rubbish).await);
    refused(&pair, |counts| counts.foreign, 1).await;

    let mut guess = stranger(data).await;
    guess.write_all(&[1; 17]).await.unwrap();
    let mut answer = [0; 48];
    within(guess.read_exact(&mut answer)).await.unwrap();
    // Its own proof, said back to it, and then nothing but noise.
    guess.write_all(&answer[16..]).await.unwrap();
    assert!(is_closed(&mut guess).await);
    refused(&pair, |counts| counts.wrong_key, 1).await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_handshake_opens_nothing() {
    let secrets = PairSecrets::generate().unwrap();
    let client = crate::rig::client(&secrets).await;
    let (between, address) = listener().await;
    let data = client.data_address();
    let settings = underpass_tunnel::server::Settings { data: vec![address], ..server_settings(&client) };
    let server = Server::start(&secrets.server, settings).await.unwrap();
    // What the server half says in a real handshake.
    let (mut near, _) = within(between.accept()).await.unwrap();
    let mut far = TcpStream::connect(data).await.unwrap();
    let mut recorded = vec![0; 17];
    within(near.read_exact(&mut recorded)).await.unwrap();
    far.write_all(&recorded).await.unwrap();
    let mut answer = [0; 48];
    within(far.read_exact(&mut answer)).await.unwrap();
    near.write_all(&answer).await.unwrap();
    let mut proof = [0; 32];
    within(near.read_exact(&mut proof)).await.unwrap();
    recorded.extend(proof);

    let caller = Caller::new(server.control_address(), &secrets.caller).unwrap();
    let pair = Pair { secrets, client, server, caller };
    let mut replay = stranger(data).await;
    replay.write_all(&recorded).await.unwrap();
    within(replay.read_exact(&mut answer)).await.unwrap();
    assert!(is_closed(&mut replay).await);
    refused(&pair, |counts| counts.wrong_key, 1).await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn control_without_a_certificate_of_the_pair_is_refused() {
    let pair = Pair::start().await;
    let mut plain = stranger(pair.client.control_address()).await;
    plain.write_all(b"{\"id\":1,\"request\":\"status\"}\n").await.unwrap();
    while !is_closed(&mut plain).await {}
    refused(&pair, |counts| counts.tls, 1).await;

    let stranger = PairSecrets::generate().unwrap();
    let anonymous = anonymous_tls(pair.client.control_address(), &pair.secrets).await;
    assert!(anonymous.is_err(), "no certificate");
    refused(&pair, |counts| counts.tls, 2).await;
    let other = Server::start(&stranger.server, server_settings(&pair.client)).await.unwrap();
    let caller = Caller::new(other.control_address(), &stranger.caller).unwrap();
    wait_until(
        async || caller.list().await.unwrap().trouble.is_some_and(|trouble| trouble.contains("prove")),
        "the stranger does not believe us either",
    )
    .await;
    assert!(!caller.list().await.unwrap().connected);
    other.stop().await;

    // To the server half, the same.
    let control = pair.server.control_address();
    let caller = Caller::new(control, &stranger.caller).unwrap();
    assert!(caller.list().await.is_err());
    assert!(anonymous_tls(control, &pair.secrets).await.is_err());
    // A client half has a certificate of the pair, but not one to give orders with.
    let mut value = serde_json::to_value(&pair.secrets.caller).unwrap();
    value["identity"] = serde_json::to_value(&pair.secrets.client).unwrap()["identity"].clone();
    let caller = Caller::new(control, &serde_json::from_value(value).unwrap()).unwrap();
    assert!(caller.list().await.is_err());
    exchange(&mut pair.connect(1, echo_server().await).await, "unharmed").await;
    pair.stop().await;
}

/// A handshake as far as it goes without a certificate of one's own, and a question.
async fn anonymous_tls(to: SocketAddr, secrets: &PairSecrets) -> io::Result<usize> {
    use rustls::pki_types::pem::PemObject;
    let value = serde_json::to_value(secrets).unwrap();
    let authority = value["caller"]["identity"]["authority"].as_str().unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
    let config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    for name in ["client.tunnel.underpass", "server.tunnel.underpass"] {
        let stream = TcpStream::connect(to).await?;
        let Ok(mut stream) = connector.connect(name.try_into().unwrap(), stream).await else { continue };
        stream.write_all(b"{\"id\":1,\"request\":\"status\"}\n").await?;
        stream.flush().await?;
        return match within(stream.read(&mut [0; 64])).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => Ok(read),
        };
    }
    Err(io::ErrorKind::ConnectionRefused.into())
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_that_say_nothing_are_in_nobodys_way() {
    let pair = Pair::start().await;
    let (data, control) = (pair.client.data_address(), pair.client.control_address());
    let echo = echo_server().await;
    let port = pair.prepare(1, echo).await.port;
    let mut silent = Vec::new();
    for number in 0..2000 {
        let to = if number % 2 == 0 { data } else { control };
        silent.push(stranger(to).await);
        if number % 100 == 0 {
            exchange(&mut connect(port).await, "meanwhile").await;
        }
    }
    // Far more than stand ready, so that new connections have to be made between them.
    let mut streams = Vec::new();
    for number in 0..50 {
        let mut stream = connect(port).await;
        exchange(&mut stream, &format!("stream {number}")).await;
        streams.push(stream);
    }
    exchange(&mut pair.connect(2, echo).await, "a new tunnel").await;
    refused(&pair, |counts| counts.crowded, 1000).await;
    // Those that are still half open end by the deadline.
    refused(&pair, |counts| counts.late, 1).await;
    pair.stop().await;
}
