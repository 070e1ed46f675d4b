//! What a machine on a tenant network runs: see `underpass_testbed::tenant`.
//!
//! `tenant ADDRESS AUTHORITY` takes orders from stdin, one of JSON in each line, and answers each on stdout. It ends with its stdin.
//!
//! One thread for each connection that lasts: a test has hundreds of them and not thousands.

mod client;
mod stream;
mod watch;

use std::io::{BufRead, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use client::Client;
use stream::Stream;
use underpass_testbed::tenant::{Door, Order, Reply, Report};
use watch::Watch;

/// For something to become as it should be. Nobody waits it out unless something is broken.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two connections that ask the same: whoever answers has other things to do.
const PAUSE: Duration = Duration::from_millis(3);

#[derive(Parser)]
struct Arguments {
    address: IpAddr,
    authority: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let client = Client::new(arguments.address, &arguments.authority)?;
    let mut connections = Connections { client: Arc::new(client), streams: Vec::new(), watches: Vec::new() };
    for line in std::io::stdin().lock().lines() {
        let reply = connections.obey(serde_json::from_str(&line?)?).unwrap_or_else(Reply::Wrong);
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "{}", serde_json::to_string(&reply)?)?;
        stdout.flush()?;
    }
    Ok(())
}

struct Connections {
    client: Arc<Client>,
    streams: Vec<Arc<Stream>>,
    watches: Vec<Arc<Watch>>,
}

impl Connections {
    fn obey(&mut self, order: Order) -> Result<Reply, String> {
        match order {
            Order::Stream { door, who, count } => {
                for number in 0..count {
                    let opened = Stream::open(&self.client, &door, &who);
                    self.streams.push(opened.map_err(|why| format!("stream {number}: {why}"))?);
                }
                Ok(Reply::Done)
            }
            Order::Await { door, first, then, in_a_row } => self.until_obeyed(&door, &first, &then, in_a_row),
            Order::Return { door, who } => self.until(&door, &who, true).map(|_| Reply::Done),
            Order::Outage { door, who } => {
                let answered = self.until(&door, &who, false)?;
                self.until(&door, &who, true)?;
                Ok(Reply::Back { lasted: answered.elapsed() })
            }
            Order::Watch { door, who } => {
                self.watches.push(Watch::start(&self.client, door, who));
                Ok(Reply::Done)
            }
            Order::Report => Ok(Reply::Report(self.report())),
        }
    }

    fn until_obeyed(&self, door: &Door, first: &[String], then: &str, in_a_row: usize) -> Result<Reply, String> {
        let deadline = Instant::now() + PATIENCE;
        let (mut since, mut count) = (Instant::now(), 0);
        while count < in_a_row {
            let who = self.client.who_answers(door)?;
            if who == then {
                if count == 0 {
                    since = Instant::now();
                }
                count += 1;
            } else if first.contains(&who) {
                count = 0;
            } else {
                return Err(format!("answered by {who}"));
            }
            if Instant::now() > deadline {
                return Err(format!("still answered by {who} after {PATIENCE:?}"));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(Reply::Obeyed { ago: since.elapsed() })
    }

    /// Until `who` answers, or does not any more. When it was last answered, or asked for the first time.
    fn until(&self, door: &Door, who: &str, answers: bool) -> Result<Instant, String> {
        let (deadline, mut last) = (Instant::now() + PATIENCE, Instant::now());
        while self.client.is_answered_by(door, who) != answers {
            if Instant::now() > deadline {
                return Err(format!("{}answered by {who} in {PATIENCE:?}", if answers { "not " } else { "still " }));
            }
            last = Instant::now();
            std::thread::sleep(PAUSE);
        }
        Ok(last)
    }

    fn report(&self) -> Report {
        Report {
            streams: self.streams.len(),
            broken: self.streams.iter().filter_map(|stream| stream.trouble()).collect(),
            least: self.streams.iter().map(|stream| stream.heard()).min().unwrap_or_default(),
            longest_silence: self.streams.iter().map(|stream| stream.longest_silence()).max().unwrap_or_default(),
            watched: self.watches.iter().map(|watch| watch.asked()).sum(),
            wrong: self.watches.iter().flat_map(|watch| watch.wrong()).collect(),
        }
    }
}
