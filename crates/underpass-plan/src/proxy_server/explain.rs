//! Why a connection goes where it goes: the table's own answer, with what was looked at before.

use std::net::{IpAddr, SocketAddr};

use serde::Serialize;
use underpass_tables::{Decision, Facts, Listener, Opening, Refusal, RelayTable, Route, Rule, Transport};

/// A connection that somebody wonders about.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    pub port: u16,
    pub source: Option<IpAddr>,
    pub opening: Opening<'a>,
}

/// What becomes of it at every listener of its port.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    pub listeners: Vec<Answer>,
}

/// What one listener does with it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    pub listener: String,
    pub address: SocketAddr,
    /// Rules in the order in which they are asked; the last one decides.
    pub steps: Vec<Step>,
    pub way: Way,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    pub rule: String,
    pub finding: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Way {
    #[serde(rename_all = "camelCase")]
    Connect {
        rule: Rule,
        because: &'static str,
        route: String,
        target: String,
        endpoints: Vec<SocketAddr>,
        #[serde(skip_serializing_if = "Option::is_none")]
        trouble: Option<String>,
    },
    #[serde(rename_all = "camelCase")]
    Refuse { refusal: &'static str, because: String },
}

/// Asks the table, and retells how it came to its answer.
pub fn explain(table: &RelayTable, question: &Question<'_>) -> Explanation {
    let transport = if question.opening == Opening::Datagram { Transport::Datagram } else { Transport::Stream };
    let asked = |listener: &&Listener| listener.address.port() == question.port && listener.transport == transport;
    // As a worker sees it.
    let question = Question { source: question.source.map(|source| source.to_canonical()), ..*question };
    let listeners = table.listeners.iter().filter(asked).map(|listener| answer(table, listener, &question));
    Explanation { listeners: listeners.collect() }
}

fn answer(table: &RelayTable, listener: &Listener, question: &Question<'_>) -> Answer {
    let chosen = listener.rules.choose(question.opening);
    let mut steps = steps(table, listener, question.opening);
    if let Ok((route, _)) = chosen {
        steps.extend(source_step(&table.routes[route.0], question.source));
    }
    let way = match (chosen, question.source) {
        (Err(refusal), _) => refused(refusal),
        (Ok((route, rule)), None) => connect(&table.routes[route.0], rule),
        (Ok(_), Some(source)) => match table.decide(listener, &Facts { source, opening: question.opening }) {
            Decision::Connect { route, rule } => connect(&table.routes[route.0], rule),
            Decision::Refuse(refusal) => refused(refusal),
        },
    };
    Answer { listener: listener.name.clone(), address: listener.address, steps, way }
}

fn connect(route: &Route, rule: Rule) -> Way {
    Way::Connect {
        rule,
        because: rule.as_str(),
        route: route.name.clone(),
        target: route.target.clone(),
        endpoints: route.open().collect(),
        trouble: route.trouble.clone(),
    }
}

fn refused(refusal: Refusal) -> Way {
    let because = match refusal {
        Refusal::UnknownName => "no backend of this port has the name; an unknown name is never guessed",
        Refusal::NoName => "without a name only a default could take it, and this port has none",
        Refusal::NotTls => {
            "bytes that are not TLS are carried only where a port has one single backend and its protocol is TCP"
        }
        Refusal::UnknownTunnel => "a ProxyServer has no tunnels",
        Refusal::SourceNotAllowed => "the backend's sourceCIDRs do not have the client's address",
    };
    Way::Refuse { refusal: refusal.as_str(), because: because.to_owned() }
}

/// The rules for such a connection, up to the one that decides.
fn steps(table: &RelayTable, listener: &Listener, opening: Opening<'_>) -> Vec<Step> {
    let leads = |route: &Route| format!("leads to {}", route.name);
    match opening {
        Opening::Named(name) => name_steps(table, listener, name),
        Opening::Unnamed => {
            let unnamed = listener.rules.unnamed.as_ref();
            let rules = [Rule::Default, Rule::ApiServer, Rule::Konnectivity];
            let upto = rules.iter().position(|rule| unnamed.is_some_and(|unnamed| unnamed.rule == *rule));
            let finding = |position: usize| match unnamed {
                Some(unnamed) if Some(position) == upto => leads(&table.routes[unnamed.route.0]),
                _ => "no backend".to_owned(),
            };
            let asked = rules.iter().enumerate().take(upto.map_or(rules.len(), |last| last + 1));
            asked.map(|(position, rule)| Step { rule: rule.as_str().to_owned(), finding: finding(position) }).collect()
        }
        Opening::Plain | Opening::Datagram => {
            let rule = if opening == Opening::Plain { Rule::PlainTcp } else { Rule::Datagram };
            let finding = listener.rules.plain.map_or_else(
                || "there is more than one backend, or its protocol is not TCP".to_owned(),
                |route| leads(&table.routes[route.0]),
            );
            vec![Step { rule: rule.as_str().to_owned(), finding }]
        }
        Opening::Tunnel(_) => Vec::new(),
    }
}

/// The name itself, then every wildcard that could stand for it, the nearest first.
fn name_steps(table: &RelayTable, listener: &Listener, name: &str) -> Vec<Step> {
    let names = listener.rules.names();
    let parents = std::iter::successors(name.split_once('.'), |(_, rest)| rest.split_once('.'));
    let patterns = std::iter::once(name.to_owned()).chain(parents.map(|(_, parent)| format!("*.{parent}")));
    let mut steps = Vec::new();
    for pattern in patterns {
        let holder = names.get(&pattern);
        let finding =
            holder.map_or("no backend".to_owned(), |route| format!("leads to {}", table.routes[route.0].name));
        let rule = if steps.is_empty() { Rule::ExactName } else { Rule::WildcardName };
        steps.push(Step { rule: format!("{} {pattern}", rule.as_str()), finding });
        if holder.is_some() {
            break;
        }
    }
    steps
}

fn source_step(route: &Route, source: Option<IpAddr>) -> Option<Step> {
    if route.sources.is_empty() {
        return None;
    }
    let finding = match source {
        None => "not asked: say --source".to_owned(),
        Some(source) if route.admits(source) => format!("{source} may connect"),
        Some(source) => format!("{source} may not connect"),
    };
    let networks: Vec<String> = route.sources.iter().map(ToString::to_string).collect();
    Some(Step { rule: format!("sourceCIDRs {} of {}", networks.join(", "), route.name), finding })
}
