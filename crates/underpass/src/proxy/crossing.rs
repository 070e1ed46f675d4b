//! Whether a backend can be reached through the data plane: a connection of our own, as a client makes it.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use futures::{StreamExt, stream};
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, Error as TlsError};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use underpass_plan::proxy_server::{Crossing, Crossings};
use underpass_protocols::proxy_protocol::write_v2_local;

/// Of all backends together.
const AT_ONCE: usize = 16;
/// A server that says nothing for so long may be one that waits to be spoken to.
const SILENCE: Duration = Duration::from_secs(3);

/// Tries all of them. Those that failed, by name, and why.
pub(super) async fn failed(crossings: Crossings, tls: &TlsConnector) -> BTreeMap<String, String> {
    let tried = crossings.into_iter().map(|(name, crossing)| async move {
        let outcome = cross(&crossing, tls).await;
        outcome.err().map(|why| (name, why))
    });
    stream::iter(tried).buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await
}

async fn cross(crossing: &Crossing, tls: &TlsConnector) -> Result<(), String> {
    let name = ServerName::try_from(crossing.server_name.clone()).map_err(|error| error.to_string())?;
    let door = async {
        let mut stream = connect(crossing.port).await?;
        if crossing.proxy_header {
            stream.write_all(&write_v2_local()).await?;
        }
        let mut session = tls.connect(name, stream).await?;
        // The handshake was the proof; how the goodbye goes says nothing.
        let _ = session.shutdown().await;
        Ok(())
    };
    match timeout(SILENCE, door).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => judge(&error),
        Err(_) => reach(crossing).await,
    }
}

/// Wherever the data plane listens.
async fn connect(port: u16) -> io::Result<TcpStream> {
    match TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await
        }
        connected => connected,
    }
}

/// Whatever a server says about a handshake, it is the server that says it; but names that nobody has are refused by the data plane.
fn judge(error: &io::Error) -> Result<(), String> {
    let said = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
    match said {
        Some(TlsError::AlertReceived(AlertDescription::UnrecognisedName)) => {
            Err("the data plane does not know its name yet".to_owned())
        }
        Some(_) => Ok(()),
        None if error.kind() == io::ErrorKind::ConnectionRefused => {
            Err("the data plane does not listen on its port".to_owned())
        }
        None => Err(format!("the connection was closed before the server answered: {error}")),
    }
}

/// Nothing came back, and nobody closed: what is left to know is whether an endpoint takes connections.
async fn reach(crossing: &Crossing) -> Result<(), String> {
    let mut why = String::new();
    for endpoint in &crossing.endpoints {
        match timeout(SILENCE, TcpStream::connect(endpoint)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => why = describe(*endpoint, &error.to_string()),
            Err(_) => why = describe(*endpoint, "it does not answer"),
        }
    }
    Err(why)
}

fn describe(endpoint: SocketAddr, why: &str) -> String {
    format!("nothing came back, and its endpoint {endpoint} cannot be connected to: {why}")
}
