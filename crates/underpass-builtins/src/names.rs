//! Rules for names, keys and labels, with the sentences that Kubernetes' users know. Each function returns what is wrong; empty is fine.

const LABEL_FORM: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_FORM: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DNS_1035_FORM: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED_FORM: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

const LABEL_LENGTH: usize = 63;
const SUBDOMAIN_LENGTH: usize = 253;
const PORT_NAME_LENGTH: usize = 15;

/// RFC 1123 label: one part of a DNS name.
pub fn dns_label(value: &str) -> Vec<String> {
    let mut wrong = too_long(value, LABEL_LENGTH);
    if !is_label(value) {
        wrong.push(if is_subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            form(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an \
                 alphanumeric character",
                LABEL_FORM,
                &["my-name", "123-abc"],
            )
        });
    }
    wrong
}

/// RFC 1123 subdomain: labels joined by dots.
pub fn dns_subdomain(value: &str) -> Vec<String> {
    let mut wrong = too_long(value, SUBDOMAIN_LENGTH);
    if !is_subdomain(value) {
        wrong.push(form(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end \
             with an alphanumeric character",
            SUBDOMAIN_FORM,
            &["example.com"],
        ));
    }
    wrong
}

/// RFC 1035 label: as [`dns_label`], but a letter comes first.
pub fn dns_1035_label(value: &str) -> Vec<String> {
    let mut wrong = too_long(value, LABEL_LENGTH);
    if !is_label(value) || !value.starts_with(|first: char| first.is_ascii_lowercase()) {
        wrong.push(form(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end \
             with an alphanumeric character",
            DNS_1035_FORM,
            &["my-name", "abc-123"],
        ));
    }
    wrong
}

/// What every name must be, whatever the kind: one segment of a URL path.
pub fn path_segment(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if value == "." || value == ".." {
        wrong.push(format!("may not be '{value}'"));
    }
    for character in ['/', '%'].into_iter().filter(|character| value.contains(*character)) {
        wrong.push(format!("may not contain '{character}'"));
    }
    wrong
}

/// Keys of labels, annotations and the like: `name` or `prefix/name`.
pub fn qualified_name(value: &str) -> Vec<String> {
    let sentence = || {
        form(
            "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            QUALIFIED_FORM,
            &["MyName", "my.name", "123-abc"],
        )
    };
    let mut wrong = Vec::new();
    let name = match value.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".to_owned());
            } else {
                wrong.extend(dns_subdomain(prefix).into_iter().map(|reason| format!("prefix part {reason}")));
            }
            name
        }
        _ => {
            return vec![format!(
                "a qualified name {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                sentence()
            )];
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    }
    wrong.extend(too_long(name, LABEL_LENGTH).into_iter().map(|reason| format!("name part {reason}")));
    if !is_qualified(name) {
        wrong.push(format!("name part {}", sentence()));
    }
    wrong
}

pub fn label_value(value: &str) -> Vec<String> {
    let mut wrong = too_long(value, LABEL_LENGTH);
    if !value.is_empty() && !is_qualified(value) {
        wrong.push(form(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
             an alphanumeric character",
            &format!("({QUALIFIED_FORM})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    wrong
}

/// Keys of the data of ConfigMaps and Secrets: they become file names.
pub fn data_key(value: &str) -> Vec<String> {
    let mut wrong = too_long(value, SUBDOMAIN_LENGTH);
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        wrong.push(form(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match value {
        "." | ".." => wrong.push(format!("must not be '{value}'")),
        _ if value.starts_with("..") => wrong.push("must not start with '..'".to_owned()),
        _ => {}
    }
    wrong
}

/// Names of environment variables, as liberal as Kubernetes has been since 1.34.
pub fn environment_variable(value: &str) -> Vec<String> {
    if value.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=') {
        return Vec::new();
    }
    vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()]
}

/// IANA service names, as ports of containers have them.
pub fn port_name(value: &str) -> Vec<String> {
    let mut wrong = too_long(value, PORT_NAME_LENGTH);
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    {
        wrong.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !value.bytes().any(|byte| byte.is_ascii_lowercase()) {
        wrong.push("must contain at least one letter (a-z)".to_owned());
    }
    if value.contains("--") {
        wrong.push("must not contain consecutive hyphens".to_owned());
    }
    if value.starts_with('-') || value.ends_with('-') {
        wrong.push("must not begin or end with a hyphen".to_owned());
    }
    wrong
}

/// `generateName` with its dash replaced, so that the rules for whole names apply to it.
pub fn complete(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        Some(stem) if !stem.is_empty() => format!("{stem}a"),
        _ => prefix.to_owned(),
    }
}

fn is_label(value: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = value.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
}

fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_label)
}

fn is_qualified(value: &str) -> bool {
    let bytes = value.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn too_long(value: &str, most: usize) -> Vec<String> {
    if value.len() > most { vec![format!("must be no more than {most} characters")] } else { Vec::new() }
}

fn form(sentence: &str, regex: &str, examples: &[&str]) -> String {
    let examples = examples.iter().map(|example| format!("'{example}', ")).collect::<Vec<_>>().join(" or ");
    format!("{sentence} (e.g. {examples}regex used for validation is '{regex}')")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_those_of_kubernetes() {
        assert_eq!(dns_label("a.b"), ["must not contain dots"]);
        assert_eq!(
            dns_label("My_Name"),
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an \
              alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
              '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
        assert_eq!(
            dns_subdomain("a..b"),
            [
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end \
              with an alphanumeric character (e.g. 'example.com', regex used for validation is \
              '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
        assert_eq!(dns_label(&"a".repeat(64)), ["must be no more than 63 characters"]);
        assert_eq!(qualified_name("/a"), ["prefix part must be non-empty"]);
        assert_eq!(path_segment("a/b"), ["may not contain '/'"]);
        assert_eq!(data_key("..x"), ["must not start with '..'"]);
        assert_eq!(port_name("80"), ["must contain at least one letter (a-z)"]);
    }

    #[test]
    fn accepted_and_refused() {
        type Rule = fn(&str) -> Vec<String>;
        let table: &[(Rule, &[&str], &[&str])] = &[
            (dns_label, &["a", "0-1"], &["", "-a", "a-", "A", "a_b", "ä"]),
            (dns_subdomain, &["a", "a.b-c.d"], &["", ".", "a.", "a.-b"]),
            (dns_1035_label, &["a1"], &["1a", "", "a."]),
            (qualified_name, &["a", "x/Y_z.1", "a.b/c"], &["", "a/", "A.b/c", "a/b/c", "-a"]),
            (label_value, &["", "A.b_c"], &["-", "a b"]),
            (data_key, &["a", "-._", ".hidden"], &["", ".", "..", "a/b", "..a"]),
            (environment_variable, &["A", "a-b.c", "1 2"], &["a=b", "ä", "a\n"]),
            (port_name, &["http", "a-1"], &["", "1", "a--b", "-a", "abcdefghijklmnop", "HTTP"]),
            (path_segment, &["a:b", "A"], &[".", "..", "a%", "a/b"]),
        ];
        for (rule, good, bad) in table {
            good.iter().for_each(|value| assert!(rule(value).is_empty(), "{value}: {:?}", rule(value)));
            bad.iter().for_each(|value| assert!(!rule(value).is_empty(), "{value:?} was accepted"));
        }
    }

    #[test]
    fn a_generated_name_may_end_in_a_dash() {
        assert_eq!(complete("web-"), "weba");
        assert_eq!(complete("-"), "-");
    }
}
