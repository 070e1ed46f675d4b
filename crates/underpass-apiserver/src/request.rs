//! What a request asks for: the path as a target, the query as options.

use http::request::Parts;
use serde_json::{Value, json};
use underpass_schema::{ErrorKind, FieldError, Path};

use crate::selector::{FieldSelector, LabelSelector};
use crate::status::ApiError;

/// A path below /api or /apis that names a resource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: String,
    pub(crate) plural: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
    /// The old `/watch/` prefix, which means the same as `?watch=true`.
    pub(crate) watch: bool,
}

impl Target {
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let mut segments = segments(path)?.map(decode).collect::<Option<Vec<_>>>()?.into_iter();
        let (mut target, first) = (Self::default(), segments.next()?);
        let mut named = || segments.next().filter(|segment| !segment.is_empty());
        match first.as_str() {
            "api" => {}
            "apis" => target.group = named()?,
            _ => return None,
        }
        target.version = named()?;
        let mut rest: Vec<String> = segments.collect();
        if rest.first().is_some_and(|s| s == "watch") {
            target.watch = true;
            rest.remove(0);
        }
        target.fill(&rest)?;
        Some(target)
    }

    fn fill(&mut self, rest: &[String]) -> Option<()> {
        let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
        let below = match rest.as_slice() {
            // A namespace's own subresources, not resources in it.
            ["namespaces", _, "status" | "finalize"] => rest.as_slice(),
            ["namespaces", namespace, below @ ..] if !below.is_empty() => {
                self.namespace = (*namespace).to_owned();
                below
            }
            all => all,
        };
        // `/namespaces//pods` is all namespaces, as in Kubernetes; nothing else may be empty.
        if below.iter().any(|segment| segment.is_empty()) {
            return None;
        }
        match below {
            [plural] => self.plural = (*plural).to_owned(),
            [plural, name] => (self.plural, self.name) = ((*plural).to_owned(), (*name).to_owned()),
            [plural, name, sub] => {
                (self.plural, self.name) = ((*plural).to_owned(), (*name).to_owned());
                self.subresource = (*sub).to_owned();
            }
            _ => return None,
        }
        Some(())
    }
}

/// The parts of a path. A slash may end it, but an empty part is not the same as none.
pub(crate) fn segments(path: &str) -> Option<std::str::Split<'_, char>> {
    let path = path.strip_prefix('/')?;
    Some(path.strip_suffix('/').unwrap_or(path).split('/'))
}

fn decode(segment: &str) -> Option<String> {
    percent_encoding::percent_decode_str(segment).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

/// The query string, each name's last value winning.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn of(parts: &Parts) -> Self {
        Self::parse(parts.uri.query().unwrap_or_default())
    }

    pub(crate) fn parse(query: &str) -> Self {
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.iter().rev().find(|(n, _)| n == name).map_or("", |(_, v)| v)
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(n, _)| n == name)
    }

    /// As Kubernetes reads booleans: the bare name means true, and the first one counts.
    pub(crate) fn flag(&self, name: &str) -> bool {
        let given = self.0.iter().find(|(n, _)| n == name);
        given.is_some_and(|(_, v)| !v.eq_ignore_ascii_case("false") && v != "0")
    }

    fn number(&self, name: &str) -> Result<Option<i64>, ApiError> {
        match self.get(name) {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| ApiError::bad_request(format!("{name} must be a whole number, not {text:?}"))),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// Options of create, update and patch.
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) field_manager: String,
    pub(crate) field_validation: FieldValidation,
    pub(crate) force: bool,
}

/// The longest manager name that Kubernetes accepts.
const MAX_MANAGER: usize = 128;

/// Which options: each write has its own kind of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writing {
    Create,
    Update,
    Patch,
    Apply,
}

impl Writing {
    fn options_kind(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Patch | Self::Apply => "PatchOptions",
        }
    }
}

impl WriteOptions {
    pub(crate) fn parse(query: &Query, user_agent: &str, writing: Writing) -> Result<Self, ApiError> {
        let mut errors = Vec::new();
        match writing {
            Writing::Apply if query.get("fieldManager").is_empty() => {
                errors.push(FieldError::required(&Path::from("fieldManager"), "is required for apply patch"));
            }
            Writing::Patch if query.has("force") => {
                errors.push(FieldError::forbidden(&Path::from("force"), "may not be specified for non-apply patch"));
            }
            _ => {}
        }
        errors.extend(wrong_manager(query.get("fieldManager")));
        let dry_run = dry_run(query.all("dryRun"), &mut errors);
        let field_manager = match query.get("fieldManager") {
            "" => user_agent.split('/').next().unwrap_or_default().chars().take(MAX_MANAGER).collect(),
            name => name.to_owned(),
        };
        let field_validation = match query.get("fieldValidation") {
            "Ignore" => FieldValidation::Ignore,
            "" | "Warn" => FieldValidation::Warn,
            "Strict" => FieldValidation::Strict,
            other => {
                errors.push(unsupported("fieldValidation", &json!(other), &["", "Ignore", "Strict", "Warn"]));
                FieldValidation::Strict
            }
        };
        match errors.is_empty() {
            true => Ok(Self { dry_run, field_manager, field_validation, force: query.flag("force") }),
            false => Err(ApiError::invalid_options(writing.options_kind(), &errors)),
        }
    }
}

