//! What a relay owes to both sides, as cases that can be run against any proxy.
//!
//! A demand says what TCP, TLS or the PROXY protocol promise to the two programs that talk through the proxy, never what some proxy
//! does. Every case has a port of the proxy and backends of its own, so cases run at the same time without seeing each other; those that
//! measure the proxy itself run alone, after the others.

mod backends;
mod clients;
mod conn;
mod data;
mod endings;
mod endurance;
mod headers;
mod hellos;
mod lane;
mod names;
mod plain;

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::interrupt;
use crate::proxies::{Feature, Proxy, Routing, Running};

use conn::Outcome;
use lane::{Lane, Setup};

/// The first port of the proxy; each case has the next one.
const FIRST_PORT: u16 = 4000;
/// Cases at the same time: they mostly wait.
const AT_ONCE: usize = 6;

/// One promise.
pub struct Case {
    pub name: &'static str,
    pub demand: &'static str,
    setup: Setup,
    run: fn(&Lane<'_>) -> Outcome,
    /// Measures the proxy's own processes.
    alone: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    /// What was seen instead.
    Fail(String),
    /// The proxy has no such feature.
    NotOffered(&'static str),
}

/// How much of what costs time.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Connections one after the other in the case that looks for leaks.
    pub sequential: usize,
}

impl Default for Settings {
    /// For every run of the tests.
    fn default() -> Self {
        Self { sequential: 2_000 }
    }
}

impl Case {
    const fn new(name: &'static str, demand: &'static str, setup: Setup, run: fn(&Lane<'_>) -> Outcome) -> Self {
        Self { name, demand, setup, run, alone: false }
    }

    const fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    fn not_offered(&self, proxy: Proxy) -> Option<&'static str> {
        self.setup.needs().iter().find_map(|feature: &Feature| proxy.lacks(*feature))
    }
}

/// All cases, in the order of the table.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    [
        hellos::CASES,
        names::CASES,
        endings::CASES,
        data::CASES,
        backends::CASES,
        plain::CASES,
        headers::CASES,
        clients::CASES,
        endurance::CASES,
    ]
    .into_iter()
    .flatten()
}

/// Runs all cases whose name contains `only` against one proxy; after a signal no more of them.
pub fn run(
    start: impl FnOnce(&Routing) -> Running,
    proxy: Proxy,
    settings: Settings,
    only: &str,
) -> Vec<(&'static Case, Verdict)> {
    let wanted = cases().filter(|case| case.name.contains(only));
    let (offered, missing): (Vec<_>, Vec<_>) = wanted.partition(|case| case.not_offered(proxy).is_none());
    let lanes: Vec<_> =
        (FIRST_PORT..).zip(&offered).map(|(port, case)| lane::Backends::open(port, case.setup)).collect();
    let routing = Routing { ports: lanes.iter().map(lane::Backends::port).collect() };
    let running = start(&routing);
    let work = offered.into_iter().zip(lanes.into_iter().map(|backends| Lane::new(&running, backends, settings)));
    let (last, first): (Vec<_>, Vec<_>) = work.partition(|(case, _)| case.alone);
    let mut verdicts = at_once(first);
    verdicts.extend(last.into_iter().take_while(|_| !interrupt::came()).map(judge));
    verdicts.extend(missing.into_iter().map(|case| (case, Verdict::NotOffered(case.not_offered(proxy).unwrap_or("")))));
    let place = |wanted: &Case| cases().position(|case| case.name == wanted.name);
    verdicts.sort_by_key(|(case, _)| place(case));
    verdicts
}

/// What went wrong, for a test that expects nothing of that kind.
pub fn failures(verdicts: &[(&Case, Verdict)]) -> Vec<String> {
    let failed = verdicts.iter().filter(|(_, verdict)| *verdict != Verdict::Pass);
    failed.map(|(case, verdict)| format!("{} ({}): {verdict:?}", case.name, case.demand)).collect()
}

type Work<'a> = (&'static Case, Lane<'a>);

fn at_once(work: Vec<Work<'_>>) -> Vec<(&'static Case, Verdict)> {
    let (queue, verdicts) = (Mutex::new(VecDeque::from(work)), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some(work) = next.filter(|_| !interrupt::came()) else { return };
                    let verdict = judge(work);
                    verdicts.lock().unwrap_or_else(PoisonError::into_inner).push(verdict);
                }
            });
        }
    });
    verdicts.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn judge((case, lane): Work<'_>) -> (&'static Case, Verdict) {
    let verdict = match (case.run)(&lane) {
        Ok(()) => Verdict::Pass,
        Err(seen) => Verdict::Fail(told(&seen)),
    };
    (case, verdict)
}

/// On one line and without folders: programs may complain at length, and where they stood is nobody's business.
fn told(seen: &str) -> String {
    let words = seen.split_whitespace().map(|word| match word.find('/') {
        Some(start) if is_path(word, start) => format!("{}...", &word[..start]),
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// An absolute path, perhaps in quotes; not an URL, not a share, not a lone slash.
fn is_path(word: &str, start: usize) -> bool {
    let begins = word[..start].chars().all(|before| !before.is_alphanumeric() && before != ':');
    begins && word[start..].chars().filter(|c| *c == '/').count() > 1 && !word[start..].starts_with("//")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_a_program_complained_about_is_told_on_one_line_without_folders() {
        let seen = "no connection; the client says: sh: getcwd\nenv: cannot change to `/home/somebody/project'\n";
        assert_eq!(told(seen), "no connection; the client says: sh: getcwd env: cannot change to `...");
        let fine = "GET / gave 3/4 bytes of https://own.example.test/page";
        assert_eq!(told(fine), fine);
    }

    #[test]
    fn there_are_at_least_forty_cases_with_names_of_their_own() {
        let names: Vec<_> = cases().map(|case| case.name).collect();
        let different: BTreeSet<_> = names.iter().collect();
        assert!(names.len() >= 40 && different.len() == names.len(), "{names:?}");
    }
}
