//! From a message to the JSON that Go would have written for it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use super::table::{Field, Message, Shape, Table, Type};
use super::wire::{self, Fields, Wire};
use super::{MOST_DEPTH, Problem, ProtobufError, leaves};

/// Two bytes can stand for a whole container with all that it always has; this bounds what they may grow to. The largest honest
/// documents (schemas of custom kinds, of one and a half megabytes) stay below a third of it.
const MOST_VALUES: usize = 500_000;

pub(super) struct Decoder<'t> {
    table: &'t Table,
    /// How many values may still be made.
    left: usize,
}

impl<'t> Decoder<'t> {
    pub(super) fn new(table: &'t Table) -> Self {
        Self { table, left: MOST_VALUES }
    }

    pub(super) fn message(
        &mut self,
        message: &Message,
        bytes: &[u8],
        depth: usize,
    ) -> Result<Map<String, Value>, ProtobufError> {
        if depth == MOST_DEPTH {
            return Err(Problem::TooDeep.into());
        }
        let sent = Fields::read(bytes)?;
        let mut object = Map::new();
        for field in &message.fields {
            if field.shape == Shape::Inline {
                let Value::Object(inner) = self.single(field.type_, sent.all(field.number), depth)? else { continue };
                object.extend(inner);
                continue;
            }
            let value = self.field(field, sent.all(field.number), depth).map_err(|error| error.below(field.name))?;
            if let Some(value) = value {
                self.spend()?;
                object.insert(field.name.to_owned(), value);
            }
        }
        Ok(object)
    }

    /// What the field is in JSON, if it is there.
    fn field<'a>(
        &mut self,
        field: &Field,
        sent: impl ExactSizeIterator<Item = Wire<'a>>,
        depth: usize,
    ) -> Result<Option<Value>, ProtobufError> {
        let value = match field.shape {
            Shape::List if sent.len() > 0 => self.list(field.type_, sent, depth)?,
            Shape::Map if sent.len() > 0 => self.map(field.type_, sent, depth)?,
            Shape::Set if sent.len() == 0 => return Ok(None),
            Shape::List | Shape::Map => return Ok(None),
            Shape::Set | Shape::Plain | Shape::Nonzero | Shape::Inline => self.single(field.type_, sent, depth)?,
        };
        let left_out = value.is_null() || (field.shape == Shape::Nonzero && is_zero(&value));
        Ok((!left_out).then_some(value))
    }

    fn list<'a>(
        &mut self,
        type_: Type,
        sent: impl Iterator<Item = Wire<'a>>,
        depth: usize,
    ) -> Result<Value, ProtobufError> {
        let mut items = Vec::new();
        for wire in sent {
            let packed = match (type_, wire) {
                (Type::Bool | Type::Int32 | Type::Int64, Wire::Bytes(bytes)) => wire::packed(bytes)?,
                _ => vec![wire],
            };
            for wire in packed {
                self.spend()?;
                items.push(self.value(type_, wire, depth).map_err(|error| error.at(items.len()))?);
            }
        }
        Ok(Value::Array(items))
    }

    /// Entries are messages of a key and a value.
    fn map<'a>(
        &mut self,
        type_: Type,
        sent: impl Iterator<Item = Wire<'a>>,
        depth: usize,
    ) -> Result<Value, ProtobufError> {
        let mut entries = Map::new();
        for wire in sent {
            let entry = Fields::read(wire.bytes()?)?;
            let key = entry.text(1)?;
            self.spend()?;
            let value = self.single(type_, entry.all(2), depth).map_err(|error| error.below(key))?;
            entries.insert(key.to_owned(), value);
        }
        Ok(Value::Object(entries))
    }

    /// One value, where it may be left out and a message may come in pieces, which count as one.
    fn single<'a>(
        &mut self,
        type_: Type,
        sent: impl ExactSizeIterator<Item = Wire<'a>>,
        depth: usize,
    ) -> Result<Value, ProtobufError> {
        match (type_, sent.len()) {
            (Type::Message(place), 2..) => {
                let pieces: Vec<&[u8]> = sent.map(Wire::bytes).collect::<Result<_, _>>()?;
                let message = self.table.message(place);
                self.message(message, &pieces.concat(), depth + 1).map(Value::Object)
            }
            _ => self.value(type_, sent.last().unwrap_or(zero(type_)), depth),
        }
    }

    fn value(&mut self, type_: Type, wire: Wire<'_>, depth: usize) -> Result<Value, ProtobufError> {
        let value = match type_ {
            Type::Bool => json!(wire.number()? != 0),
            Type::Int32 => json!(wire.number()? as i32),
            Type::Int64 => json!(wire.number()? as i64),
            Type::Double => leaves::double(wire.fixed64()?)?,
            Type::String => json!(wire.text()?),
            Type::Bytes => json!(BASE64.encode(wire.bytes()?)),
            Type::Time => leaves::time(wire.bytes()?, false)?,
            Type::MicroTime => leaves::time(wire.bytes()?, true)?,
            Type::Quantity => leaves::quantity(wire.bytes()?)?,
            Type::IntOrString => leaves::int_or_string(wire.bytes()?)?,
            Type::Json => leaves::json(wire.bytes()?)?,
            Type::Strings => {
                let items = Fields::read(wire.bytes()?)?;
                self.list(Type::String, items.all(1), depth)?
            }
            Type::SchemaOrArray | Type::SchemaOrBool | Type::SchemaOrStrings => self.schema_or(type_, wire, depth)?,
            Type::Message(place) => {
                let message = self.table.message(place);
                Value::Object(self.message(message, wire.bytes()?, depth + 1)?)
            }
        };
        Ok(value)
    }

    /// A schema, or what may stand in its place.
    fn schema_or(&mut self, type_: Type, wire: Wire<'_>, depth: usize) -> Result<Value, ProtobufError> {
        // The union is a message too.
        let depth = depth + 1;
        let fields = Fields::read(wire.bytes()?)?;
        let schema = Type::Message(self.table.schema);
        let (schema_number, instead) = match type_ {
            Type::SchemaOrBool => (2, 1),
            _ => (1, 2),
        };
        let has_schema = fields.last(schema_number).is_some();
        match type_ {
            Type::SchemaOrArray if fields.last(instead).is_some() => self.list(schema, fields.all(instead), depth),
            Type::SchemaOrStrings if fields.last(instead).is_some() => {
                self.list(Type::String, fields.all(instead), depth)
            }
            Type::SchemaOrBool if !has_schema => Ok(json!(fields.number(instead)? != 0)),
            _ if has_schema => self.single(schema, fields.all(schema_number), depth),
            _ => Ok(Value::Null),
        }
    }

    fn spend(&mut self) -> Result<(), Problem> {
        self.left = self.left.checked_sub(1).ok_or(Problem::TooMany)?;
        Ok(())
    }
}

/// What was not sent.
fn zero(type_: Type) -> Wire<'static> {
    match type_ {
        Type::Bool | Type::Int32 | Type::Int64 => Wire::Varint(0),
        Type::Double => Wire::Fixed64(0),
        _ => Wire::Bytes(&[]),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}
