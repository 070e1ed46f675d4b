//! Long answers, made shorter for clients that ask for it.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, VARY};
use http::{HeaderMap, HeaderValue, Response};

use crate::body::Body;

/// Below this, as in kube-apiserver, the time to compress costs more than the bytes do.
const LEAST_BYTES: usize = 128 << 10;

pub(super) fn is_accepted(asked: &HeaderMap) -> bool {
    let values = asked.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, "q=1"));
        let refused = weight.trim().strip_prefix("q=").is_some_and(|weight| weight.parse() == Ok(0.0));
        name.trim().eq_ignore_ascii_case("gzip") && !refused
    })
}

/// Compresses the body if the client takes gzip and it is long; on a thread of its own, since it takes milliseconds.
pub(super) async fn compress(accepted: bool, response: Response<Body>) -> Response<Body> {
    let worth_it = response.body().len().is_some_and(|bytes| bytes >= LEAST_BYTES);
    if !accepted || !worth_it || response.headers().contains_key(CONTENT_ENCODING) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let pieces: Vec<Bytes> = match body {
        Body::Full(bytes) => vec![bytes],
        Body::Chunks(pieces) => pieces.into(),
        body @ (Body::Empty | Body::Stream(_)) => return Response::from_parts(head, body),
    };
    let copies = pieces.clone();
    match tokio::task::spawn_blocking(move || gzip(&copies)).await {
        Ok(Ok(shorter)) => {
            head.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            head.headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
            head.headers.remove(CONTENT_LENGTH);
            Response::from_parts(head, Body::from(shorter))
        }
        Ok(Err(_)) | Err(_) => Response::from_parts(head, Body::from(pieces)),
    }
}

fn gzip(pieces: &[Bytes]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    for piece in pieces {
        encoder.write_all(piece)?;
    }
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use http_body_util::BodyExt;

    use super::*;

    fn asking(encodings: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(encodings))])
    }

    #[test]
    fn the_client_decides() {
        for encodings in ["gzip", "deflate, gzip;q=0.5", "GZIP ; q=1.0"] {
            assert!(is_accepted(&asking(encodings)), "{encodings}");
        }
        for encodings in ["", "identity", "gzip;q=0", "gzip; q=0.0", "xgzip"] {
            assert!(!is_accepted(&asking(encodings)), "{encodings}");
        }
    }

    #[tokio::test]
    async fn a_long_body_arrives_shorter_and_unchanged() {
        let pieces = vec![Bytes::from(vec![b'a'; LEAST_BYTES]), Bytes::from("end")];
        let response = compress(true, Response::new(Body::from(pieces.clone()))).await;
        assert_eq!(response.headers()[CONTENT_ENCODING], "gzip");
        let shorter = response.into_body().collect().await.unwrap().to_bytes();
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(&shorter[..]).read_to_end(&mut text).unwrap();
        assert!(shorter.len() < LEAST_BYTES / 10);
        assert_eq!(text, pieces.concat());
    }

    #[tokio::test]
    async fn short_bodies_and_streams_stay_as_they_are() {
        let short = Body::from(vec![b'a'; LEAST_BYTES - 1]);
        let stream = Body::stream(futures::stream::iter([Bytes::from(vec![b'a'; LEAST_BYTES])]));
        for body in [short, stream] {
            assert!(!compress(true, Response::new(body)).await.headers().contains_key(CONTENT_ENCODING));
        }
    }
}
