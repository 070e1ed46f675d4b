//! From JSON to a message.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use super::table::{Field, Message, Shape, Table, Type};
use super::wire::{Wire, put};
use super::{MOST_DEPTH, Problem, ProtobufError, leaves};

pub(super) struct Encoder<'t> {
    table: &'t Table,
}

/// A value on its way to the wire.
enum Sent {
    Varint(u64),
    Fixed64(u64),
    Bytes(Vec<u8>),
}

impl<'t> Encoder<'t> {
    pub(super) fn new(table: &'t Table) -> Self {
        Self { table }
    }

    /// Fields that are left out, or null, are not sent: readers take them for zero.
    pub(super) fn message(&self, message: &Message, object: &Value, depth: usize) -> Result<Vec<u8>, ProtobufError> {
        if depth == MOST_DEPTH {
            return Err(Problem::TooDeep.into());
        }
        if !object.is_object() {
            return Err(Problem::Not("an object").into());
        }
        let mut out = Vec::new();
        for field in &message.fields {
            if let (Shape::Inline, Type::Message(place)) = (field.shape, field.type_) {
                let inner = self.message(self.table.message(place), object, depth + 1)?;
                put(&mut out, field.number, Wire::Bytes(&inner));
            } else if let Some(value) = object.get(field.name).filter(|value| !value.is_null()) {
                self.field(&mut out, field, value, depth).map_err(|error| error.below(field.name))?;
            }
        }
        Ok(out)
    }

    fn field(&self, out: &mut Vec<u8>, field: &Field, value: &Value, depth: usize) -> Result<(), ProtobufError> {
        match field.shape {
            Shape::List => out.extend(self.list(field.type_, field.number, value, depth)?),
            Shape::Map => {
                for (key, value) in value.as_object().ok_or(Problem::Not("an object"))? {
                    let mut entry = Vec::new();
                    put(&mut entry, 1, Wire::Bytes(key.as_bytes()));
                    self.value(field.type_, value, depth).map_err(|error| error.below(key))?.put(&mut entry, 2);
                    put(out, field.number, Wire::Bytes(&entry));
                }
            }
            _ => self.value(field.type_, value, depth)?.put(out, field.number),
        }
        Ok(())
    }

    fn value(&self, type_: Type, value: &Value, depth: usize) -> Result<Sent, ProtobufError> {
        let bytes = match type_ {
            Type::Bool => return Ok(Sent::Varint(value.as_bool().ok_or(Problem::Not("a boolean"))?.into())),
            Type::Int32 | Type::Int64 => return Ok(Sent::Varint(leaves::whole(value)? as u64)),
            Type::Double => return Ok(Sent::Fixed64(value.as_f64().ok_or(Problem::Not("a number"))?.to_bits())),
            Type::String => text(value)?.as_bytes().to_vec(),
            Type::Bytes => BASE64.decode(text(value)?).map_err(|_| Problem::Not("base64"))?,
            Type::Time => leaves::put_time(value, false)?,
            Type::MicroTime => leaves::put_time(value, true)?,
            Type::Quantity => leaves::put_quantity(value)?,
            Type::IntOrString => leaves::put_int_or_string(value)?,
            Type::Json => leaves::put_json(value),
            Type::Strings => self.list(Type::String, 1, value, depth)?,
            Type::SchemaOrArray | Type::SchemaOrBool | Type::SchemaOrStrings => {
                self.schema_or(type_, value, depth + 1)?
            }
            Type::Message(place) => self.message(self.table.message(place), value, depth + 1)?,
        };
        Ok(Sent::Bytes(bytes))
    }

    /// A list, item by item under the same number.
    fn list(&self, type_: Type, number: u64, value: &Value, depth: usize) -> Result<Vec<u8>, ProtobufError> {
        let mut out = Vec::new();
        for (index, item) in value.as_array().ok_or(Problem::Not("a list"))?.iter().enumerate() {
            self.value(type_, item, depth).map_err(|error| error.at(index))?.put(&mut out, number);
        }
        Ok(out)
    }

    fn schema_or(&self, type_: Type, value: &Value, depth: usize) -> Result<Vec<u8>, ProtobufError> {
        let schema = Type::Message(self.table.schema);
        let mut out = Vec::new();
        match (type_, value) {
            (Type::SchemaOrBool, Value::Bool(allows)) => Sent::Varint((*allows).into()).put(&mut out, 1),
            (Type::SchemaOrBool, value) => {
                // Where there is a schema, something is allowed.
                Sent::Varint(1).put(&mut out, 1);
                self.value(schema, value, depth)?.put(&mut out, 2);
            }
            (Type::SchemaOrArray, Value::Array(_)) => return self.list(schema, 2, value, depth),
            (Type::SchemaOrStrings, Value::Array(_)) => return self.list(Type::String, 2, value, depth),
            (_, value) => self.value(schema, value, depth)?.put(&mut out, 1),
        }
        Ok(out)
    }
}

impl Sent {
    fn put(&self, out: &mut Vec<u8>, number: u64) {
        let wire = match self {
            Self::Varint(value) => Wire::Varint(*value),
            Self::Fixed64(bits) => Wire::Fixed64(*bits),
            Self::Bytes(bytes) => Wire::Bytes(bytes),
        };
        put(out, number, wire);
    }
}

fn text(value: &Value) -> Result<&str, Problem> {
    value.as_str().ok_or(Problem::Not("a string"))
}
