//! Objects from text: YAML or JSON, several documents, lists taken apart. Every object remembers where it stood.

use std::fmt;
use std::ops::Range;

use anyhow::{anyhow, bail};
use serde_json::Value;
use serde_saphyr::{SnippetMode, UserMessageFormatter};

/// What kube-apiserver, and ours, take as one request. Beyond it they hang up, and the reason is lost on the way.
const LARGEST_OBJECT: usize = 3 << 20;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Document {
    file: String,
    /// Counted from 1, as people do.
    number: usize,
    pub(crate) object: Value,
}

pub(super) fn parse(file: &str, text: &str) -> anyhow::Result<Vec<Document>> {
    let mut documents = Vec::new();
    for (number, value) in (1..).zip(values(text)) {
        let value = value.map_err(|why| anyhow!("{file}, document {number} cannot be parsed: {why}"))?;
        documents.extend(objects(value).into_iter().map(|object| Document::new(file, number, object)));
    }
    documents.iter().try_for_each(check)?;
    Ok(documents)
}

impl Document {
    pub(crate) fn new(file: &str, number: usize, object: Value) -> Self {
        Self { file: file.to_owned(), number, object }
    }

    pub(crate) fn text(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// What it is and what it is called, without where it was written.
    pub(crate) fn subject(&self) -> String {
        match (self.text("/kind"), self.text("/metadata/namespace"), self.text("/metadata/name")) {
            (kind, "", name) => format!("{kind} {name}"),
            (kind, namespace, name) => format!("{kind} {namespace}/{name}"),
        }
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {}", self.file, self.number)?;
        match (self.text("/kind"), self.text("/metadata/name")) {
            ("", _) => Ok(()),
            (kind, "") => write!(f, " ({kind})"),
            (kind, name) => write!(f, " ({kind} {name})"),
        }
    }
}

/// JSON documents follow each other without a mark; in YAML a line of three dashes stands between them.
fn values(text: &str) -> Vec<Result<Value, String>> {
    if is_json(text) {
        let values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        return values.map(|value| value.map_err(|error| error.to_string())).collect();
    }
    split(text).into_iter().map(|(line, part)| yaml(line, &text[part])).collect()
}

/// A brace alone would not tell: YAML has them too, with keys that need no quotes.
fn is_json(text: &str) -> bool {
    let inside = text.trim_start().strip_prefix('{').map(str::trim_start);
    inside.is_some_and(|inside| inside.starts_with(['"', '}']))
}

/// The document that begins at `line` of its file. Errors name the line of the file, in one line.
fn yaml(line: u64, part: &str) -> Result<Value, String> {
    serde_saphyr::from_str(part).map_err(|error: serde_saphyr::Error| {
        if is_too_much(&error) {
            return "it has too many values, or references that multiply them; split it, or write it as JSON"
                .to_owned();
        }
        error.render_with_options(serde_saphyr::render_options! {
            formatter: &UserMessageFormatter,
            snippets: SnippetMode::Off,
            line_offset: line,
        })
    })
}

/// The parser counts what it makes, since a few lines with references to references can mean millions of values.
fn is_too_much(error: &serde_saphyr::Error) -> bool {
    match error {
        serde_saphyr::Error::WithSnippet { error, .. } | serde_saphyr::Error::AliasError { error, .. } => {
            is_too_much(error)
        }
        error => matches!(error, serde_saphyr::Error::Budget { .. }),
    }
}

/// The documents with content, and how many lines stand before each. Parsing all at once would not say which one is broken. Three
/// dashes at the start of a line cannot stand inside a document.
pub(crate) fn split(text: &str) -> Vec<(u64, Range<usize>)> {
    let mut parts = Vec::new();
    let (mut start, mut first_line, mut position) = (0, 0, 0);
    for (number, line) in (0..).zip(text.split_inclusive('\n')) {
        let mark =
            line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        if mark {
            parts.push((first_line, start..position));
            (start, first_line) = (position, number);
        }
        position += line.len();
    }
    parts.push((first_line, start..text.len()));
    parts.retain(|(_, part)| text[part.clone()].lines().any(has_content));
    parts
}

fn has_content(line: &str) -> bool {
    let line = line.trim_start_matches("---").trim();
    !line.is_empty() && !line.starts_with('#')
}

fn objects(value: Value) -> Vec<Value> {
    match value {
        Value::Null => Vec::new(),
        Value::Object(mut list)
            if list.get("kind") == Some(&"List".into()) && list.get("apiVersion") == Some(&"v1".into()) =>
        {
            match list.remove("items") {
                Some(Value::Array(items)) => items,
                None | Some(Value::Null) => Vec::new(),
                Some(other) => vec![other],
            }
        }
        object => vec![object],
    }
}

fn check(document: &Document) -> anyhow::Result<()> {
    let object = &document.object;
    if !object.is_object() {
        bail!("{document} holds {}, where an object with apiVersion, kind and metadata belongs", what(object));
    }
    let metadata = &object["metadata"];
    let fault = text_fault("apiVersion", &object["apiVersion"])
        .or_else(|| text_fault("kind", &object["kind"]))
        .or_else(|| {
            let wrong = !metadata.is_object() && !metadata.is_null();
            wrong.then(|| format!("metadata is {}, and has to be a mapping with a name", what(metadata)))
        })
        .or_else(|| text_fault("metadata.name", &metadata["name"]))
        .or_else(|| {
            metadata.get("namespace").filter(|it| !it.is_null()).and_then(|it| text_fault("metadata.namespace", it))
        });
    if let Some(fault) = fault {
        bail!("{document}: {fault}");
    }
    let size = object.to_string().len();
    if size > LARGEST_OBJECT {
        bail!("{document} is {} MiB large, and an API server takes {} MiB", size >> 20, LARGEST_OBJECT >> 20);
    }
    Ok(())
}

/// Why a value is no text with something in it.
fn text_fault(field: &str, value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => None,
        Value::Null | Value::String(_) => {
            Some(format!("{field} is missing, so it is not an object that can be applied"))
        }
        Value::Bool(it) => Some(format!(
            "{field} is the boolean {it}, and has to be text: put it in quotes (YAML takes y, n, yes, no, on, off, true and false for booleans)"
        )),
        Value::Number(it) => Some(format!("{field} is the number {it}, and has to be text: put it in quotes")),
        other => Some(format!("{field} is {}, and has to be text", what(other))),
    }
}

