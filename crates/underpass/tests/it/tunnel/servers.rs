//! Servers on this host's 127.0.0.1, where no container can reach them by itself.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use tokio::time::timeout;

/// Gives back what it gets, when it has got all of it. It ends with the test's process.
pub(super) fn echo() -> u16 {
    echo_at(Ipv4Addr::LOCALHOST.into())
}

/// The same at another address of this host.
pub(super) fn echo_at(address: IpAddr) -> u16 {
    serve_at(address, |mut stream| {
        let mut all = Vec::new();
        // A client that goes away in the middle is no trouble of the server's.
        let _ = stream.read_to_end(&mut all);
        let _ = stream.write_all(&all);
    })
}

/// Takes connections and says nothing, until they end. It has no thread for each.
pub(super) fn silent() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut open = VecDeque::new();
        for stream in listener.incoming().flatten() {
            open.push_back(stream);
            if open.len() > 2000 {
                open.pop_front();
            }
        }
    });
    port
}

/// Says its name to whoever connects.
pub(super) fn named(name: &'static str) -> u16 {
    serve(move |mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
        let _ = stream.write_all(name.as_bytes());
    })
}

/// Answers every question for an address with 192.0.2.55: the one thing that a guest can ask by datagrams.
pub(super) fn names() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut question) {
            let _ = socket.send_to(&answer(&question[..length]), client);
        }
    });
    port
}

/// The question with the answer behind it, which points back at its name; none for other types than A.
fn answer(question: &[u8]) -> Vec<u8> {
    const A: [u8; 2] = [0, 1];
    let asks_for_address = question[..question.len() - 2].ends_with(&A);
    let mut answer = question.to_vec();
    answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(asks_for_address), 0, 0, 0, 0]);
    if asks_for_address {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 55]);
    }
    answer
}

/// The checksums of what a server has sent, and of what it has got meanwhile.
pub(super) struct Sums {
    pub(super) sent: String,
    pub(super) received: String,
}

/// Sends so many bytes that nobody knows beforehand to whoever connects, gets as many at the same time, and tells both checksums.
pub(super) fn random(bytes: u64) -> (u16, mpsc::Receiver<Sums>) {
    let (tell, told) = mpsc::channel();
    let port = serve(move |stream| {
        let receiving =
            Command::new("sha256sum").stdin(OwnedFd::from(stream.try_clone().unwrap())).stdout(Stdio::piped()).spawn();
        let mut send = Command::new("bash");
        send.args(["-c", "head -c $0 /dev/urandom | tee >(sha256sum >&2)", &bytes.to_string()]);
        let sent = send.stdout(OwnedFd::from(stream.try_clone().unwrap())).stderr(Stdio::piped()).spawn().unwrap();
        drop(send);
        let said = sent.wait_with_output().unwrap().stderr;
        let _ = stream.shutdown(Shutdown::Write);
        let received = receiving.unwrap().wait_with_output().unwrap().stdout;
        let text = |bytes| String::from_utf8(bytes).unwrap().trim_end().to_owned();
        let _ = tell.send(Sums { sent: text(said), received: text(received) });
    });
    (port, told)
}

/// Listens, and never accepts: its queue is full, so that nobody's connection is even begun. As long as what is given lives.
pub(super) async fn deaf() -> (u16, impl Sized) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut filling = Vec::new();
    let connect = || timeout(Duration::from_millis(300), tokio::net::TcpStream::connect(address));
    while let Ok(Ok(stream)) = connect().await {
        filling.push(stream);
    }
    (address.port(), (listener, filling))
}

/// A port on which nothing listens: the listener that had it is gone.
pub(super) fn dead() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn serve(answer: impl Fn(TcpStream) + Clone + Send + 'static) -> u16 {
    serve_at(Ipv4Addr::LOCALHOST.into(), answer)
}

fn serve_at(address: IpAddr, answer: impl Fn(TcpStream) + Clone + Send + 'static) -> u16 {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || answer(stream));
        }
    });
    port
}
