//! Questions that are answered and not stored: who am I, may I, is this token good.
//!
//! There is one user: whoever has the token may do everything, and nobody else may do anything. The answers say exactly that.

use serde_json::{Value, json};
use underpass_schema::{FieldError, Path};

use crate::object;
use crate::status::{ApiError, Subject};

/// A kind that can only be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Review {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) namespaced: bool,
}

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// Members of this group may do everything in any Kubernetes cluster.
const MASTERS: &str = "system:masters";

const REVIEWS: [Review; 6] = [
    review(AUTHENTICATION, "SelfSubjectReview", "selfsubjectreviews", "selfsubjectreview"),
    review(AUTHENTICATION, "TokenReview", "tokenreviews", "tokenreview"),
    Review {
        namespaced: true,
        ..review(AUTHORIZATION, "LocalSubjectAccessReview", "localsubjectaccessreviews", "localsubjectaccessreview")
    },
    review(AUTHORIZATION, "SelfSubjectAccessReview", "selfsubjectaccessreviews", "selfsubjectaccessreview"),
    review(AUTHORIZATION, "SelfSubjectRulesReview", "selfsubjectrulesreviews", "selfsubjectrulesreview"),
    review(AUTHORIZATION, "SubjectAccessReview", "subjectaccessreviews", "subjectaccessreview"),
];

const fn review(group: &'static str, kind: &'static str, plural: &'static str, singular: &'static str) -> Review {
    Review { group, version: "v1", kind, plural, singular, namespaced: false }
}

/// By group, then by plural.
pub(crate) fn resources() -> &'static [Review] {
    &REVIEWS
}

/// Answers a review; `None` where the resource is none. `token_ok` checks a bearer token in constant time.
pub(crate) fn respond(
    group: &str,
    version: &str,
    plural: &str,
    body: &Value,
    user_name: &str,
    groups: &[String],
    token_ok: &dyn Fn(&str) -> bool,
) -> Option<Result<Value, ApiError>> {
    let review = REVIEWS.iter().find(|r| (r.group, r.version, r.plural) == (group, version, plural))?;
    let user = || json!({ "username": user_name, "groups": groups });
    let status = review.check_kind(body).and_then(|()| match review.kind {
        "SelfSubjectReview" => Ok(json!({ "userInfo": user() })),
        "TokenReview" => token_status(body, token_ok, &user()),
        "SelfSubjectAccessReview" => review.refuse_if_wrong(body, &attributes_errors(body)).map(|()| allowed(true)),
        "SelfSubjectRulesReview" => rules_status(body),
        _ => review.subject_status(body, user_name),
    });
    Some(status.map(|status| review.answer(body, status)))
}

impl Review {
    fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    fn check_kind(&self, body: &Value) -> Result<(), ApiError> {
        let (api_version, kind) = (object::text(body, "/apiVersion"), object::text(body, "/kind"));
        let right =
            (api_version.is_empty() || api_version == self.api_version()) && (kind.is_empty() || kind == self.kind);
        if right {
            return Ok(());
        }
        let message = format!("the body is a {api_version} {kind}, not a {} {}", self.api_version(), self.kind);
        Err(ApiError::bad_request(message))
    }

    /// The question with its answer: `status` is ours alone.
    fn answer(&self, body: &Value, status: Value) -> Value {
        let metadata = body.get("metadata").cloned().unwrap_or_else(|| json!({}));
        let mut answer = json!({ "kind": self.kind, "apiVersion": self.api_version(), "metadata": metadata });
        if let Some(spec) = body.get("spec") {
            answer["spec"] = spec.clone();
        }
        answer["status"] = status;
        answer
    }

    fn refuse_if_wrong(&self, body: &Value, errors: &[FieldError]) -> Result<(), ApiError> {
        if errors.is_empty() {
            return Ok(());
        }
        let subject =
            Subject { group: self.group.to_owned(), kind: self.kind.to_owned(), name: object::name(body).to_owned() };
        Err(ApiError::invalid(&subject, errors))
    }

    /// May somebody else, by name or by group?
    fn subject_status(&self, body: &Value, user_name: &str) -> Result<Value, ApiError> {
        let (user, groups) = (object::text(body, "/spec/user"), object::strings(body, "/spec/groups"));
        let mut errors = attributes_errors(body);
        if user.is_empty() && groups.is_empty() {
            let why = "at least one of user or group must be specified";
            errors.push(FieldError::invalid(&Path::from("spec.user"), &json!(user), why));
        }
        let (about, inside) = (object::text(body, "/spec/resourceAttributes/namespace"), object::namespace(body));
        if self.namespaced && !inside.is_empty() && about != inside {
            let why = "must match the namespace of the review";
            errors.push(FieldError::invalid(&Path::from("spec.resourceAttributes.namespace"), &json!(about), why));
        }
        self.refuse_if_wrong(body, &errors)?;
        Ok(allowed(user == user_name || groups.contains(&MASTERS)))
    }
}

/// Exactly one thing may be asked about: a resource or a path.
fn attributes_errors(body: &Value) -> Vec<FieldError> {
    let spec = body.get("spec").unwrap_or(&Value::Null);
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    match (resource.is_null(), path.is_null()) {
        (false, false) => {
            let why = "cannot be specified in combination with resourceAttributes";
            vec![FieldError::invalid(&Path::from("spec.nonResourceAttributes"), path, why)]
        }
        (true, true) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            vec![FieldError::invalid(&Path::from("spec.resourceAttributes"), spec, why)]
        }
        _ => Vec::new(),
    }
}