fn what(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "plain text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<(usize, String)> {
        let documents = parse("f.yaml", text).unwrap();
        documents.iter().map(|document| (document.number, document.text("/metadata/name").to_owned())).collect()
    }

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let error = format!("{:#}", parse("f.yaml", text).unwrap_err());
        assert!(error.starts_with(expected) && error.lines().count() == 1, "{text:?} is refused with: {error}");
    }

    const A: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    const B: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n";

    #[test]
    fn documents_are_counted_as_people_count_them() {
        assert_eq!(names(&format!("# first\n---\n{A}--- # second\n{B}---\n")), [(1, "a".into()), (2, "b".into())]);
        assert_eq!(names(""), []);
    }

    #[test]
    fn json_documents_may_follow_each_other() {
        let json = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#;
        assert_eq!(names(&format!("{json}\n{json}")).len(), 2);
    }

    #[test]
    fn yaml_may_stand_in_braces() {
        assert_eq!(names("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"), [(1, "a".into())]);
    }

    #[test]
    fn a_list_is_taken_apart() {
        let list = r#"{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}]}"#;
        assert_eq!(names(list), [(1, "a".into())]);
        refused("apiVersion: v1\nkind: List\nitems: 5\n", "f.yaml, document 1 holds a number");
    }

    #[test]
    fn an_error_of_form_is_one_line_with_the_line_of_the_file() {
        refused(&format!("{A}---\na: b: c\n"), "f.yaml, document 2 cannot be parsed: mapping values are not allowed");
        let error = parse("f.yaml", &format!("{A}---\na: 1\na: 2\n")).unwrap_err().to_string();
        assert!(error.ends_with("duplicate mapping key: a not allowed here at line 6, column 1"), "{error}");
        let laughs = "a: &a [1,1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
             d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e]\n";
        refused(
            laughs,
            "f.yaml, document 1 cannot be parsed: it has too many values, or references that multiply them",
        );
        refused("{\"a\": ", "f.yaml, document 1 cannot be parsed: EOF while parsing a value at line 1");
    }

    #[test]
    fn what_is_no_object_is_called_what_it_is() {
        refused("[]", "f.yaml, document 1 holds a list, where an object with apiVersion");
        refused("5", "f.yaml, document 1 holds a number,");
        refused("hello", "f.yaml, document 1 holds plain text,");
        refused("a: 1", "f.yaml, document 1: apiVersion is missing");
        refused("kind: X\nmetadata: {name: net}\n", "f.yaml, document 1 (X net): apiVersion is missing");
        refused("apiVersion: v1\nkind: X\n", "f.yaml, document 1 (X): metadata.name is missing");
        refused("apiVersion: v1\nkind: X\nmetadata: 5\n", "f.yaml, document 1 (X): metadata is a number");
        refused("apiVersion: v1\nkind: [X]\n", "f.yaml, document 1: kind is a list, and has to be text");
    }

    #[test]
    fn an_object_that_no_server_would_take_is_refused() {
        let large = |size: usize| format!("{A}data: {{k: {}}}\n", "x".repeat(size));
        refused(&large(4 << 20), "f.yaml, document 1 (ConfigMap a) is 4 MiB large, and an API server takes 3 MiB");
        assert_eq!(names(&large(3_000_000)).len(), 1);
    }

    #[test]
    fn a_word_that_yaml_takes_for_something_else_wants_quotes() {
        let named = |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n");
        for word in ["y", "n", "yes", "off", "true"] {
            refused(&named(word), "f.yaml, document 1 (ConfigMap): metadata.name is the boolean ");
            assert_eq!(names(&named(&format!("\"{word}\""))), [(1, word.into())]);
        }
        refused(
            &named("12"),
            "f.yaml, document 1 (ConfigMap): metadata.name is the number 12, and has to be text: put",
        );
        refused(
            &named("a, namespace: no"),
            "f.yaml, document 1 (ConfigMap a): metadata.namespace is the boolean false",
        );
    }

    #[test]
    fn dashes_inside_a_text_do_not_split() {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  k: |\n    ---\n    x\n";
        assert_eq!(names(text).len(), 1);
    }
}
