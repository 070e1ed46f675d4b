//! Whether this pod can serve the address: the data plane beside us is ready, as it says itself over HTTP, and the network is there.
//!
//! The carrier is looked at as often as the data plane. To be told of it by the kernel was rejected: one look that failed is forgiven anyway.

use std::str::FromStr;
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};
use underpass_address::{Interface, InterfaceError};

/// Between two looks, and how long one may take.
const PAUSE: Duration = Duration::from_millis(300);
const DEADLINE: Duration = Duration::from_millis(500);
/// So many in a row, and it is not ready: one look may have come in a bad moment.
const FAILURES: u32 = 2;
/// Where the status stands in an answer.
const STATUS_LINE: usize = "HTTP/1.1 200".len();

/// `http://HOST:PORT/PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadyUrl {
    host: String,
    port: u16,
    path: String,
}

impl FromStr for ReadyUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "give the address of a page over plain HTTP, as in http://127.0.0.1:9901/ready";
        let uri: Uri = text.parse().map_err(|_| WRONG)?;
        let host = uri.host().filter(|_| uri.scheme() == Some(&Scheme::HTTP)).ok_or(WRONG)?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { host: host.trim_matches(['[', ']']).to_owned(), port: uri.port_u16().unwrap_or(80), path })
    }
}

/// Why the address cannot be served here.
#[derive(Debug, thiserror::Error)]
enum NotReady {
    #[error("{0} has no carrier")]
    Carrier(String),
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    #[error("the data plane is not ready ({0})")]
    DataPlane(String),
}

/// What was seen so far.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    ready: bool,
    failures: u32,
}

impl Seen {
    fn after(&self, good: bool) -> Self {
        let failures = if good { 0 } else { self.failures.saturating_add(1) };
        Self { ready: good || (self.ready && failures < FAILURES), failures }
    }
}

/// Looks again and again, and tells every change. Does not end.
pub(super) async fn follow(url: &ReadyUrl, interface: &Interface, readiness: watch::Sender<bool>) {
    let mut seen = Seen::default();
    let mut told = None;
    loop {
        let looked = look(url, interface).await;
        seen = seen.after(looked.is_ok());
        if told != Some(seen.ready) {
            match looked {
                Ok(()) => info!("data plane and network are ready: this process competes for the address"),
                Err(why) => warn!("{:#}: this process does not compete for the address", anyhow::Error::new(why)),
            }
            told = Some(seen.ready);
            readiness.send_replace(seen.ready);
        }
        sleep(PAUSE).await;
    }
}

/// Comes back when the address cannot be served here.
pub(super) async fn gone(mut ready: watch::Receiver<bool>) {
    // Who is not told any more does not know that it is ready.
    let _ = ready.wait_for(|ready| !ready).await;
}

async fn look(url: &ReadyUrl, interface: &Interface) -> Result<(), NotReady> {
    if !interface.has_carrier()? {
        return Err(NotReady::Carrier(interface.name.clone()));
    }
    let answered = timeout(DEADLINE, answers(url)).await.unwrap_or(Err("no answer".to_owned()));
    answered.map_err(NotReady::DataPlane)
}

async fn answers(url: &ReadyUrl) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect((url.host.as_str(), url.port)).await.map_err(failed)?;
    let request = format!("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", url.path, url.host);
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut line = [0; STATUS_LINE];
    stream.read_exact(&mut line).await.map_err(failed)?;
    match &line {
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', _, b' ', b'2', b'0', b'0'] => Ok(()),
        other => Err(format!("it answers {:?}", String::from_utf8_lossy(other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_is_forgiven_and_two_are_not() {
        let looks = [false, true, false, true, false, false, false, true];
        let ready: Vec<bool> = looks
            .iter()
            .scan(Seen::default(), |seen, good| {
                *seen = seen.after(*good);
                Some(seen.ready)
            })
            .collect();
        assert_eq!(ready, [false, true, true, true, true, false, false, true]);
    }

    #[test]
    fn only_plain_http_can_be_asked() {
        let url = |host: &str, port, path: &str| Ok(ReadyUrl { host: host.into(), port, path: path.into() });
        assert_eq!("http://127.0.0.1:9901/ready?x=1".parse(), url("127.0.0.1", 9901, "/ready?x=1"));
        assert_eq!("http://[::1]/".parse(), url("::1", 80, "/"));
        for wrong in ["https://127.0.0.1/ready", "127.0.0.1:9901", "/ready", ""] {
            assert!(wrong.parse::<ReadyUrl>().is_err(), "{wrong}");
        }
    }
}
