//! Who asks: the one bearer token stands for the administrator; without one, only health and version can be asked for.

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Method};
use subtle::ConstantTimeEq;

/// What kube-apiserver, too, tells everybody.
const PUBLIC_PATHS: [&str; 5] = ["/healthz", "/livez", "/readyz", "/version", "/version/"];

/// The one on whose behalf a request is made, in Kubernetes' terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
}

/// Knows the token and the users it decides between.
pub(crate) struct Authenticator {
    token: String,
    administrator: Arc<User>,
    anonymous: Arc<User>,
}

impl Authenticator {
    pub(crate) fn new(token: &str) -> Self {
        let user = |name: &str, groups: &[&str]| {
            Arc::new(User { name: name.into(), groups: groups.iter().map(ToString::to_string).collect() })
        };
        Self {
            token: token.to_owned(),
            administrator: user("underpass-admin", &["system:masters", "system:authenticated"]),
            anonymous: user("system:anonymous", &["system:unauthenticated"]),
        }
    }

    /// The user of a request; `None` is answered with 401. Bad credentials are refused on public paths too, so that a client
    /// with an old token hears of it early.
    pub(crate) fn authenticate(&self, method: &Method, path: &str, headers: &HeaderMap) -> Option<Arc<User>> {
        match headers.get(AUTHORIZATION) {
            Some(credentials) => self.is_token(credentials.as_bytes()).then(|| self.administrator.clone()),
            None => is_public(method, path).then(|| self.anonymous.clone()),
        }
    }

    /// The comparison takes as long for a good guess as for a bad one; that a length differs is no secret.
    fn is_token(&self, credentials: &[u8]) -> bool {
        const SCHEME: &[u8] = b"bearer ";
        credentials.split_at_checked(SCHEME.len()).is_some_and(|(scheme, token)| {
            scheme.eq_ignore_ascii_case(SCHEME) && bool::from(token.trim_ascii().ct_eq(self.token.as_bytes()))
        })
    }
}

fn is_public(method: &Method, path: &str) -> bool {
    matches!(*method, Method::GET | Method::HEAD) && PUBLIC_PATHS.contains(&path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(method: &Method, path: &str, credentials: Option<&str>) -> Option<String> {
        let headers = credentials.map(|value| (AUTHORIZATION, value.parse().unwrap())).into_iter().collect();
        Authenticator::new("s3cret").authenticate(method, path, &headers).map(|user| user.name.clone())
    }

    #[test]
    fn the_token_is_the_administrator() {
        for credentials in ["Bearer s3cret", "bearer s3cret", "BEARER  s3cret "] {
            assert_eq!(name_of(&Method::GET, "/api", Some(credentials)).as_deref(), Some("underpass-admin"));
        }
    }

    #[test]
    fn anything_else_is_nobody() {
        for credentials in ["Bearer s3cre", "Bearer s3crets", "Bearer ", "Bearer", "Basic s3cret", "s3cret", ""] {
            assert_eq!(name_of(&Method::GET, "/api", Some(credentials)), None, "{credentials}");
            assert_eq!(name_of(&Method::GET, "/livez", Some(credentials)), None, "{credentials}");
        }
        assert_eq!(name_of(&Method::GET, "/api", None), None);
    }

    #[test]
    fn health_and_version_are_public_to_readers() {
        for path in PUBLIC_PATHS {
            assert_eq!(name_of(&Method::GET, path, None).as_deref(), Some("system:anonymous"));
            assert_eq!(name_of(&Method::POST, path, None), None);
        }
        assert_eq!(name_of(&Method::GET, "/metrics", None), None);
        assert_eq!(name_of(&Method::GET, "/livezz", None), None);
    }
}
