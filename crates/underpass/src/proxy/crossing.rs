//! Whether a backend can be reached through the data plane: a connection of our own, as a client makes it.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use futures::{StreamExt, stream};
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, Error as TlsError};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use underpass_plan::proxy_server::{Crossing, Proofs};
use underpass_protocols::proxy_protocol::write_v2_local;

/// Of all backends together; and of the endpoints of one.
const AT_ONCE: usize = 16;
/// For one backend, whatever has to be tried.
const PROOF: Duration = Duration::from_secs(3);
/// A server that says nothing for so long may be one that waits to be spoken to. What is left of the time is enough for a connection whose
/// first packet is lost.
const SILENCE: Duration = Duration::from_millis(1500);

/// Tries all of them.
pub(super) async fn proofs(crossings: Vec<Crossing>, tls: TlsConnector) -> Proofs {
    let tls = &tls;
    let tried = crossings.into_iter().map(|crossing| async move {
        let outcome = cross(&crossing, tls).await;
        (crossing.passage, outcome)
    });
    stream::iter(tried).buffer_unordered(AT_ONCE).collect().await
}

async fn cross(crossing: &Crossing, tls: &TlsConnector) -> Result<(), String> {
    let passage = &crossing.passage;
    let name = ServerName::try_from(passage.server_name.clone()).map_err(|error| error.to_string())?;
    let begun = Instant::now();
    // It would turn a client away, or be turned away by clients, and neither says that anything is wrong.
    if passage.takes_a_place {
        return reach(crossing, begun + PROOF).await;
    }
    let door = async {
        let mut stream = connect(passage.port).await?;
        if passage.proxy_header {
            stream.write_all(&write_v2_local()).await?;
        }
        let mut session = tls.connect(name, stream).await?;
        // The handshake was the proof; how the goodbye goes says nothing.
        let _ = session.shutdown().await;
        Ok(())
    };
    match timeout_at(begun + SILENCE, door).await {
        Ok(Ok(())) => Ok(()),
        // As many servers do that are greeted in a language that is not theirs.
        Ok(Err(error)) if passage.plain && is_hanging_up(&error) => reach_in_silence(crossing, begun + PROOF).await,
        Ok(Err(error)) => judge(&error),
        Err(_) => reach_in_silence(crossing, begun + PROOF).await,
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

fn is_hanging_up(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    [BrokenPipe, ConnectionReset, UnexpectedEof].contains(&error.kind())
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

/// Nothing came back.
async fn reach_in_silence(crossing: &Crossing, deadline: Instant) -> Result<(), String> {
    reach(crossing, deadline).await.map_err(|why| format!("nothing came back, and {why}"))
}

/// Where no connection of ours says anything, what is left to know is whether an endpoint takes connections.
async fn reach(crossing: &Crossing, deadline: Instant) -> Result<(), String> {
    let tried = crossing.endpoints.iter().copied().map(|endpoint| async move {
        match timeout_at(deadline, TcpStream::connect(endpoint)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(describe(endpoint, &error.to_string())),
            Err(_) => Err(describe(endpoint, "it does not answer")),
        }
    });
    let mut tried = stream::iter(tried).buffer_unordered(AT_ONCE);
    let mut why = String::new();
    while let Some(outcome) = tried.next().await {
        let Err(reason) = outcome else { return Ok(()) };
        // The same one of several each time: another would be news.
        why = why.max(reason);
    }
    Err(why)
}

fn describe(endpoint: SocketAddr, why: &str) -> String {
    format!("its endpoint {endpoint} cannot be connected to: {why}")
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::net::{TcpListener, TcpSocket};
    use underpass_plan::proxy_server::Passage;

    use super::*;

    /// Connections that are begun there come to nothing: the one that nobody takes fills its queue.
    struct BlackHole(SocketAddr, #[expect(dead_code, reason = "open as long as this lives")] (TcpListener, TcpStream));

    impl BlackHole {
        async fn open() -> Self {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
            let listener = socket.listen(0).unwrap();
            let address = listener.local_addr().unwrap();
            let first = TcpStream::connect(address).await.unwrap();
            Self(address, (listener, first))
        }
    }

    /// To a server that speaks TLS, of which there is enough for everybody.
    fn to(port: u16, endpoints: Vec<SocketAddr>) -> Crossing {
        let passage = Passage { server_name: "a.example.com".to_owned(), port, ..Passage::default() };
        Crossing { passage, endpoints }
    }

    /// How a backend is judged whose server says nothing, and how long that takes.
    async fn judged(endpoints: Vec<SocketAddr>) -> (Result<(), String>, Duration) {
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = silent.local_addr().unwrap().port();
        let mut crossing = to(port, endpoints);
        crossing.passage.plain = true;
        let begun = Instant::now();
        (cross(&crossing, &underpass_relay::any_certificate()).await, begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_backend_has_one_deadline_however_many_endpoints_are_silent() {
        let holes = [BlackHole::open().await, BlackHole::open().await, BlackHole::open().await];
        let (outcome, time) = judged(holes.iter().map(|hole| hole.0).collect()).await;
        assert!(outcome.unwrap_err().contains("it does not answer"));
        assert!((PROOF..PROOF + Duration::from_millis(100)).contains(&time), "{time:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn one_endpoint_that_takes_connections_is_enough() {
        let (hole, open) = (BlackHole::open().await, TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap());
        let (outcome, time) = judged(vec![hole.0, open.local_addr().unwrap()]).await;
        assert_eq!(outcome, Ok(()));
        assert!(time < PROOF, "{time:?}");
    }

    /// How a backend is judged whose server closes without a word.
    async fn judged_by_a_goodbye(plain: bool) -> Result<(), String> {
        let rude = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let endpoint = rude.local_addr().unwrap();
        let closing = tokio::spawn(async move {
            loop {
                drop(rude.accept().await.unwrap());
            }
        });
        let mut crossing = to(endpoint.port(), vec![endpoint]);
        crossing.passage.plain = plain;
        let outcome = cross(&crossing, &underpass_relay::any_certificate()).await;
        closing.abort();
        outcome
    }

    #[tokio::test]
    async fn a_server_may_hang_up_on_a_greeting_where_it_need_not_speak_tls() {
        assert_eq!(judged_by_a_goodbye(true).await, Ok(()));
        let refused = judged_by_a_goodbye(false).await.unwrap_err();
        assert!(refused.starts_with("the connection was closed before the server answered"), "{refused}");
    }

    /// How a backend is judged that takes only so many connections; whoever comes by the data plane is turned away.
    async fn judged_when_full(endpoint: SocketAddr) -> Result<(), String> {
        let full = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut crossing = to(full.local_addr().unwrap().port(), vec![endpoint]);
        crossing.passage.takes_a_place = true;
        let outcome = cross(&crossing, &underpass_relay::any_certificate()).await;
        assert!(full.accept().now_or_never().is_none(), "a place of a client was taken");
        outcome
    }

    #[tokio::test]
    async fn a_backend_that_takes_only_so_many_is_asked_beside_the_data_plane() {
        let open = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let endpoint = open.local_addr().unwrap();
        assert_eq!(judged_when_full(endpoint).await, Ok(()));
        drop(open);
        let refused = judged_when_full(endpoint).await.unwrap_err();
        assert!(refused.starts_with(&format!("its endpoint {endpoint} cannot be connected to: ")), "{refused}");
    }
}
