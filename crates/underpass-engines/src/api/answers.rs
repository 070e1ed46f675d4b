//! What an engine's refusals mean. Codes tell little (Podman answers 500 to most things), so that its words have to be read.

use std::error::Error as _;

use bollard::errors::Error;

use crate::engine::{Description, EngineError};

/// Parts of sentences, of every version that we know of both engines.
const EXHAUSTED: &[&str] = &[
    "non-overlapping IPv4 address pool",
    "predefined address pools have been fully subnetted",
    "could not find free subnet",
];
const IN_USE: &[&str] = &[
    "has active endpoints",
    "network is being used",
    "image is in use",
    "image is being used",
    "is using its referenced image",
];
const PORT_TAKEN: &[&str] = &["address already in use", "port is already allocated"];
const NAME_TAKEN: &[&str] = &["already in use", "already exists", "is already used"];
const NOT_FOUND: &[&str] = &[
    "no such container",
    "network not found",
    "image not known",
    "no such image",
    "container state improper: removed",
];

pub(super) fn translate(engine: &Description, error: &Error) -> EngineError {
    match error {
        Error::DockerResponseServerError { status_code, message } => refusal(*status_code, message),
        Error::DockerStreamError { error } => refusal(0, error),
        Error::JsonDataError { message, .. } => EngineError::Refused(format!("its answer cannot be read: {message}")),
        _ => EngineError::Unavailable(format!(
            "{} at {} cannot be reached: {}; start it again, or name another with CONTAINER_HOST or DOCKER_HOST",
            engine.kind,
            engine.address,
            chain(error)
        )),
    }
}

fn refusal(code: u16, words: &str) -> EngineError {
    let says = |parts: &[&str]| {
        let words = words.to_lowercase();
        parts.iter().any(|part| words.contains(&part.to_lowercase()))
    };
    let words = words.trim().to_owned();
    if says(EXHAUSTED) {
        EngineError::AddressesExhausted(words)
    } else if says(IN_USE) {
        EngineError::InUse(words)
    } else if says(PORT_TAKEN) {
        EngineError::PortTaken(words)
    } else if code == 404 || says(NOT_FOUND) {
        EngineError::NotFound(words)
    } else if says(NAME_TAKEN) {
        EngineError::NameTaken(words)
    } else {
        EngineError::Refused(words)
    }
}

/// All causes in one line, without what the layer below repeats.
pub(super) fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_engines_words_are_understood() {
        let pool = "could not find an available, non-overlapping IPv4 address pool among the defaults to assign to the network";
        assert!(matches!(refusal(400, pool), EngineError::AddressesExhausted(words) if words == pool));
        assert!(matches!(
            refusal(500, "could not find free subnet from subnet pools"),
            EngineError::AddressesExhausted(_)
        ));
        let busy = r#""n6" has associated containers with it. Use -f to forcibly delete containers and pods: network is being used"#;
        assert!(matches!(refusal(500, busy), EngineError::InUse(_)));
        assert!(matches!(refusal(403, "network n6 id 1 has active endpoints"), EngineError::InUse(_)));
        assert!(matches!(
            refusal(500, "network name n1 already used: network already exists"),
            EngineError::NameTaken(_)
        ));
        assert!(matches!(refusal(409, "network with name n1 already exists"), EngineError::NameTaken(_)));
        assert!(matches!(refusal(404, "whatever"), EngineError::NotFound(_)));
        assert!(matches!(
            refusal(500, "no container with name or ID \"c1\" found: no such container"),
            EngineError::NotFound(_)
        ));
        let bound = "listen tcp4 127.0.0.1:32768: bind: address already in use";
        assert!(matches!(refusal(500, bound), EngineError::PortTaken(_)));
        assert!(matches!(refusal(400, "invalid reference format"), EngineError::Refused(_)));
    }
}
