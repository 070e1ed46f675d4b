//! What an endpoint hears of a real Envoy's checks.

use std::io::{self, BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection};
use underpass_tables::{CheckKind, HealthCheck, ProxyHeader, Route};
use underpass_testbed::{PATIENCE, wait_until};

use crate::Site;
use crate::envoy::{CHANGES, Edge};

/// How version 2 begins where nobody is behind a connection.
const LOCAL_V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20";

/// Takes connections that say the header, if one is due, and then shake hands in TLS 1.3; tells of each what came of it.
fn server(header: Option<ProxyHeader>) -> (SocketAddr, Receiver<io::Result<()>>) {
    let (listener, tls) = (TcpListener::bind("127.0.0.1:0").unwrap(), only_newest_tls());
    let address = listener.local_addr().unwrap();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let mut clients = listener.incoming().flatten();
        while clients.next().is_some_and(|client| tell.send(take(client, header, &tls)).is_ok()) {}
    });
    (address, told)
}

fn only_newest_tls() -> Arc<ServerConfig> {
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(["server".into()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
    Arc::new(config.unwrap().with_no_client_auth().with_single_cert(vec![cert.into()], key).unwrap())
}

fn take(client: TcpStream, header: Option<ProxyHeader>, tls: &Arc<ServerConfig>) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    let mut client = BufReader::new(client);
    match header {
        None => {}
        Some(ProxyHeader::V1) => {
            let mut line = Vec::new();
            client.read_until(b'\n', &mut line)?;
            is_due(line.starts_with(b"PROXY ") && line.ends_with(b"\r\n"))?;
        }
        Some(ProxyHeader::V2) => {
            let mut fixed = [0; 16];
            client.read_exact(&mut fixed)?;
            is_due(fixed.starts_with(LOCAL_V2))?;
            client.read_exact(&mut vec![0; u16::from_be_bytes([fixed[14], fixed[15]]).into()])?;
        }
    }
    let mut session = ServerConnection::new(tls.clone()).map_err(io::Error::other)?;
    while session.is_handshaking() {
        if session.read_tls(&mut client)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        session.process_new_packets().map_err(io::Error::other)?;
        session.write_tls(client.get_mut())?;
    }
    Ok(())
}

fn is_due(header: bool) -> io::Result<()> {
    header.then_some(()).ok_or_else(|| io::Error::other("another header"))
}

fn every_second(kind: CheckKind) -> HealthCheck {
    let second = Duration::from_secs(1);
    HealthCheck { kind, interval: second, timeout: PATIENCE, unhealthy_after: 1, healthy_after: 1 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_shakes_hands_as_new_servers_do_it_and_says_the_header_that_they_wait_for() {
    let mut site = Site::empty().await;
    let edge = Edge::start(&site, CHANGES);
    let headers = [None, Some(ProxyHeader::V1), Some(ProxyHeader::V2)];
    let mut table = edge.table(headers.len());
    let check = every_second(CheckKind::Tls { server_name: "server".into() });
    let servers = headers.map(server);
    for ((route, header), (server, _)) in table.routes.iter_mut().zip(headers).zip(&servers) {
        *route = Arc::new(Route {
            endpoints: vec![(*server).into()],
            proxy_header: header,
            health_check: Some(check.clone()),
            ..(**route).clone()
        });
    }
    site.put(&table);
    for (header, (_, told)) in headers.iter().zip(&servers) {
        let came_of_it = told.recv_timeout(PATIENCE).unwrap();
        assert!(came_of_it.is_ok(), "{header:?}: {came_of_it:?}");
    }
    for route in &table.routes {
        let is_well = || {
            let clusters = edge.envoy.json("/clusters?format=json");
            let cluster = clusters["cluster_statuses"].as_array()?.iter().find(|it| it["name"] == *route.name)?;
            let health = &cluster["host_statuses"][0]["health_status"];
            (health["failed_active_health_check"] != true).then_some(())
        };
        wait_until(&format!("{} to be well", route.name), PATIENCE, is_well);
    }
}
