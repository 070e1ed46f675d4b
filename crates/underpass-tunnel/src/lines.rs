//! Lines of JSON, each of a bounded length.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

pub(crate) const LONGEST: usize = 64 * 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum LineError {
    #[error("the connection broke")]
    Broken(#[source] io::Error),
    #[error("a line is longer than {LONGEST} bytes")]
    TooLong,
    #[error("a line is not what was expected")]
    Unexpected(#[source] serde_json::Error),
    #[error("the connection ended in the middle of a line")]
    Torn,
}

/// Reads lines. What has been read of one is kept when a reader gives up waiting.
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader: BufReader::new(reader), line: Vec::new() }
    }

    /// The next line; None at the end.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, LineError> {
        loop {
            let bytes = self.reader.fill_buf().await.map_err(LineError::Broken)?;
            if bytes.is_empty() {
                return if self.line.is_empty() { Ok(None) } else { Err(LineError::Torn) };
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(bytes.len());
            if self.line.len() + taken > LONGEST {
                return Err(LineError::TooLong);
            }
            self.line.extend_from_slice(&bytes[..taken]);
            self.reader.consume(end.map_or(taken, |end| end + 1));
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                return serde_json::from_slice(&line).map(Some).map_err(LineError::Unexpected);
            }
        }
    }
}

pub(crate) async fn write(writer: &mut (impl AsyncWrite + Unpin), line: &impl Serialize) -> Result<(), LineError> {
    let mut bytes = serde_json::to_vec(line).map_err(LineError::Unexpected)?;
    if bytes.len() > LONGEST {
        return Err(LineError::TooLong);
    }
    bytes.push(b'\n');
    writer.write_all(&bytes).await.map_err(LineError::Broken)?;
    writer.flush().await.map_err(LineError::Broken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::messages::{Asked, ServerRequest};

    fn read_all(bytes: &[u8]) -> (Vec<Value>, Option<LineError>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut lines, mut read) = (Lines::new(bytes), Vec::new());
            loop {
                match lines.next().await {
                    Ok(Some(value)) => read.push(value),
                    Ok(None) => return (read, None),
                    Err(error) => return (read, Some(error)),
                }
            }
        })
    }

    #[test]
    fn a_line_may_be_as_long_as_the_limit_and_no_longer() {
        let longest = format!("\"{}\"\n", "x".repeat(LONGEST - 2));
        let (read, error) = read_all(longest.as_bytes());
        assert_eq!((read.len(), error.is_none()), (1, true));
        let (read, error) = read_all(longest.replacen('x', "xx", 1).as_bytes());
        assert!(read.is_empty() && matches!(error, Some(LineError::TooLong)));
        assert!(matches!(read_all(&vec![b'x'; LONGEST * 4]).1, Some(LineError::TooLong)), "also without an end");
    }

    #[test]
    fn half_a_line_is_none() {
        assert!(matches!(read_all(b"{}\n{\"a\":").1, Some(LineError::Torn)));
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(numbers in prop::collection::vec(any::<u32>(), 0..20)) {
            let values: Vec<Value> = numbers.iter().map(|number| json!({"n": number, "text": "a\nb"})).collect();
            let text: String = values.iter().map(|value| format!("{value}\n")).collect();
            let (read, error) = read_all(text.as_bytes());
            prop_assert_eq!(read, values);
            prop_assert!(error.is_none());
        }

        /// No bytes make the parser of requests fail otherwise than by an error.
        #[test]
        fn any_bytes_are_a_request_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400), text in "\\PC{0,60}") {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let request = format!("{{\"id\":1,\"request\":{{\"prepare\":{{\"number\":{text}\n");
            for bytes in [&bytes[..], request.as_bytes()] {
                runtime.block_on(async {
                    let mut lines = Lines::new(bytes);
                    while let Ok(Some(_)) = lines.next::<Asked<ServerRequest>>().await {}
                });
            }
        }
    }
}
