//! Servers on this host's 127.0.0.1, where no container can reach them by itself.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};

/// Gives back what it gets, when it has got all of it. It ends with the test's process.
pub(super) fn echo() -> u16 {
    serve(|mut stream| {
        let mut all = Vec::new();
        // A client that goes away in the middle is no trouble of the server's.
        let _ = stream.read_to_end(&mut all);
        let _ = stream.write_all(&all);
    })
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

/// A port on which nothing listens: the listener that had it is gone.
pub(super) fn dead() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn serve(answer: impl Fn(TcpStream) + Clone + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || answer(stream));
        }
    });
    port
}