fn allowed(allowed: bool) -> Value {
    let reason = if allowed {
        "the holder of this server's token may do everything"
    } else {
        "only the holder of this server's token may do anything"
    };
    json!({ "allowed": allowed, "reason": reason })
}

fn token_status(body: &Value, token_ok: &dyn Fn(&str) -> bool, user: &Value) -> Result<Value, ApiError> {
    let token = object::text(body, "/spec/token");
    if token.is_empty() {
        return Err(ApiError::bad_request("spec.token: a TokenReview needs the token that it is about"));
    }
    Ok(if token_ok(token) {
        json!({ "authenticated": true, "user": user })
    } else {
        json!({ "authenticated": false, "user": {}, "error": "the token is not known here" })
    })
}

fn rules_status(body: &Value) -> Result<Value, ApiError> {
    if object::text(body, "/spec/namespace").is_empty() {
        return Err(ApiError::bad_request("spec.namespace: rules are listed for one namespace, and none is named"));
    }
    Ok(json!({
        "resourceRules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }],
        "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
        "incomplete": false,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(plural: &str, body: &Value) -> Result<Value, ApiError> {
        let group = if plural.contains("access") || plural.contains("rules") { AUTHORIZATION } else { AUTHENTICATION };
        let groups = ["system:masters".to_owned(), "system:authenticated".to_owned()];
        respond(group, "v1", plural, body, "admin", &groups, &|token| token == "good").expect("a review")
    }

    #[test]
    fn the_one_user_may_do_everything() {
        let answer = ask(
            "selfsubjectaccessreviews",
            &json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": { "resourceAttributes": { "verb": "delete", "resource": "pods" } },
                "status": { "allowed": false },
            }),
        );
        let answer = answer.unwrap();
        assert_eq!(answer["status"]["allowed"], true);
        assert_eq!(answer["kind"], "SelfSubjectAccessReview");
        assert_eq!(answer["spec"]["resourceAttributes"]["verb"], "delete");
    }

    #[test]
    fn others_may_nothing_unless_they_are_masters() {
        let about = |user: &str, groups: Value| {
            let body = json!({ "spec": { "user": user, "groups": groups, "nonResourceAttributes": { "path": "/", "verb": "get" } } });
            ask("subjectaccessreviews", &body).unwrap()["status"]["allowed"].clone()
        };
        assert_eq!(about("admin", json!([])), true);
        assert_eq!(about("eve", json!(["system:authenticated"])), false);
        assert_eq!(about("eve", json!(["system:masters"])), true);
    }

    #[test]
    fn a_question_without_a_subject_or_about_two_things_is_refused() {
        let table = [
            ("selfsubjectaccessreviews", json!({ "spec": {} }), "exactly one of"),
            (
                "selfsubjectaccessreviews",
                json!({ "spec": { "resourceAttributes": {}, "nonResourceAttributes": {} } }),
                "in combination with resourceAttributes",
            ),
            ("subjectaccessreviews", json!({ "spec": { "resourceAttributes": {} } }), "user or group"),
            (
                "localsubjectaccessreviews",
                json!({ "metadata": { "namespace": "a" }, "spec": { "user": "x", "resourceAttributes": { "namespace": "b" } } }),
                "namespace of the review",
            ),
            ("selfsubjectrulesreviews", json!({ "spec": {} }), "spec.namespace"),
            ("tokenreviews", json!({ "spec": {} }), "spec.token"),
            (
                "tokenreviews",
                json!({ "kind": "Pod", "apiVersion": "v1" }),
                "not a authentication.k8s.io/v1 TokenReview",
            ),
        ];
        for (plural, body, expected) in table {
            let error = ask(plural, &body).expect_err(plural);
            assert!(error.message.contains(expected), "{plural}: {}", error.message);
        }
    }

    #[test]
    fn a_token_is_told_from_another() {
        let good = ask("tokenreviews", &json!({ "spec": { "token": "good" } })).unwrap();
        assert_eq!(good["status"]["authenticated"], true);
        assert_eq!(good["status"]["user"]["username"], "admin");
        let bad = ask("tokenreviews", &json!({ "spec": { "token": "bad" } })).unwrap();
        assert_eq!(bad["status"]["authenticated"], false);
        assert_eq!(bad["status"]["user"], json!({}));
    }

    #[test]
    fn who_am_i_and_what_may_i() {
        let me = ask("selfsubjectreviews", &json!({ "kind": "SelfSubjectReview" })).unwrap();
        assert_eq!(
            me["status"]["userInfo"],
            json!({ "username": "admin", "groups": ["system:masters", "system:authenticated"] })
        );
        let rules = ask("selfsubjectrulesreviews", &json!({ "spec": { "namespace": "default" } })).unwrap();
        assert_eq!(rules["status"]["resourceRules"][0]["verbs"], json!(["*"]));
    }

    #[test]
    fn other_resources_are_no_reviews() {
        assert!(respond("", "v1", "pods", &json!({}), "admin", &[], &|_| true).is_none());
        assert!(
            respond(AUTHORIZATION, "v1beta1", "subjectaccessreviews", &json!({}), "admin", &[], &|_| true).is_none()
        );
    }
}
