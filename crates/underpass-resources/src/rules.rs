//! The CEL rules that several kinds share, and the words in which they refuse.
//!
//! A Kubernetes API server prices every rule before it accepts a CRD, so these are written to be cheap: they read declared fields of
//! bounded length, and never walk a list inside a list without a reason given beside it. They also run when a neighbour is malformed,
//! so each one first asks whether what it reads is well-formed; the field's own rule has refused it already if not.

use kube::core::{Reason, Rule};

/// `cel` must hold; `says` is the answer when it does not, shown at `path` (relative, such as `.gateway`).
pub(crate) fn at(path: &str, cel: impl Into<String>, says: impl AsRef<str>) -> Rule {
    Rule::new(cel).message(says.as_ref()).field_path(path)
}

/// `cel` must hold; the refusal names the object on which the rule stands.
pub(crate) fn here(cel: impl Into<String>, says: impl AsRef<str>) -> Rule {
    Rule::new(cel).message(says.as_ref())
}

/// A required field or one with a default, which keeps the value that it was created with.
pub(crate) fn fixed(field: &str) -> Rule {
    immutable(field, format!("self.{field} == oldSelf.{field}"))
}

/// An optional field, which may neither change nor come nor go.
pub(crate) fn fixed_optional(field: &str) -> Rule {
    immutable(
        field,
        format!("has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"),
    )
}

/// An optional list of scalars that is fixed as a set: its order may change.
pub(crate) fn fixed_set(field: &str) -> Rule {
    immutable(
        field,
        format!(
            "has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || \
             (size(self.{field}) == size(oldSelf.{field}) && self.{field}.all(x, x in oldSelf.{field})))"
        ),
    )
}

fn immutable(field: &str, cel: String) -> Rule {
    at(
        &format!(".{field}"),
        cel,
        format!("{field} cannot be changed; delete the object and create it again with the new value"),
    )
    .reason(Reason::FieldValueForbidden)
}

/// Two names for one field: both may be written only if they say the same.
pub(crate) fn same_if_both(field: &str, alias: &str) -> Rule {
    at(
        &format!(".{alias}"),
        format!("!has(self.{field}) || !has(self.{alias}) || self.{field} == self.{alias}"),
        format!("{alias} is the old name of {field} and says something else; keep only {field}"),
    )
}

/// An optional or required address that must lie in a network. `guard` is `true` or the test that the address is there.
pub(crate) fn inside(path: &str, guard: &str, address: &str, network: &str, network_name: &str) -> Rule {
    let field = path.rsplit('.').next().unwrap_or(path);
    at(
        path,
        format!(
            "!({guard}) || !{valid} || !isCIDR({network}) || cidr({network}).containsIP({ip})",
            valid = is_address(address),
            ip = ip_of(address)
        ),
        format!("{field} is outside {network_name}; choose an address of that network"),
    )
}

/// Two addresses that must differ, however they are written: equality of parsed addresses has no price and is refused, so `other` is
/// asked as the network that holds nothing else.
pub(crate) fn different(path: &str, guard: &str, address: &str, other: &str, says: &str) -> Rule {
    let bare = format!("{other}.find('^[^/]+')");
    at(
        path,
        format!(
            "!({guard}) || !{} || !{} || !({other}.contains(':') ? cidr({bare} + '/128') : cidr({bare} + '/32')).containsIP({})",
            is_address(address),
            is_address(other),
            ip_of(address)
        ),
        says,
    )
}

/// An IPv4 address that must not lie between two others. DHCP ranges are IPv4.
pub(crate) fn outside_range(path: &str, guard: &str, address: &str, start: &str, end: &str, says: &str) -> Rule {
    let (number, start_number, end_number) = (v4_number(address), v4_number(start), v4_number(end));
    at(
        path,
        format!(
            "!({guard}) || !({} && {} && {}) || {number} < {start_number} || {number} > {end_number}",
            is_v4(address),
            is_v4(start),
            is_v4(end)
        ),
        says,
    )
}

/// The two ends of an IPv4 range, in order.
pub(crate) fn in_order(path: &str, guard: &str, start: &str, end: &str) -> Rule {
    at(
        path,
        format!("!({guard}) || !({} && {}) || {} <= {}", is_v4(start), is_v4(end), v4_number(start), v4_number(end)),
        "rangeEnd lies before rangeStart; exchange them, or correct one",
    )
}

/// An address that must be IPv4, because DHCP hands out nothing else.
pub(crate) fn must_be_v4(path: &str, guard: &str, address: &str) -> Rule {
    let field = path.rsplit('.').next().unwrap_or(path);
    at(
        path,
        format!("!({guard}) || !isIP({address}) || ip({address}).family() == 4"),
        format!("{field} is an IPv6 address; DHCP leases IPv4 addresses, write one of those"),
    )
}

fn is_address(text: &str) -> String {
    format!("(isIP({text}) || isCIDR({text}))")
}

fn ip_of(text: &str) -> String {
    format!("(isCIDR({text}) ? cidr({text}).ip() : ip({text}))")
}

fn is_v4(text: &str) -> String {
    format!("{text}.matches('^[0-9]{{1,3}}([.][0-9]{{1,3}}){{3}}(/[0-9]{{1,2}})?$')")
}

/// CEL cannot order addresses, so they are compared as numbers.
fn v4_number(text: &str) -> String {
    let octet = |index: u8, factor: u32| format!("int({text}.find('^[0-9.]+').split('.')[{index}]) * {factor}");
    format!("({} + {} + {} + {})", octet(0, 16_777_216), octet(1, 65_536), octet(2, 256), octet(3, 1))
}
