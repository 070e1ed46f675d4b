//! One place to listen, and the rules that say whose its connections are. Order: exact name, wildcard, then, for connections
//! without a name, the default. An unknown name is refused, never guessed.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use serde::{Serialize, Serializer};

use crate::relay::RouteId;

/// One place to listen.
#[derive(Clone, Debug, Serialize)]
pub struct Listener {
    /// Unique in a table: `<proxy>-listener-<port>`, with `-udp` for datagrams. Metrics are labelled with it.
    pub name: String,
    pub address: SocketAddr,
    pub transport: Transport,
    /// Whether clients begin with a PROXY header; then one without is refused.
    pub proxy_header: bool,
    pub expects: Expects,
    pub rules: Rules,
}

/// How connections of a listener begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Expects {
    /// With a TLS hello, or with something else where that is carried.
    #[default]
    Hello,
    /// With the header of a tunnel's stream. Such connections are not accepted but handed over, so no socket is opened.
    StreamHeader,
    /// With anything: all go the same way, and nobody waits for their first byte.
    Nothing,
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
    exact: HashMap<Box<str>, RouteId>,
    /// By what follows the `*.`.
    #[serde(serialize_with = "by_name")]
    wildcard: HashMap<Box<str>, RouteId>,
    /// TLS without a server name.
    pub unnamed: Option<Unnamed>,
    /// Bytes that are not TLS, and all datagrams: the only backend of the port.
    pub plain: Option<RouteId>,
    /// Streams of tunnels, by the tunnel's number.
    pub tunnels: BTreeMap<u32, RouteId>,
}

/// Who gets TLS without a server name, and why.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Unnamed {
    pub route: RouteId,
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
    /// Bytes that are not TLS, or silence.
    Plain,
    Datagram,
    /// The header of a tunnel's stream.
    Tunnel(u32),
}

/// Where a connection goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Connect { route: RouteId, rule: Rule },
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
    Tunnel,
}

/// Why a connection was refused by the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Refusal {
    UnknownName,
    NoName,
    NotTls,
    SourceNotAllowed,
    UnknownTunnel,
}

impl Rules {
    /// Adds a name (`api.example.com` or `*.apps.example.com`). When another route has it, nothing changes and that one is told.
    pub fn add_name(&mut self, pattern: &str, route: RouteId) -> Result<(), RouteId> {
        let (names, key) = match pattern.strip_prefix("*.") {
            Some(suffix) => (&mut self.wildcard, suffix),
            None => (&mut self.exact, pattern),
        };
        let holder = *names.entry(normal(key)).or_insert(route);
        if holder == route { Ok(()) } else { Err(holder) }
    }

    /// Whose a connection is. Costs one lookup, and one more per label of a name that no exact rule has.
    pub fn choose(&self, opening: Opening<'_>) -> Result<(RouteId, Rule), Refusal> {
        match opening {
            Opening::Named(name) => self.by_name(name).ok_or(Refusal::UnknownName),
            Opening::Unnamed => self.unnamed.map(|unnamed| (unnamed.route, unnamed.rule)).ok_or(Refusal::NoName),
            Opening::Plain => self.plain.map(|route| (route, Rule::PlainTcp)).ok_or(Refusal::NotTls),
            Opening::Datagram => self.plain.map(|route| (route, Rule::Datagram)).ok_or(Refusal::NotTls),
            Opening::Tunnel(number) => {
                self.tunnels.get(&number).map(|route| (*route, Rule::Tunnel)).ok_or(Refusal::UnknownTunnel)
            }
        }
    }

    /// Every pattern and its route, sorted.
    pub fn names(&self) -> BTreeMap<String, RouteId> {
        let exact = self.exact.iter().map(|(name, route)| (name.to_string(), *route));
        let wildcard = self.wildcard.iter().map(|(suffix, route)| (format!("*.{suffix}"), *route));
        exact.chain(wildcard).collect()
    }

    /// How many patterns there are.
    pub fn name_count(&self) -> usize {
        self.exact.len() + self.wildcard.len()
    }

    /// The route of a pattern, written as `names` has it.
    pub fn named(&self, pattern: &str) -> Option<RouteId> {
        let suffix = pattern.strip_prefix("*.");
        suffix.map_or_else(|| self.exact.get(pattern), |suffix| self.wildcard.get(suffix)).copied()
    }

