//! Collecting what is wrong, in the shape of Kubernetes' field errors.

use std::collections::BTreeSet;
use std::net::IpAddr;

use base64::prelude::BASE64_STANDARD;
use base64::{DecodeError, Engine};
use serde_json::Value;
use underpass_schema::{ErrorKind, FieldError, Path};

use crate::{fields, names};

pub(crate) const IMMUTABLE: &str = "field is immutable";
pub(crate) const IMMUTABLE_BY_FLAG: &str = "field is immutable when `immutable` is set";
const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
pub(crate) const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const TAINT_EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

#[derive(Default)]
pub(crate) struct Errors(Vec<FieldError>);

impl Errors {
    pub(crate) fn done(self) -> Vec<FieldError> {
        self.0
    }

    pub(crate) fn push(&mut self, error: FieldError) {
        self.0.push(error);
    }

    pub(crate) fn required(&mut self, path: &Path, detail: &str) {
        self.push(FieldError::required(path, detail));
    }

    pub(crate) fn invalid(&mut self, path: &Path, value: impl Into<Value>, detail: impl Into<String>) {
        self.push(FieldError::invalid(path, &value.into(), detail));
    }

    pub(crate) fn forbidden(&mut self, path: &Path, detail: impl Into<String>) {
        self.push(FieldError::forbidden(path, detail));
    }

    pub(crate) fn duplicate(&mut self, path: &Path, value: impl Into<Value>) {
        self.push(FieldError::new(path, ErrorKind::Duplicate, Some(&value.into()), ""));
    }

    pub(crate) fn not_supported(&mut self, path: &Path, value: impl Into<Value>, supported: &[&str]) {
        let supported = supported.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(", ");
        self.push(FieldError::new(
            path,
            ErrorKind::NotSupported,
            Some(&value.into()),
            format!("supported values: {supported}"),
        ));
    }

    pub(crate) fn too_long(&mut self, path: &Path, most: usize) {
        self.push(FieldError::new(path, ErrorKind::TooLong, None, format!("may not be more than {most} bytes")));
    }

    pub(crate) fn too_many(&mut self, path: &Path, found: usize, most: usize) {
        let found = Value::from(found);
        self.push(FieldError::new(path, ErrorKind::TooMany, Some(&found), format!("must have at most {most} items")));
    }

    /// One error for each sentence of a rule of [`names`].
    pub(crate) fn rule(&mut self, path: &Path, value: &str, wrong: Vec<String>) {
        wrong.into_iter().for_each(|reason| self.invalid(path, value, reason));
    }

    /// A text that must be there and be one of a few.
    pub(crate) fn one_of(&mut self, path: &Path, value: &str, supported: &[&str]) {
        if value.is_empty() {
            self.required(path, "");
        } else if !supported.contains(&value) {
            self.not_supported(path, value, supported);
        }
    }

    pub(crate) fn unique<'a>(&mut self, path: &Path, value: &'a str, seen: &mut BTreeSet<&'a str>) {
        if !seen.insert(value) {
            self.duplicate(path, value);
        }
    }

    pub(crate) fn port(&mut self, path: &Path, port: i64) {
        if !(1..=65535).contains(&port) {
            self.invalid(path, port, "must be between 1 and 65535, inclusive");
        }
    }

    pub(crate) fn port_or_name(&mut self, path: &Path, port: &Value) {
        match port {
            Value::String(name) => self.rule(path, name, names::port_name(name)),
            number => {
                if let Some(number) = number.as_i64() {
                    self.port(path, number);
                }
            }
        }
    }

    pub(crate) fn not_negative(&mut self, object: &Value, path: &Path, key: &str) {
        if let Some(value) = object.get(key).and_then(Value::as_i64).filter(|value| *value < 0) {
            self.invalid(&path.field(key), value, NOT_NEGATIVE);
        }
    }

    /// A field that may not differ from the one of the stored object. Empty and absent are the same.
    pub(crate) fn immutable(&mut self, new: &Value, old: &Value, path: &str) {
        let pointer = format!("/{}", path.replace('.', "/"));
        let new = new.pointer(&pointer).filter(|value| !is_empty(value));
        if new != old.pointer(&pointer).filter(|value| !is_empty(value)) {
            self.invalid(&Path::from(path), new.cloned().unwrap_or(Value::Null), IMMUTABLE);
        }
    }

    pub(crate) fn labels(&mut self, object: &Value, path: &Path, key: &str) {
        let path = path.field(key);
        for (key, value) in object.get(key).and_then(Value::as_object).into_iter().flatten() {
            self.rule(&path, key, names::qualified_name(key));
            let value = value.as_str().unwrap_or_default();
            self.rule(&path, value, names::label_value(value));
        }
    }

    /// An address; `None` after reporting that it is none.
    pub(crate) fn ip(&mut self, path: &Path, value: &str) -> Option<IpAddr> {
        let parsed = value.parse().ok();
        if parsed.is_none() {
            self.invalid(path, value, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
        }
        parsed
    }

    /// Addresses that traffic of others may be sent to: none of this host, none of one link.
    pub(crate) fn endpoint_ip(&mut self, path: &Path, value: &str, ip: IpAddr) {
        let (link_local, link_multicast) = match ip {
            IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
            IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.segments()[0] & 0xff0f == 0xff02),
        };
        if ip.is_unspecified() {
            self.invalid(path, value, format!("may not be unspecified ({value})"));
        }
        if ip.is_loopback() {
            self.invalid(path, value, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
        }
        if link_local {
            self.invalid(path, value, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
        }
        if link_multicast {
            self.invalid(path, value, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
        }
    }

    /// Bytes written as base64: how many there are. Reports what is no base64, by the offset that Go's decoder would name.
    pub(crate) fn base64(&mut self, path: &Path, value: &Value) -> usize {
        let text = value.as_str().unwrap_or_default();
        self.decoded(path, text, text)
    }

    /// The same without showing the text.
    pub(crate) fn base64_secret(&mut self, path: &Path, value: &Value) -> usize {
        self.decoded(path, value.as_str().unwrap_or_default(), "<secret contents redacted>")
    }

    fn decoded(&mut self, path: &Path, text: &str, shown: &str) -> usize {
        let compact: String = text.chars().filter(|character| !"\r\n".contains(*character)).collect();
        match BASE64_STANDARD.decode(&compact) {
            Ok(bytes) => bytes.len(),
            Err(error) => {
                let at = match error {
                    DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => at,
                    DecodeError::InvalidLength(length) => length / 4 * 4,
                    DecodeError::InvalidPadding => compact.len(),
                };
                self.invalid(path, shown, format!("illegal base64 data at input byte {at}"));
                0
            }
        }
    }

    pub(crate) fn taint_effect(&mut self, path: &Path, effect: &str) {
        self.one_of(path, effect, TAINT_EFFECTS);
    }

    /// The common rules of `immutable: true` in ConfigMaps and Secrets.
    pub(crate) fn frozen(&mut self, new: &Value, old: &Value, data: &[&str]) {
        if !fields::flag(old, "/immutable") {
            return;
        }
        if !fields::flag(new, "/immutable") {
            self.forbidden(&Path::from("immutable"), IMMUTABLE_BY_FLAG);
        }
        let content = |object: &Value, key: &str| object.get(key).filter(|value| !is_empty(value)).cloned();
        for key in data.iter().filter(|key| content(new, key) != content(old, key)) {
            self.forbidden(&Path::from(*key), IMMUTABLE_BY_FLAG);
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// What the tests of the kinds compare: the errors as kubectl prints them.
#[cfg(test)]
pub(crate) fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}
