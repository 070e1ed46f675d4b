//! A connection that lasts.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use underpass_testbed::tenant::Door;

use crate::client::{Client, Connection};

/// Often enough to be busy, and not so often that two hundred of them keep a processor from what they test.
const EVERY_MILLIS: u64 = 500;

/// What was heard over it.
#[derive(Default)]
pub(crate) struct Stream {
    heard: AtomicU64,
    longest_silence_micros: AtomicU64,
    trouble: Mutex<Option<String>>,
}

/// One line of it.
struct Counted {
    number: u64,
    /// The service and its pod.
    by: String,
}

impl Stream {
    /// When this returns, `who` counts; from then on it is watched.
    pub(crate) fn open(client: &Client, door: &Door, who: &str) -> Result<Arc<Self>, String> {
        let mut lines = begin(client, door).map_err(|error| error.to_string())?;
        let first = counted(&mut lines).map_err(|error| error.to_string())?;
        if first.number != 0 || first.by.split(' ').next() != Some(who) {
            return Err(format!("begins with {} by {}", first.number, first.by));
        }
        let stream = Arc::new(Self::default());
        let (kept, door) = (Arc::clone(&stream), format!("{}:{}", door.name, door.port));
        std::thread::spawn(move || {
            let why = kept.follow(lines, &first.by);
            *kept.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{door}, {}: {why}", first.by));
        });
        Ok(stream)
    }

    pub(crate) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    pub(crate) fn longest_silence(&self) -> Duration {
        Duration::from_micros(self.longest_silence_micros.load(Ordering::Relaxed))
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns with what is wrong, should anything ever be.
    fn follow(&self, mut lines: BufReader<Connection>, by: &str) -> String {
        let mut last = Instant::now();
        for number in 1.. {
            let next = match counted(&mut lines) {
                Ok(next) => next,
                Err(error) => return format!("broken after {number} numbers: {error}"),
            };
            if next.number != number || next.by != by {
                return format!("{} by {} where {number} should have come", next.number, next.by);
            }
            self.longest_silence_micros.fetch_max(last.elapsed().as_micros() as u64, Ordering::Relaxed);
            last = Instant::now();
            self.heard.store(number, Ordering::Relaxed);
        }
        "all numbers have been said".to_owned()
    }
}

fn begin(client: &Client, door: &Door) -> io::Result<BufReader<Connection>> {
    let mut connection = client.open(door)?;
    write!(connection, "GET /stream?every={EVERY_MILLIS} HTTP/1.1\r\nHost: {}\r\n\r\n", door.name)?;
    let mut lines = BufReader::new(connection);
    while !line(&mut lines)?.is_empty() {}
    Ok(lines)
}

fn counted(lines: &mut BufReader<Connection>) -> io::Result<Counted> {
    let line = line(lines)?;
    let counted =
        line.split_once(' ').and_then(|(number, by)| Some(Counted { number: number.parse().ok()?, by: by.to_owned() }));
    counted.ok_or_else(|| io::Error::other(format!("not a number and a name: {line}")))
}

fn line(lines: &mut BufReader<Connection>) -> io::Result<String> {
    let mut line = String::new();
    if lines.read_line(&mut line)? == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}
