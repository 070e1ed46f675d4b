//! The string formats that Kubernetes checks. A format that is not listed here says nothing about a value, as in Kubernetes.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::cel::time::{parse_duration, parse_timestamp};
use crate::cel::url::Url;
use crate::{AdditionalProperties, Schema, Type};

/// Whether `text` is of `format`; `None` where Kubernetes does not know the format.
pub(crate) fn matches(format: &str, text: &str) -> Option<bool> {
    Some(match format {
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => text.parse::<ipnet::IpNet>().is_ok(),
        "mac" => is_mac(text),
        "date-time" | "datetime" => parse_timestamp(text).is_some(),
        "date" => is_date(text),
        "duration" => is_duration(text),
        "uri" => Url::parse(text).is_some(),
        "hostname" => is_hostname(text),
        "email" => is_email(text),
        "byte" => STANDARD.decode(text).is_ok(),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some(b'3')),
        "uuid4" => is_uuid(text, Some(b'4')),
        "uuid5" => is_uuid(text, Some(b'5')),
        "bsonobjectid" => text.len() == 24 && is_hex(text),
        "hexcolor" => is_hex_color(text),
        "rgbcolor" => is_rgb_color(text),
        "isbn10" => is_isbn10(&digits(text)),
        "isbn13" => is_isbn13(&digits(text)),
        "isbn" => is_isbn10(&digits(text)) || is_isbn13(&digits(text)),
        "creditcard" => is_credit_card(&digits(text)),
        "ssn" => is_ssn(text),
        "k8s-short-name" => is_dns_label(text),
        "k8s-long-name" => is_dns_subdomain(text),
        _ => return None,
    })
}

impl Schema {
    /// The formats of texts, anywhere in this schema, that say nothing about a value.
    pub fn unknown_formats(&self) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        self.gather_unknown_formats(&mut found);
        found
    }

    fn gather_unknown_formats<'s>(&'s self, found: &mut BTreeSet<&'s str>) {
        let format = self.format.as_deref().filter(|_| self.type_ == Some(Type::String));
        // A password is any text; the format only tells tools to hide it.
        found.extend(format.filter(|format| *format != "password" && matches(format, "").is_none()));
        let additional = match &self.additional_properties {
            Some(AdditionalProperties::Schema(values)) => Some(values.as_ref()),
            _ => None,
        };
        for below in self.properties.values().chain(self.items.as_deref()).chain(additional) {
            below.gather_unknown_formats(found);
        }
    }
}

/// Whether an integer fits its format; formats other than int32 hold every integer that JSON gives us.
pub(crate) fn integer_fits(format: &str, value: f64) -> bool {
    match format {
        "int32" => value >= f64::from(i32::MIN) && value <= f64::from(i32::MAX),
        "int64" => value >= i64::MIN as f64 && value < i64::MAX as f64 + 1.0,
        _ => true,
    }
}

/// RFC 1123: the name of a host's one level.
pub(crate) fn is_dns_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// RFC 1123: labels with dots between them; a label alone may here be as long as the whole.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let label =
        |label: &str| !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-');
    text.len() <= 253 && text.split('.').all(label)
}

fn is_hostname(text: &str) -> bool {
    let label = |label: &str| {
        let inner = |c: char| c.is_alphanumeric() || c == '-';
        (1..=63).contains(&label.len()) && label.chars().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    let text = text.strip_suffix('.').unwrap_or(text);
    text.len() <= 255 && text.split('.').all(label)
}

fn is_email(text: &str) -> bool {
    let Some((name, host)) = text.rsplit_once('@') else { return false };
    let quoted = name.len() > 2 && name.starts_with('"') && name.ends_with('"');
    let plain = |c: char| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~.".contains(c);
    let dots = !name.starts_with('.') && !name.ends_with('.') && !name.contains("..");
    let literal = host.starts_with('[') && host.ends_with(']');
    (quoted || (!name.is_empty() && name.chars().all(plain) && dots)) && (literal || is_hostname(host))
}

fn is_mac(text: &str) -> bool {
    let separated = |separator: char, width: usize, lengths: &[usize]| {
        let parts: Vec<_> = text.split(separator).collect();
        lengths.contains(&parts.len()) && parts.iter().all(|part| part.len() == width && is_hex(part))
    };
    separated(':', 2, &[6, 8, 20]) || separated('-', 2, &[6, 8, 20]) || separated('.', 4, &[3, 4, 10])
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

/// Go's durations (`1h30m`), and the words that the OpenAPI library adds (`3 days`, `2 weeks`).
fn is_duration(text: &str) -> bool {
    const UNITS: &[&str] = &["nanosecond", "microsecond", "millisecond", "second", "minute", "hour", "day", "week"];
    if parse_duration(text).is_some() {
        return true;
    }
    let Some((count, unit)) = text.trim().split_once(char::is_whitespace) else {
        return matches!(text.strip_suffix(['d', 'w']), Some(count) if count.parse::<f64>().is_ok());
    };
    let unit = unit.trim();
    count.parse::<f64>().is_ok() && UNITS.contains(&unit.strip_suffix('s').unwrap_or(unit))
}

fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let bare: String = text.chars().filter(|c| *c != '-').collect();
    let lengths: Vec<_> = text.split('-').map(str::len).collect();
    let shape = lengths == [8, 4, 4, 4, 12] || lengths == [32];
    let version_fits = version.is_none_or(|version| bare.as_bytes().get(12) == Some(&version));
    // Random and named UUIDs also carry the variant of RFC 4122.
    let variant_fits =
        !matches!(version, Some(b'4' | b'5')) || bare.as_bytes().get(16).is_some_and(|byte| b"89abAB".contains(byte));
    shape && is_hex(&bare) && version_fits && variant_fits
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && is_hex(digits)
}

fn is_rgb_color(text: &str) -> bool {
    let inner = text.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')'));
    let Some(inner) = inner else { return false };
    let parts: Vec<_> = inner.split(',').map(|part| part.trim().parse::<u8>()).collect();
    parts.len() == 3 && parts.iter().all(Result::is_ok)
}

