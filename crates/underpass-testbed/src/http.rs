//! Just enough HTTP for pages that programs have about themselves.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);

/// Status and body.
pub fn get(address: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // Envoy wants HTTP/1.1.
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
    let is_chunked = head.to_ascii_lowercase().contains("\r\ntransfer-encoding: chunked");
    let body = if is_chunked { joined(body).ok_or(io::ErrorKind::InvalidData)? } else { body.to_owned() };
    Ok((status, body))
}

/// The body of a good answer.
pub(crate) fn page(address: SocketAddr, path: &str) -> Option<String> {
    get(address, path).ok().filter(|(status, _)| *status == 200).map(|(_, body)| body)
}

/// What came in chunks, each after a line with its size.
fn joined(mut chunks: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (size, rest) = chunks.split_once("\r\n")?;
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.push_str(rest.get(..size)?);
        chunks = rest.get(size..)?.strip_prefix("\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_joined() {
        assert_eq!(joined("4\r\nWiki\r\n7\r\npedia i\r\n0\r\n\r\n").as_deref(), Some("Wikipedia i"));
        assert_eq!(joined("4\r\nWi"), None);
    }
}
