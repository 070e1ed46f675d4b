//! What stands around a message: four bytes, then a message that names the kind and holds the object's own.

use serde_json::{Value, json};

use super::decode::Decoder;
use super::encode::Encoder;
use super::table::table;
use super::wire::{Fields, Wire, put};
use super::{Problem, ProtobufError};

const MAGIC: &[u8] = b"k8s\0";

/// The fields of the envelope, and of the type inside it.
const TYPE: u64 = 1;
const RAW: u64 = 2;
const CONTENT_ENCODING: u64 = 3;
const API_VERSION: u64 = 1;
const KIND: u64 = 2;

/// The fields of an event, and of the object inside it.
const EVENT_TYPE: u64 = 1;
const EVENT_OBJECT: u64 = 2;
const OBJECT_RAW: u64 = 1;

/// The object in a body, with `apiVersion` and `kind`. Fields that are not known are skipped, as clients may be newer.
pub fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let envelope = Fields::read(body.strip_prefix(MAGIC).ok_or(Problem::NoMagic)?)?;
    let packing = envelope.text(CONTENT_ENCODING)?;
    if !packing.is_empty() {
        return Err(Problem::ContentEncoding(packing.to_owned()).into());
    }
    let type_ = Fields::read(envelope.bytes(TYPE)?)?;
    let (api_version, kind) = (type_.text(API_VERSION)?, type_.text(KIND)?);
    let message = table().of_kind(api_version, kind).ok_or_else(|| unknown(api_version, kind))?;
    let mut object = Decoder::new(table()).message(message, envelope.bytes(RAW)?, 0)?;
    object.insert("apiVersion".to_owned(), json!(api_version));
    object.insert("kind".to_owned(), json!(kind));
    Ok(Value::Object(object))
}

/// An object, a list or a Status as a body. Kinds that users define have no such form. Fields that are not known are left out.
pub fn encode(object: &Value) -> Result<Vec<u8>, ProtobufError> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let message = table().of_kind(api_version, kind).ok_or_else(|| unknown(api_version, kind))?;
    let raw = Encoder::new(table()).message(message, object, 0)?;
    let mut type_ = Vec::new();
    put(&mut type_, API_VERSION, Wire::Bytes(api_version.as_bytes()));
    put(&mut type_, KIND, Wire::Bytes(kind.as_bytes()));
    let mut body = Vec::with_capacity(MAGIC.len() + type_.len() + raw.len() + 16);
    body.extend(MAGIC);
    put(&mut body, TYPE, Wire::Bytes(&type_));
    put(&mut body, RAW, Wire::Bytes(&raw));
    Ok(body)
}

/// One event of a watch: the length in four bytes, then the event, in which the object has its envelope.
pub fn watch_frame(event: &str, object: &Value) -> Result<Vec<u8>, ProtobufError> {
    let mut raw = Vec::new();
    put(&mut raw, OBJECT_RAW, Wire::Bytes(&encode(object)?));
    let mut frame = vec![0; 4];
    put(&mut frame, EVENT_TYPE, Wire::Bytes(event.as_bytes()));
    put(&mut frame, EVENT_OBJECT, Wire::Bytes(&raw));
    let length = u32::try_from(frame.len() - 4).map_err(|_| Problem::TooMany)?;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

fn unknown(api_version: &str, kind: &str) -> Problem {
    Problem::UnknownKind { api_version: api_version.to_owned(), kind: kind.to_owned() }
}
