//! The table of messages: for each field its number, its JSON name, when it is there, and what it holds.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::{all, reviews};

/// Lines of a message's name, then of its fields: ` number name shape type`. Names and numbers are facts of Kubernetes v1.36.
const TEXT: &str = include_str!("messages.txt");

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// Kinds of the API that are neither stored nor in [`reviews`]: version, kind, message.
const OTHERS: &[(&str, &str, &str)] = &[
    ("v1", "Status", "io.k8s.apimachinery.pkg.apis.meta.v1.Status"),
    ("autoscaling/v1", "Scale", "io.k8s.api.autoscaling.v1.Scale"),
    ("authorization.k8s.io/v1", "SubjectAccessReview", "io.k8s.api.authorization.v1.SubjectAccessReview"),
    ("authorization.k8s.io/v1", "LocalSubjectAccessReview", "io.k8s.api.authorization.v1.LocalSubjectAccessReview"),
];

pub(super) struct Message {
    pub(super) name: &'static str,
    pub(super) fields: Vec<Field>,
}

pub(super) struct Field {
    pub(super) number: u64,
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) type_: Type,
}

/// When a field is there in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// When it was sent, be it zero (a pointer in Go).
    Set,
    /// Always.
    Plain,
    /// Unless it is zero.
    Nonzero,
    /// Unless it is empty.
    List,
    Map,
    /// Never: the fields of the message stand in its place.
    Inline,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Bool,
    Int32,
    Int64,
    Double,
    String,
    Bytes,
    /// Seconds and nanoseconds; JSON has text.
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// JSON inside a message of its own.
    Json,
    /// A list of strings inside a message of its own.
    Strings,
    SchemaOrArray,
    SchemaOrBool,
    SchemaOrStrings,
    /// By its place in the table.
    Message(usize),
}

pub(super) struct Table {
    messages: Vec<Message>,
    /// The place of `JSONSchemaProps`, which the unions of schemas hold.
    pub(super) schema: usize,
    kinds: BTreeMap<(String, String), usize>,
}

/// Read on first use: a server that no Go client asks never pays for it.
pub(super) fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(Table::read)
}

impl Table {
    pub(super) fn message(&self, place: usize) -> &Message {
        &self.messages[place]
    }

    /// The message of a kind. DeleteOptions and metadata exist in every version.
    pub(super) fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Message> {
        let place = match kind {
            "DeleteOptions" => self.place(&format!("{META}DeleteOptions")),
            "PartialObjectMetadata" | "PartialObjectMetadataList" if api_version.starts_with("meta.k8s.io/") => {
                self.place(&format!("{META}{kind}"))
            }
            _ => self.kinds.get(&(api_version.to_owned(), kind.to_owned())).copied(),
        };
        place.map(|place| self.message(place))
    }

    fn read() -> Self {
        let names: Vec<&str> = TEXT.lines().filter(|line| !line.starts_with(' ')).collect();
        let mut messages: Vec<Message> = Vec::with_capacity(names.len());
        for line in TEXT.lines() {
            match (line.strip_prefix(' '), messages.last_mut()) {
                (None, _) => messages.push(Message { name: line, fields: Vec::new() }),
                (Some(field), Some(message)) => message.fields.push(Field::read(field, &names)),
                (Some(_), None) => unreachable!("messages.txt begins with a message"),
            }
        }
        let mut table = Self { messages, schema: 0, kinds: BTreeMap::new() };
        table.schema = table.place(SCHEMA).expect("messages.txt has the schemas of custom kinds");
        table.name_kinds();
        table
    }

    fn name_kinds(&mut self) {
        let mut kinds: Vec<(String, String, String)> = Vec::new();
        for builtin in all() {
            for list in ["", "List"] {
                let (kind, definition) = (format!("{}{list}", builtin.kind), format!("{}{list}", builtin.definition));
                kinds.push((builtin.api_version(), kind, definition));
            }
        }
        let asked = reviews()
            .iter()
            .map(|r| (format!("{}/{}", r.group, r.version), r.kind.to_owned(), r.definition.to_owned()));
        kinds.extend(asked);
        kinds.extend(
            OTHERS.iter().map(|(version, kind, name)| ((*version).to_owned(), (*kind).to_owned(), (*name).to_owned())),
        );
        for (version, kind, name) in kinds {
            if let Some(place) = self.place(&name) {
                self.kinds.insert((version, kind), place);
            }
        }
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.messages.binary_search_by_key(&name, |message| message.name).ok()
    }
}

impl Field {
    fn read(line: &'static str, messages: &[&str]) -> Self {
        let mut words = line.split(' ');
        let mut word = || words.next().unwrap_or_default();
        let number = word().parse().expect("messages.txt: a field has a number");
        Self { number, name: word(), shape: Shape::read(word()), type_: Type::read(word(), messages) }
    }
}

impl Shape {
    fn read(word: &str) -> Self {
        match word {
            "set" => Self::Set,
            "plain" => Self::Plain,
            "nonzero" => Self::Nonzero,
            "list" => Self::List,
            "map" => Self::Map,
            "inline" => Self::Inline,
            other => unreachable!("messages.txt: no shape is called {other:?}"),
        }
    }
}

impl Type {
    fn read(word: &str, messages: &[&str]) -> Self {
        match word {
            "bool" => Self::Bool,
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "double" => Self::Double,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "time" => Self::Time,
            "microtime" => Self::MicroTime,
            "quantity" => Self::Quantity,
            "int-or-string" => Self::IntOrString,
            "json" => Self::Json,
            "strings" => Self::Strings,
            "schema-or-array" => Self::SchemaOrArray,
            "schema-or-bool" => Self::SchemaOrBool,
            "schema-or-strings" => Self::SchemaOrStrings,
            name => Self::Message(
                messages.binary_search(&name).expect("messages.txt: a field's message is there, in order"),
            ),
        }
    }
}
