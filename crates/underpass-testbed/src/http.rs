//! Just enough HTTP for pages that programs have about themselves.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);

/// Status and body.
pub fn get(address: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // Envoy wants HTTP/1.1, and may answer in chunks; their sizes stand on lines of their own and are left there.
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
    Ok((status, body.to_owned()))
}

/// The body of a good answer.
pub(crate) fn page(address: SocketAddr, path: &str) -> Option<String> {
    get(address, path).ok().filter(|(status, _)| *status == 200).map(|(_, body)| body)
}