/// Book and card numbers are written with spaces and dashes.
fn digits(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, ' ' | '-')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let value = |(index, byte): (usize, u8)| match byte {
        b'0'..=b'9' => Some((10 - index as u32) * u32::from(byte - b'0')),
        b'X' | b'x' if index == 9 => Some(10),
        _ => None,
    };
    text.len() == 10 && text.bytes().enumerate().map(value).sum::<Option<u32>>().is_some_and(|sum| sum % 11 == 0)
}

fn is_isbn13(text: &str) -> bool {
    let value = |(index, byte): (usize, u8)| {
        byte.is_ascii_digit().then(|| u32::from(byte - b'0') * if index % 2 == 0 { 1 } else { 3 })
    };
    text.len() == 13 && text.bytes().enumerate().map(value).sum::<Option<u32>>().is_some_and(|sum| sum % 10 == 0)
}

fn is_credit_card(text: &str) -> bool {
    let luhn = |(index, byte): (usize, u8)| {
        let digit = byte.is_ascii_digit().then(|| u32::from(byte - b'0'))?;
        let doubled = if index % 2 == 1 { digit * 2 } else { digit };
        Some(if doubled > 9 { doubled - 9 } else { doubled })
    };
    (13..=19).contains(&text.len())
        && text.bytes().rev().enumerate().map(luhn).sum::<Option<u32>>().is_some_and(|sum| sum % 10 == 0)
}

fn is_ssn(text: &str) -> bool {
    let parts: Vec<_> = text.split(['-', ' ']).collect();
    let lengths: Vec<_> = parts.iter().map(|part| part.len()).collect();
    lengths == [3, 2, 4] && parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_and_refuse() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            ("ipv4", &["10.0.0.1"], &["10.0.0.256", "::1", ""]),
            ("ipv6", &["::1", "fe80::1"], &["10.0.0.1", "fe80::1%eth0"]),
            ("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33"]),
            ("mac", &["01:02:03:04:05:06", "0102.0304.0506"], &["01:02:03:04:05", "0g:02:03:04:05:06"]),
            (
                "date-time",
                &["2024-02-29T10:00:00Z", "2024-01-01T00:00:00.5+02:00"],
                &["2024-02-30T10:00:00Z", "2024-01-01"],
            ),
            ("date", &["2024-02-29"], &["2023-02-29", "2024-2-9"]),
            ("duration", &["1h30m", "5s", "-1.5h", "3 days", "2w"], &["5", "x", "", "3 moons"]),
            ("uri", &["https://a.b/c?d=e", "/path"], &["a b", "::"]),
            ("hostname", &["a.example", "A-1"], &["-a", "a..b", "a_b", ""]),
            ("email", &["a@b.example"], &["a", "@b", "a@"]),
            ("byte", &["aGk=", ""], &["a", "aGk", "!!!!"]),
            ("uuid", &["123e4567-e89b-12d3-a456-426614174000"], &["123e4567", "g23e4567-e89b-12d3-a456-426614174000"]),
            ("uuid4", &["123e4567-e89b-42d3-a456-426614174000"], &["123e4567-e89b-12d3-a456-426614174000"]),
            ("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f"]),
            ("hexcolor", &["#fff", "a0b0c0"], &["#ffff"]),
            ("rgbcolor", &["rgb(1, 2,255)"], &["rgb(1,2,256)", "1,2,3"]),
            ("isbn10", &["0-306-40615-2"], &["0-306-40615-3"]),
            ("isbn13", &["978-0-306-40615-7"], &["978-0-306-40615-8"]),
            ("creditcard", &["4111 1111 1111 1111"], &["4111 1111 1111 1112"]),
            ("ssn", &["111-22-3333"], &["111223333"]),
            ("k8s-short-name", &["a-1"], &["A", "a.b"]),
            ("k8s-long-name", &["a.b-c"], &["a..b", "A"]),
        ];
        for (format, good, bad) in cases {
            good.iter().for_each(|text| assert_eq!(matches(format, text), Some(true), "{format} {text}"));
            bad.iter().for_each(|text| assert_eq!(matches(format, text), Some(false), "{format} {text}"));
        }
        assert_eq!(matches("anything-else", "x"), None);
    }
}
