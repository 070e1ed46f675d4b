//! One place to listen, and the rules that decide where its connections go. Order: exact name, wildcard, then, for connections
//! without a name, the default. An unknown name is refused, never guessed.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::route::Route;

/// One place to listen.
#[derive(Clone, Debug, Serialize)]
pub struct Listener {
    /// Unique in a table: `<proxy>-listener-<port>`, with `-udp` for datagrams. Metrics are labelled with it.
    pub name: String,
    pub address: SocketAddr,
    pub transport: Transport,
    /// Whether clients begin with a PROXY header; then one without is refused.
    pub proxy_header: bool,
    pub rules: Rules,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Transport {
    Stream,
    Datagram,
}

/// Who gets the connections of a listener. The cost of a decision does not depend on how many names there are.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Rules {
    /// By full name: lower case, no trailing dot.
    #[serde(serialize_with = "by_name")]
    exact: HashMap<Box<str>, Arc<Route>>,
    /// By what follows the `*.`.
    #[serde(serialize_with = "by_name")]
    wildcard: HashMap<Box<str>, Arc<Route>>,
    /// TLS without a server name.
    pub unnamed: Option<Unnamed>,
    /// Bytes that are not TLS, and all datagrams: the only backend of the port.
    #[serde(serialize_with = "name_only")]
    pub plain: Option<Arc<Route>>,
}

/// Who gets TLS without a server name, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Unnamed {
    #[serde(serialize_with = "route_name")]
    pub route: Arc<Route>,
    pub rule: Rule,
}

/// What is known about a connection when it has to be decided.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Who connects: the address of the socket, or the one that a PROXY header told.
    pub source: IpAddr,
    pub opening: Opening<'a>,
}

/// What a connection began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening<'a> {
    /// TLS that asks for this name: lower case, no trailing dot.
    Named(&'a str),
    /// TLS without a usable server name (an IP address is none).
    Unnamed,
    /// Bytes that are not TLS, silence, or a datagram.
    Plain,
}

/// Where a connection goes.
#[derive(Clone, Copy, Debug)]
pub enum Decision<'t> {
    Connect { route: &'t Arc<Route>, rule: Rule },
    Refuse(Refusal),
}

/// Which rule decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Rule {
    ExactName,
    WildcardName,
    /// No name, and the backend says `default: true`.
    Default,
    /// No name, no backend says `default: true`, and this one leads to the API server.
    ApiServer,
    /// The same, without an API server: this one leads to konnectivity.
    Konnectivity,
    /// The only backend of the port, and its protocol is TCP.
    PlainTcp,
    /// The only backend of the port, and its protocol is UDP.
    Datagram,
}

/// Why a connection was refused by the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Refusal {
    UnknownName,
    NoName,
    NotTls,
    SourceNotAllowed,
}

impl Rules {
    /// Adds a name (`api.example.com` or `*.apps.example.com`). False, and nothing changes, when another route has it.
    pub fn add_name(&mut self, pattern: &str, route: &Arc<Route>) -> bool {
        let (names, key) = match pattern.strip_prefix("*.") {
            Some(suffix) => (&mut self.wildcard, suffix),
            None => (&mut self.exact, pattern),
        };
        let holder = names.entry(normal(key)).or_insert_with(|| route.clone());
        holder.name == route.name
    }

    /// Decides. Pure; costs one lookup, and one more per label of a name that no exact rule has.
    pub fn decide(&self, facts: &Facts<'_>) -> Decision<'_> {
        let (route, rule) = match self.choose(facts.opening) {
            Ok(choice) => choice,
            Err(refusal) => return Decision::Refuse(refusal),
        };
        if !route.admits(facts.source) {
            return Decision::Refuse(Refusal::SourceNotAllowed);
        }
        Decision::Connect { route, rule }
    }

    /// Every pattern and its route, sorted.
    pub fn names(&self) -> Vec<(String, &Arc<Route>)> {
        let exact = self.exact.iter().map(|(name, route)| (name.to_string(), route));
        let wildcard = self.wildcard.iter().map(|(suffix, route)| (format!("*.{suffix}"), route));
        let mut all: Vec<_> = exact.chain(wildcard).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    fn choose(&self, opening: Opening<'_>) -> Result<(&Arc<Route>, Rule), Refusal> {
        match opening {
            Opening::Named(name) => self.by_name(name).ok_or(Refusal::UnknownName),
            Opening::Unnamed => {
                let unnamed = self.unnamed.as_ref().ok_or(Refusal::NoName)?;
                Ok((&unnamed.route, unnamed.rule))
            }
            Opening::Plain => self.plain.as_ref().map(|route| (route, Rule::PlainTcp)).ok_or(Refusal::NotTls),
        }
    }

    fn by_name(&self, name: &str) -> Option<(&Arc<Route>, Rule)> {
        if let Some(route) = self.exact.get(name) {
            return Some((route, Rule::ExactName));
        }
        if self.wildcard.is_empty() {
            return None;
        }
        // The longest suffix first; the name itself is not among them, so a wildcard never covers its parent.
        let mut rest = name;
        while let Some((_, suffix)) = rest.split_once('.') {
            if let Some(route) = self.wildcard.get(suffix) {
                return Some((route, Rule::WildcardName));
            }
            rest = suffix;
        }
        None
    }
}

impl Rule {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ExactName => "exact name",
            Self::WildcardName => "wildcard name",
            Self::Default => "no name: the backend with default: true",
            Self::ApiServer => "no name: the API server's backend",
            Self::Konnectivity => "no name: konnectivity's backend",
            Self::PlainTcp => "not TLS: the only backend of the port",
            Self::Datagram => "datagram: the backend of the port",
        }
    }
}

