//! Errors as Kubernetes' clients know them: a `Status` object with a code, a reason and details.

use http::StatusCode;
use serde_json::{Value, json};
use underpass_schema::FieldError;

/// A refused or failed request. `Display` is the sentence that users read.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub code: StatusCode,
    pub reason: &'static str,
    pub message: String,
    pub details: Option<Value>,
    /// `metadata.continue` of an expired list: how to go on, without consistency.
    pub continue_token: Option<String>,
}

/// What a request is about, for the `details` of a Status and for sentences: `configmaps "a"`.
#[derive(Debug, Clone, Default)]
pub struct Subject {
    pub group: String,
    /// The plural resource name, as Kubernetes writes it into `details.kind`, or the kind for validation errors.
    pub kind: String,
    pub name: String,
}

impl Subject {
    fn qualified(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// What is empty is left out, as Kubernetes does.
    pub(crate) fn details(&self) -> Value {
        let fields = [("name", &self.name), ("group", &self.group), ("kind", &self.kind)];
        fields
            .into_iter()
            .filter(|(_, text)| !text.is_empty())
            .map(|(field, text)| (field.to_owned(), json!(text)))
            .collect()
    }
}

impl ApiError {
    pub fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, continue_token: None }
    }

    fn about(subject: &Subject, code: StatusCode, reason: &'static str, message: String) -> Self {
        Self { details: Some(subject.details()), ..Self::new(code, reason, message) }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// A path that nothing is served at.
    pub fn no_such_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
    }

    pub fn not_found(subject: &Subject) -> Self {
        let message = format!("{} {:?} not found", subject.qualified(), subject.name);
        Self::about(subject, StatusCode::NOT_FOUND, "NotFound", message)
    }

    pub fn already_exists(subject: &Subject) -> Self {
        let message = format!("{} {:?} already exists", subject.qualified(), subject.name);
        Self::about(subject, StatusCode::CONFLICT, "AlreadyExists", message)
    }

    pub fn conflict(subject: &Subject, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {:?}: {why}", subject.qualified(), subject.name);
        Self::about(subject, StatusCode::CONFLICT, "Conflict", message)
    }

    /// The object changed since the client read it.
    pub fn stale(subject: &Subject) -> Self {
        Self::conflict(
            subject,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub fn forbidden(subject: &Subject, why: &str) -> Self {
        let message = format!("{} {:?} is forbidden: {why}", subject.qualified(), subject.name);
        Self::about(subject, StatusCode::FORBIDDEN, "Forbidden", message)
    }

    /// `subject.kind` is the kind here (`ConfigMap`), as Kubernetes has it.
    pub fn invalid(subject: &Subject, errors: &[FieldError]) -> Self {
        let listed: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let sentence = match listed.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{} {:?} is invalid: {sentence}", subject.qualified(), subject.name);
        let causes: Vec<Value> = errors
            .iter()
            .map(|e| json!({ "reason": e.kind.reason(), "message": e.message(), "field": e.path.as_str() }))
            .collect();
        let mut error = Self::about(subject, StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        error.with_causes(causes);
        error
    }

    /// Options in the query or the body of a request; `kind` as in `CreateOptions`.
    pub fn invalid_options(kind: &str, errors: &[FieldError]) -> Self {
        let subject = Subject { group: "meta.k8s.io".to_owned(), kind: kind.to_owned(), name: String::new() };
        Self::invalid(&subject, errors)
    }

    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource".to_owned();
        Self::about(&Subject::default(), StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    }

    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// A resourceVersion that this server has not reached.
    pub fn future_revision(asked: u64, newest: u64) -> Self {
        let mut error = Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout",
            format!("Timeout: Too large resource version: {asked}, current: {newest}"),
        );
        error
            .with_causes(vec![json!({ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" })]);
        if let Some(details) = error.details.as_mut() {
            details["retryAfterSeconds"] = json!(1);
        }
        error
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    pub fn with_causes(&mut self, causes: Vec<Value>) {
        self.details.get_or_insert_with(|| json!({}))["causes"] = Value::Array(causes);
    }

    pub fn to_json(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code.as_u16(),
        });
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        if let Some(token) = &self.continue_token {
            status["metadata"]["continue"] = json!(token);
        }
        status
    }
}
