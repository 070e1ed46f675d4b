//! Addresses, networks and URLs.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::{text, truth};
use crate::cel::EvalError;
use crate::cel::eval::{Evaluator, Outcome};
use crate::cel::url::Url;
use crate::cel::value::{Key, Value};

pub(super) fn call(_: &mut Evaluator<'_>, name: &str, args: &[Value]) -> Option<Outcome> {
    match args {
        [Value::String(text)] => parse(name, text),
        [Value::Ip(ip)] => of_ip(name, *ip),
        [Value::Cidr(cidr), rest @ ..] => of_cidr(name, cidr, rest),
        [Value::Url(url)] => of_url(name, url),
        _ => None,
    }
}

fn parse(name: &str, subject: &str) -> Option<Outcome> {
    let failed =
        |what: &str| EvalError::failed(format!("{what} {subject:?} parse error during conversion from string"));
    Some(match name {
        "isIP" => truth(parse_ip(subject).is_some()),
        "ip" => parse_ip(subject).map(Value::Ip).ok_or_else(|| failed("IP Address")),
        "ip.isCanonical" => match parse_ip(subject) {
            Some(ip) => truth(ip.to_string() == subject),
            None => Err(failed("IP Address")),
        },
        "isCIDR" => truth(parse_cidr(subject).is_some()),
        "cidr" => parse_cidr(subject).map(Value::Cidr).ok_or_else(|| failed("network address")),
        "isURL" => truth(Url::parse(subject).is_some()),
        "url" => Url::parse(subject).map(|url| Value::Url(Arc::new(url))).ok_or_else(|| failed("URL")),
        _ => return None,
    })
}

/// Addresses of one family written in the other are refused: a rule could not tell which one is meant.
fn parse_ip(text: &str) -> Option<IpAddr> {
    text.parse().ok().filter(|ip| !matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some()))
}

fn parse_cidr(text: &str) -> Option<IpNet> {
    let (address, _) = text.split_once('/')?;
    parse_ip(address)?;
    text.parse().ok()
}

fn of_ip(name: &str, ip: IpAddr) -> Option<Outcome> {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let link_local_multicast = match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
        IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
    };
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    Some(match name {
        "family" => Ok(Value::Int(if ip.is_ipv4() { 4 } else { 6 })),
        "isUnspecified" => truth(ip.is_unspecified()),
        "isLoopback" => truth(ip.is_loopback()),
        "isLinkLocalUnicast" => truth(link_local),
        "isLinkLocalMulticast" => truth(link_local_multicast),
        "isGlobalUnicast" => {
            truth(!(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || link_local || broadcast))
        }
        _ => return None,
    })
}

fn of_cidr(name: &str, cidr: &IpNet, rest: &[Value]) -> Option<Outcome> {
    let failed = |text: &str| EvalError::failed(format!("{text:?} is neither an address nor a network"));
    Some(match (name, rest) {
        ("ip", []) => Ok(Value::Ip(cidr.addr())),
        ("masked", []) => Ok(Value::Cidr(cidr.trunc())),
        ("prefixLength", []) => Ok(Value::Int(i64::from(cidr.prefix_len()))),
        ("containsIP", [Value::Ip(ip)]) => truth(cidr.contains(ip)),
        ("containsIP", [Value::String(text)]) => match parse_ip(text) {
            Some(ip) => truth(cidr.contains(&ip)),
            None => Err(failed(text)),
        },
        ("containsCIDR", [Value::Cidr(other)]) => truth(cidr.trunc().contains(other)),
        ("containsCIDR", [Value::String(text)]) => match parse_cidr(text) {
            Some(other) => truth(cidr.trunc().contains(&other)),
            None => Err(failed(text)),
        },
        _ => return None,
    })
}

fn of_url(name: &str, url: &Url) -> Option<Outcome> {
    Some(match name {
        "getScheme" => text(url.scheme.as_str()),
        "getHost" => text(url.host.as_str()),
        "getHostname" => text(url.hostname()),
        "getPort" => text(url.port()),
        "getEscapedPath" => text(url.path.as_str()),
        "getQuery" => Ok(query(url)),
        _ => return None,
    })
}

fn query(url: &Url) -> Value {
    let mut values: BTreeMap<Key, Vec<Value>> = BTreeMap::new();
    for (name, value) in &url.query {
        values.entry(Key::String(name.as_str().into())).or_default().push(Value::string(value.as_str()));
    }
    Value::Map(Arc::new(values.into_iter().map(|(name, values)| (name, Value::list(values))).collect()))
}
