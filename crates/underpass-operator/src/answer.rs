//! What the API server, or the way to it, said: one sentence.
//!
//! kube's own errors print their causes and their debug form inside their text, so that a chain of them says everything three times.

use std::error::Error as StdError;
use std::fmt;

use kube::core::response::Status;

/// A failed request, in the words of whoever refused it.
#[derive(Debug)]
pub struct Answer(Box<kube::Error>);

impl Answer {
    /// The server's own verdict; `None` when no server was reached.
    pub fn status(&self) -> Option<&Status> {
        match &*self.0 {
            kube::Error::Api(status) => Some(status),
            _ => None,
        }
    }

    /// Whether the request went out and no answer came back.
    pub(crate) fn is_connection(&self) -> bool {
        matches!(*self.0, kube::Error::Service(_) | kube::Error::HyperError(_))
    }

    fn root(&self) -> &(dyn StdError + 'static) {
        let mut cause: &(dyn StdError + 'static) = &*self.0;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        cause
    }
}

impl From<kube::Error> for Answer {
    fn from(error: kube::Error) -> Self {
        Self(Box::new(error))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status() {
            Some(status) => f.write_str(&status.message),
            None => write!(f, "{}", self.root()),
        }
    }
}

impl StdError for Answer {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_s_sentence_is_all_that_is_said() {
        let status =
            Status { code: 409, message: "somebody was faster".into(), reason: "Conflict".into(), ..Status::default() };
        let answer = Answer::from(kube::Error::Api(Box::new(status)));
        assert_eq!(answer.to_string(), "somebody was faster");
        assert!(answer.status().is_some_and(Status::is_conflict));
    }

    #[test]
    fn without_a_server_the_deepest_cause_speaks() {
        let cause = std::io::Error::other(std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "refused"));
        let answer = Answer::from(kube::Error::Service(Box::new(cause)));
        assert_eq!(answer.to_string(), "refused");
        assert!(answer.is_connection() && answer.status().is_none());
    }
}
