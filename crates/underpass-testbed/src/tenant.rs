//! Somebody on a machine of the tenant network: keeps hundreds of connections open and watches them, and says who answers a new one.
//!
//! It is the program `tenant`, which runs in the machine's network and is told what to do line by line. A curl for each connection was
//! rejected: two hundred of them leave no processor for what they test.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::program::built_program;

const PROGRAM: &str = "tenant";
/// Who answers when a connection is refused.
pub const NOBODY: &str = "nobody";

/// Where a connection is made to, and whom it asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Door {
    pub name: String,
    pub port: u16,
}

/// What the program is told.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// So many connections more that are to last, over which `who` counts.
    Stream {
        door: Door,
        who: String,
        count: usize,
    },
    /// New connections, one after the other, until so many in a row are answered by `then`. Until then `first` may answer, and nobody else.
    Await {
        door: Door,
        first: Vec<String>,
        then: String,
        in_a_row: usize,
    },
    /// New connections, none of which waits for long, until one is answered by `who`.
    Return {
        door: Door,
        who: String,
    },
    /// The same after the last that was answered before; see [`Tenant::outage`].
    Outage {
        door: Door,
        who: String,
    },
    /// New connections beside everything else, from now on; all are to be answered by `who`.
    Watch {
        door: Door,
        who: String,
    },
    Report,
}

/// What it says, once for every order.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    Done,
    /// So long ago the first of those in a row was answered.
    Obeyed {
        ago: Duration,
    },
    /// From the last connection that was answered to the first that was again.
    Back {
        lasted: Duration,
    },
    Report(Report),
    Wrong(String),
}

/// What became of everything so far.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    pub streams: usize,
    /// Of which these broke, or said something that they should not.
    pub broken: Vec<String>,
    /// How often the most silent of them was heard.
    pub least: u64,
    /// The longest that one of them was silent.
    pub longest_silence: Duration,
    /// Connections that were made beside.
    pub watched: u64,
    /// Of which these were not answered as they should.
    pub wrong: Vec<String>,
}

/// It ends with this value.
pub struct Tenant {
    child: Child,
    orders: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
}

impl Door {
    pub fn new(name: &str, port: u16) -> Self {
        Self { name: name.to_owned(), port }
    }
}

impl Tenant {
    /// On that machine; all names are at one address, and servers must have certificates of that authority.
    pub fn on(machine: &Machine, at: &str, authority: &Path) -> Self {
        let script = format!("exec '{}' {at} '{}'", built_program(PROGRAM).display(), authority.display());
        let mut command = machine.command(&script);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a program can be started on a machine");
        let orders = child.stdin.take();
        let replies = BufReader::new(child.stdout.take().expect("stdout is piped"));
        Self { child, orders, replies }
    }

    /// Comes back when all of them are open.
    #[track_caller]
    pub fn stream(&mut self, door: &Door, who: &str, count: usize) {
        self.tell(&Order::Stream { door: door.clone(), who: who.to_owned(), count });
    }

    /// Since when new connections are answered by `then`; see [`Order::Await`].
    #[track_caller]
    pub fn await_answer(&mut self, door: &Door, first: &[&str], then: &str, in_a_row: usize) -> Instant {
        let first = first.iter().map(|who| (*who).to_owned()).collect();
        let reply = self.tell(&Order::Await { door: door.clone(), first, then: then.to_owned(), in_a_row });
        let Reply::Obeyed { ago } = reply else { panic!("{reply:?} is no answer to that") };
        Instant::now() - ago
    }

    /// Until somebody who was gone answers again; see [`Order::Return`].
    #[track_caller]
    pub fn await_return(&mut self, door: &Door, who: &str) {
        self.tell(&Order::Return { door: door.clone(), who: who.to_owned() });
    }

    /// For how long somebody was gone who still answers now: from the last connection that was answered to the first that is again.
    #[track_caller]
    pub fn outage(&mut self, door: &Door, who: &str) -> Duration {
        let reply = self.tell(&Order::Outage { door: door.clone(), who: who.to_owned() });
        let Reply::Back { lasted } = reply else { panic!("{reply:?} is no answer to that") };
        lasted
    }

    #[track_caller]
    pub fn watch(&mut self, door: &Door, who: &str) {
        self.tell(&Order::Watch { door: door.clone(), who: who.to_owned() });
    }

    #[track_caller]
    pub fn report(&mut self) -> Report {
        let reply = self.tell(&Order::Report);
        let Reply::Report(report) = reply else { panic!("{reply:?} is no report") };
        report
    }

    #[track_caller]
    fn tell(&mut self, order: &Order) -> Reply {
        let line = serde_json::to_string(order).expect("an order can be written");
        let orders = self.orders.as_mut().expect("stdin is piped");
        writeln!(orders, "{line}").unwrap_or_else(|error| panic!("the tenant has ended before {order:?}: {error}"));
        let mut reply = String::new();
        self.replies.read_line(&mut reply).expect("what the tenant says can be read");
        let reply = serde_json::from_str(&reply).unwrap_or_else(|error| panic!("{order:?}: {error}: {reply:?}"));
        if let Reply::Wrong(why) = &reply {
            panic!("{order:?}: {why}");
        }
        reply
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        // It ends when nobody can tell it anything any more.
        self.orders = None;
        let _ = self.child.wait();
    }
}