    fn by_name(&self, name: &str) -> Option<(RouteId, Rule)> {
        if let Some(route) = self.exact.get(name) {
            return Some((*route, Rule::ExactName));
        }
        if self.wildcard.is_empty() {
            return None;
        }
        // The longest suffix first; the name itself is not among them, so a wildcard never covers its parent.
        let mut rest = name;
        while let Some((_, suffix)) = rest.split_once('.') {
            if let Some(route) = self.wildcard.get(suffix) {
                return Some((*route, Rule::WildcardName));
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
            Self::Tunnel => "the number of a tunnel",
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
            Self::UnknownTunnel => "unknown_tunnel",
        }
    }
}

fn normal(name: &str) -> Box<str> {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase().into()
}

fn by_name<S: Serializer>(names: &HashMap<Box<str>, RouteId>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(names.iter().collect::<BTreeMap<_, _>>())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use proptest::prelude::*;

    use super::*;

    fn rules(names: &[&str]) -> Rules {
        let mut rules = Rules::default();
        for (index, pattern) in names.iter().enumerate() {
            rules.add_name(pattern, RouteId(index)).unwrap();
        }
        rules
    }

    fn chosen(rules: &Rules, opening: Opening<'_>) -> Result<usize, Refusal> {
        rules.choose(opening).map(|(route, _)| route.0)
    }

    #[test]
    fn exact_wins_over_wildcard_and_the_longest_wildcard_over_shorter_ones() {
        let rules = rules(&["a.b.example.com", "*.b.example.com", "*.example.com"]);
        assert_eq!(chosen(&rules, Opening::Named("a.b.example.com")), Ok(0));
        assert_eq!(chosen(&rules, Opening::Named("c.b.example.com")), Ok(1));
        assert_eq!(chosen(&rules, Opening::Named("x.y.b.example.com")), Ok(1));
        assert_eq!(chosen(&rules, Opening::Named("b.example.com")), Ok(2));
        assert_eq!(chosen(&rules, Opening::Named("example.com")), Err(Refusal::UnknownName));
        assert_eq!(chosen(&rules, Opening::Named("badexample.com")), Err(Refusal::UnknownName));
    }

    #[test]
    fn every_pattern_is_found_as_it_is_listed() {
        let rules = rules(&["a.example.com", "*.Example.com"]);
        assert_eq!(rules.names().len(), rules.name_count());
        assert!(rules.names().iter().all(|(pattern, route)| rules.named(pattern) == Some(*route)));
        assert_eq!(rules.named("b.example.com"), None);
    }

    #[test]
    fn without_a_name_only_the_default_counts() {
        let mut rules = rules(&["a.example.com"]);
        assert_eq!(chosen(&rules, Opening::Unnamed), Err(Refusal::NoName));
        assert_eq!(chosen(&rules, Opening::Plain), Err(Refusal::NotTls));
        rules.unnamed = Some(Unnamed { route: RouteId(7), rule: Rule::ApiServer });
        assert_eq!(chosen(&rules, Opening::Unnamed), Ok(7));
        assert_eq!(chosen(&rules, Opening::Named("b.example.com")), Err(Refusal::UnknownName));
    }

    #[test]
    fn a_name_belongs_to_one_route() {
        let mut rules = rules(&["A.example.com."]);
        assert_eq!(rules.add_name("a.example.com", RouteId(1)), Err(RouteId(0)));
        assert_eq!(rules.add_name("a.example.com", RouteId(0)), Ok(()));
        assert_eq!(chosen(&rules, Opening::Named("a.example.com")), Ok(0));
    }

    proptest! {
        /// The lookup agrees with the plain meaning of a wildcard, read off the pattern.
        #[test]
        fn wildcards_mean_what_they_say(
            patterns in prop::collection::btree_set("(\\*\\.)?([ab]\\.){0,2}[ab]", 0..8),
            name in "([ab]\\.){0,4}[ab]",
        ) {
            let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
            let covers = |pattern: &&&str| match pattern.strip_prefix('*') {
                Some(suffix) => name.ends_with(suffix) && name.len() > suffix.len(),
                None => **pattern == name,
            };
            let best = patterns.iter().filter(covers).max_by_key(|pattern| (!pattern.starts_with('*'), pattern.len()));
            let found = chosen(&rules(&patterns), Opening::Named(&name)).ok();
            prop_assert_eq!(found.map(|index| &patterns[index]), best);
        }
    }
}
