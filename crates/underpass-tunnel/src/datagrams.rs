//! Datagrams over data connections: each with its length before it. One data connection per flow, and a flow is what one client address
//! sends to one tunnel; it ends when nothing has come for a while.

use std::io;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::time::{Instant, sleep_until};

/// Of the length before a datagram.
const PREFIX: usize = 2;
/// More than a datagram can hold.
pub(crate) const LARGEST: usize = u16::MAX as usize;
/// A flow without datagrams ends after so long.
pub(crate) const IDLE: Duration = Duration::from_secs(60);

/// Where the datagrams of a flow come from.
pub(crate) trait Source: Send {
    /// Puts the next one into the buffer, and says how long it is.
    fn next(&mut self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;
}

/// Where the datagrams of a flow go.
pub(crate) trait Sink: Send {
    fn deliver(&mut self, datagram: &[u8]) -> impl Future<Output = ()> + Send;
}

/// Carries a flow until either side ends or nothing has come for `idle`.
pub(crate) async fn carry(
    stream: impl AsyncRead + AsyncWrite + Send,
    source: impl Source,
    sink: impl Sink,
    idle: Duration,
) -> io::Result<()> {
    let (reader, writer) = tokio::io::split(stream);
    let moved = Mutex::new(Instant::now());
    tokio::select! {
        sent = send_all(writer, source, &moved) => sent,
        received = receive_all(reader, sink, &moved) => received,
        () = silent_for(idle, &moved) => Ok(()),
    }
}

async fn send_all(
    mut writer: impl AsyncWrite + Unpin,
    mut source: impl Source,
    moved: &Mutex<Instant>,
) -> io::Result<()> {
    let mut buffer = vec![0; PREFIX + LARGEST];
    loop {
        let length = source.next(&mut buffer[PREFIX..]).await?;
        *moved.lock() = Instant::now();
        let prefix = u16::try_from(length).map_err(io::Error::other)?;
        buffer[..PREFIX].copy_from_slice(&prefix.to_be_bytes());
        writer.write_all(&buffer[..PREFIX + length]).await?;
    }
}

async fn receive_all(reader: impl AsyncRead + Unpin, mut sink: impl Sink, moved: &Mutex<Instant>) -> io::Result<()> {
    let mut reader = BufReader::new(reader);
    let mut buffer = vec![0; LARGEST];
    loop {
        let length = match reader.read_u16().await {
            Ok(length) => usize::from(length),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        reader.read_exact(&mut buffer[..length]).await?;
        *moved.lock() = Instant::now();
        sink.deliver(&buffer[..length]).await;
    }
}

async fn silent_for(idle: Duration, moved: &Mutex<Instant>) {
    loop {
        let end = *moved.lock() + idle;
        if end <= Instant::now() {
            return;
        }
        sleep_until(end).await;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::future::pending;

    use proptest::prelude::*;
    use tokio::io::duplex;

    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let builder = &mut tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap().block_on(future)
    }

    /// Sends what is in it, each after a while, and then the end or nothing for ever.
    struct Script {
        datagrams: VecDeque<Vec<u8>>,
        pause: Duration,
        ends: bool,
    }

    impl Source for Script {
        async fn next(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Some(datagram) = self.datagrams.pop_front() else {
                return if self.ends { Err(io::ErrorKind::UnexpectedEof.into()) } else { pending().await };
            };
            tokio::time::sleep(self.pause).await;
            buffer[..datagram.len()].copy_from_slice(&datagram);
            Ok(datagram.len())
        }
    }

    impl Sink for &mut Vec<Vec<u8>> {
        async fn deliver(&mut self, datagram: &[u8]) {
            self.push(datagram.to_vec());
        }
    }

    fn silence() -> Script {
        Script { datagrams: VecDeque::new(), pause: Duration::ZERO, ends: false }
    }

    #[test]
    fn a_silent_flow_ends_and_one_that_speaks_does_not() {
        block_on(async {
            let idle = Duration::from_secs(60);
            let (here, _there) = duplex(64);
            let begun = Instant::now();
            carry(here, silence(), &mut Vec::new(), idle).await.unwrap();
            assert_eq!(begun.elapsed().as_secs(), 60);

            let (here, _there) = duplex(64);
            let begun = Instant::now();
            let speaking = Script { datagrams: vec![vec![1]; 3].into(), pause: Duration::from_secs(50), ends: false };
            carry(here, speaking, &mut Vec::new(), idle).await.unwrap();
            assert_eq!(begun.elapsed().as_secs(), 210);
        });
    }

    #[test]
    fn the_end_of_the_connection_is_the_end_of_the_flow() {
        block_on(async {
            let (here, there) = duplex(64);
            drop(there);
            carry(here, silence(), &mut Vec::new(), Duration::from_secs(60)).await.unwrap();
        });
    }

    proptest! {
        #[test]
        fn datagrams_keep_their_bounds(sent in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2000), 0..20)) {
            let received = block_on(async {
                let (here, there) = duplex(512);
                let script = Script { datagrams: sent.clone().into(), pause: Duration::ZERO, ends: true };
                let (mut received, mut nothing, idle) = (Vec::new(), Vec::new(), Duration::from_secs(1));
                let sending = carry(here, script, &mut nothing, idle);
                let (sending, receiving) = tokio::join!(sending, carry(there, silence(), &mut received, idle));
                assert!(sending.is_err() && receiving.is_ok());
                received
            });
            prop_assert_eq!(received, sent);
        }

        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            block_on(async {
                let (here, mut there) = duplex(512);
                there.write_all(&bytes).await.unwrap();
                drop(there);
                let _ = carry(here, silence(), &mut Vec::new(), Duration::from_secs(1)).await;
            });
        }
    }
}
