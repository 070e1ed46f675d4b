//! From one process to its successor: the listening sockets themselves are passed on, so that there is no moment in which nobody
//! listens and no connection that waits to be accepted is lost. The predecessor keeps serving until the successor says that it does; if
//! that dies before, nothing has happened.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg, sockopt,
};
use underpass_tables::Transport;

use crate::relay::Socket;

/// The kernel passes at most 253 at once.
const AT_ONCE: usize = 128;
/// A successor that says nothing for so long is not one.
const PATIENCE: Duration = Duration::from_secs(10);
/// One address in a message: transport, family, port and 16 bytes.
const ENTRY_BYTES: usize = 20;
const SERVING: u8 = b'!';

/// Why sockets could not be passed on.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    #[error("the hand-over socket failed")]
    Io(#[source] io::Error),
    #[error("the other process runs as another user ({0}); both must be of the same one")]
    Stranger(u32),
    #[error("the other process speaks another hand-over protocol")]
    Garbled,
}

impl From<io::Error> for HandoverError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// What a predecessor handed over. Until it is told that it is not needed any more, it goes on.
pub struct Inherited {
    pub sockets: Vec<Socket>,
    predecessor: UnixStream,
}

impl Inherited {
    /// Tells the predecessor that we serve.
    pub fn serving(mut self) -> Result<(), HandoverError> {
        Ok(self.predecessor.write_all(&[SERVING])?)
    }
}

/// Asks a predecessor for its sockets; None when there is none.
pub fn take(path: &Path) -> Result<Option<Inherited>, HandoverError> {
    let mut predecessor = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    check_peer(&predecessor)?;
    predecessor.set_read_timeout(Some(PATIENCE))?;
    let mut count = [0; 4];
    predecessor.read_exact(&mut count)?;
    let count = u32::from_be_bytes(count) as usize;
    let mut sockets = Vec::new();
    while sockets.len() < count {
        let some = receive(&predecessor, (count - sockets.len()).min(AT_ONCE))?;
        sockets.extend(some);
    }
    Ok(Some(Inherited { sockets, predecessor }))
}

/// Where successors ask.
pub struct Offer {
    listener: UnixListener,
}

impl Offer {
    /// Takes the place of whoever offered there before.
    pub fn bind(path: &Path) -> Result<Self, HandoverError> {
        let fresh = path.with_extension(format!("{}.new", std::process::id()));
        let listener = UnixListener::bind(&fresh)?;
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(&fresh, path)?;
        Ok(Self { listener })
    }

    /// Waits until a successor has taken the sockets and serves. Those that fail on the way are told to `failed`, and the wait goes on.
    pub fn wait(&self, sockets: impl Fn() -> Vec<Socket>, failed: impl Fn(HandoverError)) -> Result<(), HandoverError> {
        loop {
            let (successor, _) = self.listener.accept()?;
            match give(successor, &sockets()) {
                Ok(()) => return Ok(()),
                Err(error) => failed(error),
            }
        }
    }
}

fn give(mut successor: UnixStream, sockets: &[Socket]) -> Result<(), HandoverError> {
    check_peer(&successor)?;
    successor.set_read_timeout(Some(PATIENCE))?;
    successor.set_write_timeout(Some(PATIENCE))?;
    let count = u32::try_from(sockets.len()).map_err(|_| HandoverError::Garbled)?;
    successor.write_all(&count.to_be_bytes())?;
    for some in sockets.chunks(AT_ONCE) {
        send(&successor, some)?;
    }
    let mut answer = [0];
    successor.read_exact(&mut answer)?;
    if answer == [SERVING] { Ok(()) } else { Err(HandoverError::Garbled) }
}

fn send(successor: &UnixStream, sockets: &[Socket]) -> Result<(), HandoverError> {
    let entries: Vec<u8> = sockets.iter().flat_map(entry).collect();
    let fds: Vec<_> = sockets.iter().map(|socket| socket.fd.as_fd()).collect();
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(HandoverError::Garbled);
    }
    let sent =
        sendmsg(successor, &[IoSlice::new(&entries)], &mut control, SendFlags::NOSIGNAL).map_err(io::Error::from)?;
    // A message of this size goes into an empty Unix socket whole.
    if sent == entries.len() { Ok(()) } else { Err(HandoverError::Garbled) }
}

fn receive(predecessor: &UnixStream, most: usize) -> Result<Vec<Socket>, HandoverError> {
    let mut entries = vec![0; most * ENTRY_BYTES];
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(predecessor, &mut [IoSliceMut::new(&mut entries)], &mut control, RecvFlags::CMSG_CLOEXEC);
    let bytes = received.map_err(io::Error::from)?.bytes;
    let fds: Vec<OwnedFd> = control
        .drain()
        .flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<_>>(),
            _ => Vec::new(),
        })
        .collect();
    let entries: Vec<_> = entries[..bytes].chunks_exact(ENTRY_BYTES).map(parse_entry).collect();
    if entries.is_empty() || entries.len() != fds.len() {
        return Err(HandoverError::Garbled);
    }
    let socket = |(entry, fd): (Option<(Transport, SocketAddr)>, OwnedFd)| {
        let (transport, address) = entry.ok_or(HandoverError::Garbled)?;
        Ok(Socket { transport, address, fd: Arc::new(fd) })
    };
    entries.into_iter().zip(fds).map(socket).collect()
}

fn entry(socket: &Socket) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    entry[0] = match socket.transport {
        Transport::Stream => 1,
        Transport::Datagram => 2,
    };
    entry[2..4].copy_from_slice(&socket.address.port().to_be_bytes());
    match socket.address.ip() {
        std::net::IpAddr::V4(address) => {
            entry[1] = 4;
            entry[4..8].copy_from_slice(&address.octets());
        }
        std::net::IpAddr::V6(address) => {
            entry[1] = 6;
            entry[4..].copy_from_slice(&address.octets());
        }
    }
    entry
}

fn parse_entry(entry: &[u8]) -> Option<(Transport, SocketAddr)> {
    let transport = match entry.first()? {
        1 => Transport::Stream,
        2 => Transport::Datagram,
        _ => return None,
    };
    let port = u16::from_be_bytes(entry.get(2..4)?.try_into().ok()?);
    let address = match entry.get(1)? {
        4 => <[u8; 4]>::try_from(entry.get(4..8)?).ok()?.into(),
        6 => <[u8; 16]>::try_from(entry.get(4..20)?).ok()?.into(),
        _ => return None,
    };
    Some((transport, SocketAddr::new(address, port)))
}

/// Sockets are given to and taken from processes of our own user only, or root's.
fn check_peer(stream: &UnixStream) -> Result<(), HandoverError> {
    let peer = sockopt::socket_peercred(stream).map_err(io::Error::from)?.uid;
    if peer == rustix::process::geteuid() || peer.is_root() {
        Ok(())
    } else {
        Err(HandoverError::Stranger(peer.as_raw()))
    }
}
