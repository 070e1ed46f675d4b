//! The answers that the listener gives by itself, as Kubernetes' `Status` objects.

use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde_json::json;

use crate::body::Body;
use crate::metrics::Refused;

const RETRY_AFTER_SECONDS: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    Unauthorized,
    TooManyRequests,
    TooManyWatches,
    NoHost,
    HeaderTooLarge { most: usize },
    BodyTooLarge { most: usize },
    BodyTooSlow,
    BodyBroken,
    Panic,
}

impl Refusal {
    /// Under which reason it is counted; what is the server's own fault, or nobody's, is not a refusal.
    pub(super) fn counted_as(self) -> Option<Refused> {
        match self {
            Self::Unauthorized => Some(Refused::Unauthorized),
            Self::TooManyRequests => Some(Refused::InFlight),
            Self::TooManyWatches => Some(Refused::Watches),
            Self::BodyTooLarge { .. } => Some(Refused::BodyBytes),
            Self::BodyTooSlow => Some(Refused::Body),
            Self::HeaderTooLarge { .. } => Some(Refused::Header),
            Self::NoHost | Self::BodyBroken | Self::Panic => None,
        }
    }

    pub(super) fn response(self) -> Response<Body> {
        let (code, reason, message) = self.status();
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code.as_u16(),
        });
        if code == StatusCode::TOO_MANY_REQUESTS {
            status["details"] = json!({ "retryAfterSeconds": RETRY_AFTER_SECONDS });
        }
        let mut response = Response::new(Body::from(status.to_string()));
        *response.status_mut() = code;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some((name, value)) = self.header() {
            response.headers_mut().insert(name, value);
        }
        response
    }

    fn status(self) -> (StatusCode, &'static str, String) {
        match self {
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized".into()),
            Self::TooManyRequests => {
                let message = "too many requests are being worked on: try again later";
                (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message.into())
            }
            Self::TooManyWatches => {
                let message = "too many watches are open: try again later";
                (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message.into())
            }
            Self::NoHost => (StatusCode::BAD_REQUEST, "BadRequest", "an HTTP/1.1 request needs one Host header".into()),
            Self::HeaderTooLarge { most } => {
                let message = format!("the request's header is too large: at most {most} bytes are allowed");
                (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "RequestHeaderFieldsTooLarge", message)
            }
            Self::BodyTooLarge { most } => {
                let message = format!("the request's body is too large: at most {most} bytes are allowed");
                (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
            }
            Self::BodyTooSlow => {
                (StatusCode::REQUEST_TIMEOUT, "Timeout", "the request's body did not arrive in time".into())
            }
            Self::BodyBroken => (StatusCode::BAD_REQUEST, "BadRequest", "the request's body cannot be read".into()),
            Self::Panic => {
                let message = "the server failed while it worked on this request: its log says more";
                (StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message.into())
            }
        }
    }

    fn header(self) -> Option<(HeaderName, HeaderValue)> {
        match self {
            Self::Unauthorized => Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"underpass\""))),
            Self::TooManyRequests | Self::TooManyWatches => Some((RETRY_AFTER, RETRY_AFTER_SECONDS.into())),
            _ => None,
        }
    }
}