impl Refusal {
    /// As metrics and the access log call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownName => "unknown_name",
            Self::NoName => "no_name",
            Self::NotTls => "not_tls",
            Self::SourceNotAllowed => "source_not_allowed",
        }
    }
}

fn normal(name: &str) -> Box<str> {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase().into()
}

fn by_name<S: Serializer>(names: &HashMap<Box<str>, Arc<Route>>, serializer: S) -> Result<S::Ok, S::Error> {
    let sorted: std::collections::BTreeMap<_, _> = names.iter().map(|(name, route)| (name, &route.name)).collect();
    serializer.collect_map(sorted)
}

fn name_only<S: Serializer>(route: &Option<Arc<Route>>, serializer: S) -> Result<S::Ok, S::Error> {
    route.as_ref().map(|route| &route.name).serialize(serializer)
}

fn route_name<S: Serializer>(route: &Arc<Route>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&route.name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::route::Balance;

    fn route(name: &str) -> Arc<Route> {
        Arc::new(Route {
            name: name.into(),
            target: format!("default/{name}:443"),
            endpoints: vec!["127.0.0.1:1".parse().unwrap()],
            balance: Balance::RoundRobin,
            connect_timeout: Duration::from_secs(30),
            connect_attempts: 3,
            idle_timeout: None,
            max_connections: None,
            proxy_header: None,
            sources: Vec::new(),
            health_check: None,
        })
    }

    fn decided(rules: &Rules, opening: Opening<'_>) -> Result<String, Refusal> {
        let facts = Facts { source: "192.0.2.1".parse().unwrap(), opening };
        match rules.decide(&facts) {
            Decision::Connect { route, .. } => Ok(route.name.clone()),
            Decision::Refuse(refusal) => Err(refusal),
        }
    }

    fn rules(names: &[(&str, &str)]) -> Rules {
        let mut rules = Rules::default();
        for (pattern, name) in names {
            assert!(rules.add_name(pattern, &route(name)));
        }
        rules
    }

    #[test]
    fn exact_wins_over_wildcard_and_the_longest_wildcard_over_shorter_ones() {
        let rules = rules(&[("a.b.example.com", "exact"), ("*.b.example.com", "near"), ("*.example.com", "far")]);
        assert_eq!(decided(&rules, Opening::Named("a.b.example.com")), Ok("exact".into()));
        assert_eq!(decided(&rules, Opening::Named("c.b.example.com")), Ok("near".into()));
        assert_eq!(decided(&rules, Opening::Named("x.y.b.example.com")), Ok("near".into()));
        assert_eq!(decided(&rules, Opening::Named("b.example.com")), Ok("far".into()));
        assert_eq!(decided(&rules, Opening::Named("example.com")), Err(Refusal::UnknownName));
        assert_eq!(decided(&rules, Opening::Named("badexample.com")), Err(Refusal::UnknownName));
    }

    #[test]
    fn without_a_name_only_the_default_counts() {
        let mut rules = rules(&[("a.example.com", "a")]);
        assert_eq!(decided(&rules, Opening::Unnamed), Err(Refusal::NoName));
        assert_eq!(decided(&rules, Opening::Plain), Err(Refusal::NotTls));
        rules.unnamed = Some(Unnamed { route: route("api"), rule: Rule::ApiServer });
        assert_eq!(decided(&rules, Opening::Unnamed), Ok("api".into()));
        assert_eq!(decided(&rules, Opening::Named("b.example.com")), Err(Refusal::UnknownName));
    }

    #[test]
    fn a_name_belongs_to_one_route() {
        let mut rules = rules(&[("A.example.com.", "a")]);
        assert!(!rules.add_name("a.example.com", &route("b")));
        assert!(rules.add_name("a.example.com", &route("a")));
        assert_eq!(decided(&rules, Opening::Named("a.example.com")), Ok("a".into()));
    }

    #[test]
    fn sources_are_judged_after_the_route() {
        let mut restricted = Route::clone(&route("a"));
        restricted.sources = vec!["10.0.0.0/8".parse().unwrap()];
        let mut rules = Rules::default();
        rules.add_name("a.example.com", &Arc::new(restricted));
        assert_eq!(decided(&rules, Opening::Named("a.example.com")), Err(Refusal::SourceNotAllowed));
        let facts = Facts { source: "10.1.2.3".parse().unwrap(), opening: Opening::Named("a.example.com") };
        assert!(matches!(rules.decide(&facts), Decision::Connect { .. }));
    }

    proptest! {
        /// The lookup agrees with the plain meaning of a wildcard, read off the pattern.
        #[test]
        fn wildcards_mean_what_they_say(
            patterns in prop::collection::btree_set("(\\*\\.)?([ab]\\.){0,2}[ab]", 0..8),
            name in "([ab]\\.){0,4}[ab]",
        ) {
            let mut rules = Rules::default();
            for pattern in &patterns {
                rules.add_name(pattern, &route(pattern));
            }
            let covers = |pattern: &String| match pattern.strip_prefix('*') {
                Some(suffix) => name.ends_with(suffix) && name.len() > suffix.len(),
                None => *pattern == name,
            };
            let best = patterns.iter().filter(|pattern| covers(pattern)).max_by_key(|pattern| (!pattern.starts_with('*'), pattern.len()));
            prop_assert_eq!(decided(&rules, Opening::Named(&name)).ok(), best.cloned());
        }
    }
}
