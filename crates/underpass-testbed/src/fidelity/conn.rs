//! One side of a connection, with words for what a case expects of it. Nothing here waits for ever.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// What was seen, when it is not what was expected.
pub(super) type Outcome<T = ()> = Result<T, String>;

/// Long enough for a busy machine; nobody waits it out unless something is broken.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// How long nothing has to come, when nothing may come.
pub(super) const SILENCE: Duration = Duration::from_millis(250);

/// More than all buffers of four sockets and a proxy together.
const NEVER_TAKEN: usize = 128 << 20;

pub(super) struct Conn {
    stream: TcpStream,
    /// For messages.
    who: &'static str,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Fin,
    Reset,
    /// It did not end in time.
    Open,
}

impl Conn {
    pub(super) fn to(address: SocketAddr) -> Outcome<Self> {
        let stream =
            TcpStream::connect_timeout(&address, PATIENCE).map_err(|error| format!("no connection: {error}"))?;
        Ok(Self::of(stream, "client"))
    }

    pub(super) fn of(stream: TcpStream, who: &'static str) -> Self {
        // Errors here would show at the first byte.
        let _ = stream.set_nonblocking(false);
        let _ = stream.set_nodelay(true);
        let _ = stream.set_read_timeout(Some(PATIENCE));
        let _ = stream.set_write_timeout(Some(PATIENCE));
        Self { stream, who }
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }

    pub(super) fn local_addr(&self) -> Outcome<SocketAddr> {
        self.stream.local_addr().map_err(|error| self.said(&error))
    }

    /// The same connection, for another thread.
    pub(super) fn twin(&self) -> Outcome<Self> {
        let stream = self.stream.try_clone().map_err(|error| self.said(&error))?;
        Ok(Self { stream, who: self.who })
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Outcome {
        self.stream.write_all(bytes).map_err(|error| format!("{} cannot send: {}", self.who, error.kind()))
    }

    /// Byte by byte, each in a segment of its own as far as the kernel lets it.
    pub(super) fn dribble(&mut self, bytes: &[u8]) -> Outcome {
        for byte in bytes {
            self.send(&[*byte])?;
            pause(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Sends until nothing more is taken; how much was.
    pub(super) fn fill(&self) -> Outcome<usize> {
        let chunk = vec![b'x'; 64 << 10];
        let mut stream = &self.stream;
        let _ = stream.set_write_timeout(Some(SILENCE));
        let mut taken = 0;
        while let Ok(count) = stream.write(&chunk) {
            taken += count;
            if taken > NEVER_TAKEN {
                return Err(format!("{} got rid of {taken} bytes that nobody reads", self.who));
            }
        }
        let _ = stream.set_write_timeout(Some(PATIENCE));
        Ok(taken)
    }

    /// So many bytes.
    pub(super) fn receive(&mut self, count: usize) -> Outcome<Vec<u8>> {
        let mut bytes = vec![0; count];
        let mut filled = 0;
        while filled < count {
            match self.stream.read(&mut bytes[filled..]) {
                Ok(0) => return Err(format!("{} got {filled} of {count} bytes, then FIN", self.who)),
                Ok(more) => filled += more,
                Err(error) => return Err(format!("{} got {filled} of {count} bytes, then {}", self.who, kind(&error))),
            }
        }
        Ok(bytes)
    }

    /// Exactly these bytes.
    pub(super) fn expect(&mut self, bytes: &[u8]) -> Outcome {
        let received = self.receive(bytes.len())?;
        if received == bytes { Ok(()) } else { Err(format!("{} got other bytes than were sent", self.who)) }
    }

    /// No more bytes, and FIN.
    pub(super) fn expect_fin(&mut self) -> Outcome {
        match self.rest(PATIENCE) {
            (bytes, End::Fin) if bytes.is_empty() => Ok(()),
            (bytes, end) => Err(format!("{} got {} bytes and {end:?} where FIN was due", self.who, bytes.len())),
        }
    }

    /// RST, whatever came before it.
    pub(super) fn expect_reset(&mut self) -> Outcome {
        match self.rest(PATIENCE) {
            (_, End::Reset) => Ok(()),
            (bytes, end) => Err(format!("{} got {} bytes and {end:?} where RST was due", self.who, bytes.len())),
        }
    }

    /// No bytes but perhaps a TLS alert, and FIN or RST.
    pub(super) fn expect_refusal(&mut self, within: Duration) -> Outcome {
        const ALERT: u8 = 21;
        match self.rest(within) {
            (_, End::Open) => Err(format!("{} is still connected after {} s", self.who, within.as_secs())),
            (bytes, _) if bytes.first().is_none_or(|byte| *byte == ALERT) => Ok(()),
            (bytes, _) => Err(format!("{} got {} bytes where a refusal was due", self.who, bytes.len())),
        }
    }

    /// Nothing, for a moment.
    pub(super) fn expect_silence(&mut self) -> Outcome {
        match self.rest(SILENCE) {
            (bytes, End::Open) if bytes.is_empty() => Ok(()),
            (bytes, end) => Err(format!("{} got {} bytes and {end:?} where nothing was due", self.who, bytes.len())),
        }
    }

    /// All bytes until the end, or until the time is over.
    pub(super) fn rest(&mut self, within: Duration) -> (Vec<u8>, End) {
        let deadline = Instant::now() + within;
        let (mut bytes, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // Zero would mean no limit at all.
            let _ = self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1))));
            let end = match self.stream.read(&mut chunk) {
                Ok(0) => End::Fin,
                Ok(count) => {
                    bytes.extend_from_slice(&chunk[..count]);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::ConnectionReset => End::Reset,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => End::Open,
            };
            let _ = self.stream.set_read_timeout(Some(PATIENCE));
            return (bytes, end);
        }
    }

    /// FIN to the other side; reading goes on.
    pub(super) fn finish(&mut self) -> Outcome {
        self.stream.shutdown(Shutdown::Write).map_err(|error| self.said(&error))
    }

    /// RST to the other side.
    pub(super) fn reset(self) -> Outcome {
        let linger = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
        linger.map_err(|error| format!("{} cannot be reset: {error}", self.who))
    }

    fn said(&self, error: &std::io::Error) -> String {
        format!("{}: {error}", self.who)
    }
}

/// Part of what is done to the proxy, never a wait for something.
pub(super) fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Bytes that repeat so rarely that a piece in the wrong place is seen.
pub(super) fn noise(size: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..size).map(|_| next()).collect()
}

fn kind(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionReset => "RST".to_owned(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "nothing more".to_owned(),
        other => other.to_string(),
    }
}