fn wrong_manager(name: &str) -> Option<FieldError> {
    let path = Path::from("fieldManager");
    if name.len() > MAX_MANAGER {
        let why = format!("may not be more than {MAX_MANAGER} bytes");
        return Some(FieldError::new(&path, ErrorKind::TooLong, None, why));
    }
    let (position, character) = name.chars().enumerate().find(|(_, character)| character.is_control())?;
    let why = format!("invalid character U+{:04X} (at position {position})", u32::from(character));
    Some(FieldError::invalid(&path, &json!(name), why))
}

/// `dryRun=All`, as it stands in a query or in DeleteOptions.
pub(crate) fn dry_run<'a>(values: impl Iterator<Item = &'a str>, errors: &mut Vec<FieldError>) -> bool {
    let values: Vec<&str> = values.collect();
    if values.iter().any(|value| *value != "All") {
        errors.push(unsupported("dryRun", &json!(values), &["All"]));
    }
    !values.is_empty()
}

pub(crate) fn unsupported(field: &str, value: &Value, supported: &[&str]) -> FieldError {
    let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
    let why = format!("supported values: {}", supported.join(", "));
    FieldError::new(&Path::from(field), ErrorKind::NotSupported, Some(value), why)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VersionMatch {
    Unset,
    Exact,
    NotOlderThan,
    Unknown,
}

/// Options of list, watch and deletecollection.
pub(crate) struct ListOptions {
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
    pub(crate) limit: usize,
    pub(crate) continue_token: String,
    /// `None` = not given (the newest), `Some(0)` = any.
    pub(crate) resource_version: Option<u64>,
    pub(crate) version_match: VersionMatch,
    /// `None` = as long as the server likes.
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
    pub(crate) watch: bool,
}

impl ListOptions {
    pub(crate) fn parse(query: &Query) -> Result<Self, ApiError> {
        let version_match = match query.get("resourceVersionMatch") {
            "" => VersionMatch::Unset,
            "Exact" => VersionMatch::Exact,
            "NotOlderThan" => VersionMatch::NotOlderThan,
            _ => VersionMatch::Unknown,
        };
        let resource_version = match query.get("resourceVersion") {
            "" => None,
            given => Some(given.parse().map_err(|_| {
                ApiError::bad_request(format!(
                    "resourceVersion: Invalid value: {given:?}: it must be one that this server gave out"
                ))
            })?),
        };
        let send_initial_events = match query.get("sendInitialEvents") {
            "" => None,
            text => Some(text != "false"),
        };
        let options = Self {
            labels: LabelSelector::parse(query.get("labelSelector"))?,
            fields: FieldSelector::parse(query.get("fieldSelector"))?,
            // Below zero is as good as none, as in Kubernetes.
            limit: usize::try_from(query.number("limit")?.unwrap_or(0)).unwrap_or(0),
            continue_token: query.get("continue").to_owned(),
            resource_version,
            version_match,
            timeout_seconds: query
                .number("timeoutSeconds")?
                .filter(|seconds| *seconds != 0)
                .map(|s| s.max(0).unsigned_abs()),
            bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events,
            watch: query.flag("watch"),
        };
        match options.contradictions(query.get("resourceVersionMatch")) {
            errors if errors.is_empty() => Ok(options),
            errors => Err(ApiError::invalid_options("ListOptions", &errors)),
        }
    }

    /// A watch of one object is a watch of the collection that sees only it.
    pub(crate) fn only_name(&mut self, name: &str) {
        if !name.is_empty() {
            self.fields.require_name(name);
        }
    }

    /// The combinations that Kubernetes forbids.
    fn contradictions(&self, given_match: &str) -> Vec<FieldError> {
        let (path, from_anywhere) = ("resourceVersionMatch".into(), self.resource_version.unwrap_or(0) == 0);
        let forbidden = |wrong: bool, why: &str| wrong.then(|| FieldError::forbidden(&path, why));
        let unsupported = |wrong: bool, supported: &str| {
            let why = format!("supported values: {supported}");
            wrong.then(|| FieldError::new(&path, ErrorKind::NotSupported, Some(&json!(given_match)), why))
        };
        let (with_match, continued) = (self.version_match != VersionMatch::Unset, !self.continue_token.is_empty());
        let found = if self.watch {
            let initial = self.send_initial_events.is_some();
            let fits = self.version_match == VersionMatch::NotOlderThan;
            [
                forbidden(initial && !fits, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
                forbidden(
                    !initial && with_match,
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ),
                // A watch from anywhere is one with initial events, which bring their own match.
                forbidden(
                    continued && (with_match || from_anywhere),
                    "resourceVersionMatch is forbidden when continue is provided",
                ),
                unsupported(with_match && !fits, "\"NotOlderThan\""),
            ]
        } else {
            let exactly_any = self.version_match == VersionMatch::Exact && self.resource_version == Some(0);
            let initial = self.send_initial_events.map(|_| "sendInitialEvents is forbidden for list");
            [
                initial.map(|why| FieldError::forbidden(&"sendInitialEvents".into(), why)),
                forbidden(
                    with_match && self.resource_version.is_none(),
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                )
                .or_else(|| {
                    forbidden(exactly_any, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")
                }),
                forbidden(with_match && continued, "resourceVersionMatch is forbidden when continue is provided"),
                unsupported(self.version_match == VersionMatch::Unknown, "\"Exact\", \"NotOlderThan\", \"\""),
            ]
        };
        found.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> Option<(String, String, String, String, String)> {
        Target::parse(path).map(|t| (t.group, t.namespace, t.plural, t.name, t.subresource))
    }

    fn is(g: &str, ns: &str, p: &str, n: &str, s: &str) -> Option<(String, String, String, String, String)> {
        Some((g.into(), ns.into(), p.into(), n.into(), s.into()))
    }

    #[test]
    fn paths_name_resources() {
        assert_eq!(target("/api/v1/pods"), is("", "", "pods", "", ""));
        assert_eq!(target("/api/v1/namespaces/a"), is("", "", "namespaces", "a", ""));
        assert_eq!(target("/api/v1/namespaces/a/finalize"), is("", "", "namespaces", "a", "finalize"));
        assert_eq!(target("/api/v1/namespaces/a/pods/b/status"), is("", "a", "pods", "b", "status"));
        assert_eq!(target("/apis/x.y/v1/namespaces/a/zs"), is("x.y", "a", "zs", "", ""));
        assert_eq!(target("/apis/x.y/v1/zs/n%20m"), is("x.y", "", "zs", "n m", ""));
        assert_eq!(target("/apis/x.y/v1"), None);
        assert_eq!(target("/openapi/v2"), None);
        assert_eq!(target("/api/v1/namespaces/a/pods/b/c/d"), None);
        assert_eq!(target("/api/v1/pods/"), is("", "", "pods", "", ""));
        assert_eq!(target("/api/v1/namespaces//pods"), is("", "", "pods", "", ""));
        for path in ["//api/v1/pods", "/api//v1/pods", "/api/v1//pods", "/api/v1/namespaces/a//pods", "/api/v1/pods//"]
        {
            assert_eq!(target(path), None, "{path}");
        }
    }

    #[test]
    fn the_old_watch_prefix_is_a_watch() {
        let target = Target::parse("/api/v1/watch/namespaces/a/pods").unwrap();
        assert!(target.watch && target.plural == "pods" && target.namespace == "a");
    }

    fn options(query: &str) -> Result<ListOptions, (u16, String)> {
        ListOptions::parse(&Query::parse(query)).map_err(|e| (e.code.as_u16(), e.message))
    }

    #[test]
    fn options_that_contradict_each_other_are_invalid() {
        let forbidden =
            |why: &str| format!("ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: {why}");
        for (query, why) in [
            ("watch=1&continue=x", "resourceVersionMatch is forbidden when continue is provided"),
            ("watch=1&continue=x&resourceVersion=0", "resourceVersionMatch is forbidden when continue is provided"),
            (
                "watch=1&sendInitialEvents=true",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
            (
                "watch=1&resourceVersionMatch=NotOlderThan",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ),
            ("resourceVersionMatch=Exact", "resourceVersionMatch is forbidden unless resourceVersion is provided"),
            (
                "resourceVersion=0&resourceVersionMatch=Exact",
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ),
        ] {
            assert_eq!(options(query).err(), Some((422, forbidden(why))), "{query}");
        }
        for query in [
            "resourceVersionMatch=Foo&resourceVersion=3",
            "watch=1&resourceVersionMatch=Exact",
            "sendInitialEvents=true",
        ] {
            assert_eq!(options(query).err().map(|(code, _)| code), Some(422), "{query}");
        }
    }

    #[test]
    fn numbers_below_zero_are_as_good_as_none() {
        let read = |query| options(query).map(|o| (o.limit, o.timeout_seconds));
        assert_eq!(read("limit=-1&timeoutSeconds=0"), Ok((0, None)));
        assert_eq!(read("watch=1&limit=5&resourceVersion=7&continue=x&timeoutSeconds=-1"), Ok((5, Some(0))));
        assert_eq!(read("limit=some").err().map(|(code, _)| code), Some(400));
    }
}
