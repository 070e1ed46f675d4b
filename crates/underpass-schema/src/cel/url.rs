//! URLs, as far as rules ask about them.

/// An absolute URL, or a path that begins with a slash.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Url {
    pub(crate) scheme: String,
    /// Name and port.
    pub(crate) host: String,
    pub(crate) path: String,
    /// Names and values as written, decoded.
    pub(crate) query: Vec<(String, String)>,
}

impl Url {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        // A request never carries a fragment, so `#` is an ordinary character here, as in Go.
        let printable = |c: char| !c.is_control() && c != ' ';
        if text.is_empty() || !text.chars().all(printable) || text.contains(['<', '>', '"', '\\', '^', '`']) {
            return None;
        }
        let (rest, query) = text.split_once('?').unwrap_or((text, ""));
        let query = parse_query(query)?;
        if rest.starts_with('/') {
            return valid_escapes(rest).then(|| Self { path: rest.to_owned(), query, ..Self::default() });
        }
        let (scheme, rest) = rest.split_once(':')?;
        let (host, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None if rest.is_empty() => return None,
            None => ("", rest),
        };
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        (is_scheme(scheme) && valid_host(host) && valid_escapes(path)).then(|| Self {
            scheme: scheme.to_ascii_lowercase(),
            host: host.to_owned(),
            path: path.to_owned(),
            query,
        })
    }

    /// The host without its port and without brackets.
    pub(crate) fn hostname(&self) -> &str {
        let name = self.split_port().0;
        name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name)
    }

    pub(crate) fn port(&self) -> &str {
        self.split_port().1
    }

    fn split_port(&self) -> (&str, &str) {
        split_port(&self.host)
    }
}

fn split_port(host: &str) -> (&str, &str) {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (name, port),
        _ => (host, ""),
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

fn valid_host(host: &str) -> bool {
    let (name, _) = split_port(host);
    match name.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(|address| {
            let address = address.split_once("%25").map_or(address, |(address, _)| address);
            address.parse::<std::net::Ipv6Addr>().is_ok()
        }),
        None => !name.contains([':', '[', ']', '{', '}', '|']) && valid_escapes(name),
    }
}

fn valid_escapes(text: &str) -> bool {
    text.split('%').skip(1).all(|part| part.len() >= 2 && part.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()))
}

fn parse_query(query: &str) -> Option<Vec<(String, String)>> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name)?, decode(value)?))
        })
        .collect()
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}
