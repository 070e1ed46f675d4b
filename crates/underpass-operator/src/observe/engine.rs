//! A question to the container engine, for an object that says something even where there is no answer.

use std::time::Duration;

use tokio::time::sleep;
use underpass_engines::EngineError;

/// A refusal may be about what was just going away: it is told when it stands.
const PAUSES: [Duration; 3] = [Duration::from_millis(50), Duration::from_millis(200), Duration::from_millis(800)];

/// The answer, or why there is none. An engine that refuses cannot be driven, like one that is away, and is looked at again like it.
pub(super) async fn ask<T, F>(what: &str, question: impl Fn() -> F) -> Result<T, String>
where
    F: Future<Output = Result<T, EngineError>>,
{
    for pause in PAUSES {
        match question().await {
            Err(EngineError::Unavailable(why)) => return Err(why),
            Err(_) => sleep(pause).await,
            Ok(answer) => return Ok(answer),
        }
    }
    question().await.map_err(|error| match error {
        EngineError::Unavailable(why) => why,
        error => format!("{what} cannot be looked at: {error}"),
    })
}
