//! What clients do, the same for everything that is measured.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::backend;
use crate::hello::Hello;

/// Of a round trip, in bytes.
pub const MESSAGE: usize = 64;

const PATIENCE: Duration = Duration::from_secs(20);
/// Of a connection that is there, but not busy.
const BETWEEN_MESSAGES: Duration = Duration::from_millis(20);
const BULK_PATIENCE: Duration = Duration::from_secs(120);

/// Connects and says whom it wants.
pub fn open(at: SocketAddr, name: &str) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    stream.write_all(&Hello::to(name).bytes())?;
    Ok(stream)
}

/// A connection that was greeted.
pub fn greeted(at: SocketAddr, name: &str) -> std::io::Result<TcpStream> {
    let mut stream = open(at, name)?;
    stream.read_exact(&mut [0])?;
    Ok(stream)
}

/// So many connections, a few at a time, over all names in turn. An error when one of them fails.
pub fn connections(at: SocketAddr, names: &[String], count: usize, at_once: usize) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let work = || -> anyhow::Result<()> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return Ok(());
            }
            greeted(at, &names[index % names.len()]).with_context(|| format!("connection {index}"))?;
        }
    };
    at_the_same_time(at_once, |_| work())
}

/// Bulk both ways on so many connections.
pub fn bulk(at: SocketAddr, name: &str, connections: usize, bytes: u64) -> anyhow::Result<()> {
    at_the_same_time(connections, |_| {
        let mut stream = open(at, name)?;
        stream.set_read_timeout(Some(BULK_PATIENCE))?;
        stream.set_write_timeout(Some(BULK_PATIENCE))?;
        let mut writer = stream.try_clone()?;
        let sending = std::thread::spawn(move || backend::send(&mut writer, bytes));
        backend::receive(&mut stream, bytes).context("receiving")?;
        sending.join().unwrap_or(Ok(())).context("sending")?;
        stream.read_exact(&mut [0]).context("the backend's last word")
    })
}

/// So many connections, each with so many round trips. How long each of them took.
pub fn round_trips(at: SocketAddr, name: &str, connections: usize, each: usize) -> anyhow::Result<Vec<Duration>> {
    let all = Mutex::new(Vec::with_capacity(connections * each));
    at_the_same_time(connections, |_| {
        let mut stream = open(at, name)?;
        let mut message = [b'x'; MESSAGE];
        let mut times = Vec::with_capacity(each);
        for _ in 0..each {
            let began = Instant::now();
            stream.write_all(&message)?;
            stream.read_exact(&mut message)?;
            times.push(began.elapsed());
        }
        all.lock().unwrap_or_else(PoisonError::into_inner).extend(times);
        Ok(())
    })?;
    Ok(all.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// So many connections that are greeted and then stay silent.
pub fn idle(at: SocketAddr, name: &str, count: usize) -> anyhow::Result<Vec<TcpStream>> {
    (0..count).map(|index| greeted(at, name).with_context(|| format!("idle connection {index}"))).collect()
}

/// Connections that stay, with a round trip now and then until it is over. How many of them broke.
pub fn standing(at: SocketAddr, name: &str, count: usize, over: &AtomicBool) -> anyhow::Result<usize> {
    let opened: std::io::Result<Vec<_>> = (0..count).map(|_| open(at, name)).collect();
    let mut streams = opened?;
    let mut message = [b'x'; MESSAGE];
    let mut works =
        |stream: &mut TcpStream| stream.write_all(&message).and_then(|()| stream.read_exact(&mut message)).is_ok();
    while !over.load(Ordering::Relaxed) {
        streams.retain_mut(&mut works);
        std::thread::sleep(BETWEEN_MESSAGES);
    }
    streams.retain_mut(&mut works);
    Ok(count - streams.len())
}

fn at_the_same_time(count: usize, work: impl Fn(usize) -> anyhow::Result<()> + Sync) -> anyhow::Result<()> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..count).map(|index| scope.spawn(move || work(index))).collect();
        let results = threads.into_iter().map(|thread| thread.join().expect("clients do not panic"));
        // All of them end before the first error is told.
        results.collect::<Vec<_>>().into_iter().collect()
    })
}
