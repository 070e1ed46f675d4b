//! What stands behind whatever is measured: four services, in this process, on plain threads. Their processor time does not count, so none
//! of this has to be clever, but it must not be what everybody waits for.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use super::client::MESSAGE;

/// Enough to be always ahead of the clients.
const GREETERS: usize = 48;
const CHUNK: usize = 128 << 10;

/// Where the services are. They run until the process ends.
pub struct Backend {
    /// Reads a hello, answers one byte, and waits for the end.
    pub greet: SocketAddr,
    /// The same, but keeps the connection until [`Backend::let_go`].
    pub hold: SocketAddr,
    /// Sends back what comes, message by message.
    pub echo: SocketAddr,
    /// Reads as much as `bulk_bytes` says, and sends as much at the same time.
    pub bulk: SocketAddr,
    held: Arc<Mutex<Vec<TcpStream>>>,
}

impl Backend {
    pub fn start(bulk_bytes: u64) -> anyhow::Result<Self> {
        let held = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&held);
        Ok(Self {
            greet: serve(GREETERS, |stream| drop(greet(stream)))?,
            hold: serve(4, move |stream| {
                if let Ok(stream) = hold(stream) {
                    keep.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
                }
            })?,
            echo: serve_each(|stream| drop(echo(stream)))?,
            bulk: serve_each(move |stream| drop(bulk(stream, bulk_bytes)))?,
            held,
        })
    }

    /// Closes what is held.
    pub fn let_go(&self) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// So many threads that accept and serve one connection after the other.
fn serve(threads: usize, service: impl Fn(TcpStream) + Clone + Send + 'static) -> anyhow::Result<SocketAddr> {
    let listener = listen()?;
    for _ in 0..threads {
        let (listener, service) = (listener.try_clone()?, service.clone());
        std::thread::spawn(move || listener.incoming().flatten().for_each(&service));
    }
    Ok(listener.local_addr()?)
}

/// A thread for each connection.
fn serve_each(service: impl Fn(TcpStream) + Clone + Send + 'static) -> anyhow::Result<SocketAddr> {
    serve(1, move |stream| {
        let service = service.clone();
        std::thread::spawn(move || service(stream));
    })
}

/// With a backlog that a burst of clients does not overflow.
fn listen() -> anyhow::Result<TcpListener> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0)))?;
    listen(&socket, 4096)?;
    Ok(TcpListener::from(socket))
}

/// Reads one record: the hello that the client sent first.
fn read_hello(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut header = [0; 5];
    stream.read_exact(&mut header)?;
    let mut body = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
    stream.read_exact(&mut body)
}

fn greet(mut stream: TcpStream) -> std::io::Result<()> {
    read_hello(&mut stream)?;
    stream.write_all(b"!")?;
    wait_for_end(&mut stream)
}

fn hold(mut stream: TcpStream) -> std::io::Result<TcpStream> {
    read_hello(&mut stream)?;
    stream.write_all(b"!")?;
    Ok(stream)
}

fn echo(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    read_hello(&mut stream)?;
    let mut message = [0; MESSAGE];
    loop {
        stream.read_exact(&mut message)?;
        stream.write_all(&message)?;
    }
}

fn bulk(mut stream: TcpStream, bytes: u64) -> std::io::Result<()> {
    read_hello(&mut stream)?;
    let mut writer = stream.try_clone()?;
    let sending = std::thread::spawn(move || send(&mut writer, bytes));
    receive(&mut stream, bytes)?;
    sending.join().unwrap_or(Ok(()))?;
    // Tells the client that all has come, so that nobody closes early: not every proxy passes half an end on.
    stream.write_all(b"!")?;
    wait_for_end(&mut stream)
}

fn wait_for_end(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.read(&mut [0]).map(drop)
}

/// Sends so many bytes.
pub(super) fn send(stream: &mut TcpStream, bytes: u64) -> std::io::Result<()> {
    let chunk = vec![b'x'; CHUNK];
    let mut left = bytes;
    while left > 0 {
        let size = left.min(CHUNK as u64);
        stream.write_all(&chunk[..size as usize])?;
        left -= size;
    }
    Ok(())
}

/// Receives so many bytes.
pub(super) fn receive(stream: &mut TcpStream, bytes: u64) -> std::io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    let mut left = bytes;
    while left > 0 {
        let most = left.min(CHUNK as u64) as usize;
        match stream.read(&mut chunk[..most])? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => left -= count as u64,
        }
    }
    Ok(())
}
