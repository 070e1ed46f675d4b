//! Answers in Kubernetes' protobuf form, for clients that take nothing else.
//!
//! Every answer is made in JSON and translated at the edge, so that no other part knows of a second form. The price is a parse, and
//! only those pay it who refuse JSON; Go clients that take both get JSON.

use bytes::Bytes;
use futures::StreamExt;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use serde_json::Value;
use underpass_builtins::protobuf::{self, MEDIA_TYPE, Problem, ProtobufError};

use crate::body::Body;
use crate::status::ApiError;

const WATCH: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// The same answer in protobuf. What is not JSON, and documents that have no such form (discovery), stay as they are.
pub(crate) fn translated(response: Response<Body>) -> Response<Body> {
    if response.headers().get(CONTENT_TYPE).is_none_or(|type_| type_ != "application/json") {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let text = match body {
        Body::Stream(events) => {
            head.headers.insert(CONTENT_TYPE, HeaderValue::from_static(WATCH));
            return Response::from_parts(head, Body::stream(events.map(|lines| frames(&lines))));
        }
        Body::Empty => return Response::from_parts(head, Body::Empty),
        Body::Full(text) => text,
        Body::Chunks(pieces) => pieces.into_iter().flatten().collect(),
    };
    let encoded = match encode(&text) {
        Ok(encoded) => encoded,
        Err(ProtobufError { problem: Problem::UnknownKind { .. }, .. }) => {
            return Response::from_parts(head, Body::Full(text));
        }
        Err(error) => {
            head.status = StatusCode::INTERNAL_SERVER_ERROR;
            status(&error)
        }
    };
    head.headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    Response::from_parts(head, encoded.into())
}

fn encode(text: &[u8]) -> Result<Vec<u8>, ProtobufError> {
    protobuf::encode(&parse(text)?)
}

/// Events of a watch, line by line, as frames.
fn frames(lines: &[u8]) -> Bytes {
    lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).flat_map(frame).collect()
}

fn frame(line: &[u8]) -> Vec<u8> {
    let framed = parse(line)
        .and_then(|event| protobuf::watch_frame(event["type"].as_str().unwrap_or_default(), &event["object"]));
    // A client that reads an error lists again and sees what the frame could not say.
    framed.or_else(|error| protobuf::watch_frame("ERROR", &failure(&error))).unwrap_or_default()
}

fn status(error: &ProtobufError) -> Vec<u8> {
    protobuf::encode(&failure(error)).unwrap_or_default()
}

fn failure(error: &ProtobufError) -> Value {
    ApiError::internal(format!("the answer cannot be written in protobuf: {error}")).to_json()
}

fn parse(text: &[u8]) -> Result<Value, ProtobufError> {
    serde_json::from_slice(text).map_err(|error| Problem::NotJson(error.to_string()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use http_body_util::BodyExt;
    use serde_json::json;

    fn answer(body: Body) -> Response<Body> {
        let mut response = Response::new(body);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        translated(response)
    }

    async fn read(response: Response<Body>) -> (String, Bytes) {
        let type_ = response.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
        (type_, response.into_body().collect().await.unwrap().to_bytes())
    }

    fn namespace() -> Value {
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "a" }, "spec": {}, "status": {} })
    }

    #[tokio::test]
    async fn objects_lists_and_errors_are_translated() {
        let list = json!({ "apiVersion": "v1", "kind": "NamespaceList", "metadata": { "resourceVersion": "7" }, "items": [
            { "metadata": { "name": "a" }, "spec": {}, "status": {} },
        ] });
        let refusal = ApiError::no_such_path().to_json();
        for said in [namespace(), list, refusal] {
            let text = said.to_string();
            let (start, end) = text.split_at(5);
            let pieces = vec![Bytes::copy_from_slice(start.as_bytes()), Bytes::copy_from_slice(end.as_bytes())];
            for body in [Body::from(text.clone()), Body::from(pieces)] {
                let (type_, bytes) = read(answer(body)).await;
                assert_eq!(type_, MEDIA_TYPE);
                assert_eq!(protobuf::decode(&bytes).unwrap(), said);
            }
        }
    }

    #[tokio::test]
    async fn events_are_framed_one_by_one() {
        let line = format!("{}\n", json!({ "type": "ADDED", "object": namespace() }));
        let broken = json!({ "type": "ADDED", "object": { "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": 1 } } });
        let pieces = [line.repeat(2), format!("{broken}\n")].map(Bytes::from);
        let (type_, bytes) = read(answer(Body::stream(stream::iter(pieces)))).await;
        assert_eq!(type_, WATCH);
        let frame = protobuf::watch_frame("ADDED", &namespace()).unwrap();
        let rest = bytes.strip_prefix([&frame[..], &frame[..]].concat().as_slice()).unwrap();
        assert!(rest[4..].starts_with(b"\x0a\x05ERROR"), "{rest:?}");
    }

    #[tokio::test]
    async fn documents_without_such_a_form_stay_json() {
        let text = json!({ "kind": "APIVersions", "versions": ["v1"] }).to_string();
        assert_eq!(read(answer(Body::from(text.clone()))).await, ("application/json".to_owned(), text.into()));
    }
}
