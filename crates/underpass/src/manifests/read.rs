//! Objects from files: YAML or JSON, several documents in one file, lists taken apart. Every object remembers where it stood.

use std::fmt;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Document {
    file: String,
    /// Counted from 1, as people do.
    number: usize,
    pub(crate) object: Value,
}

pub(crate) fn read_all(files: &[PathBuf]) -> anyhow::Result<Vec<Document>> {
    let mut documents = Vec::new();
    for file in files {
        let text = read(file)?;
        documents.extend(parse(&name(file), &text)?);
    }
    Ok(documents)
}

impl Document {
    pub(crate) fn text(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = (self.text("/kind"), self.text("/metadata/name"));
        write!(f, "{}, document {} ({kind} {name})", self.file, self.number)
    }
}

fn name(file: &Path) -> String {
    if is_stdin(file) { "stdin".to_owned() } else { file.display().to_string() }
}

fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

fn read(file: &Path) -> anyhow::Result<String> {
    if !is_stdin(file) {
        return std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()));
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("cannot read stdin")?;
    Ok(text)
}

fn parse(file: &str, text: &str) -> anyhow::Result<Vec<Document>> {
    let mut documents = Vec::new();
    for (number, value) in values(text).enumerate() {
        let (file, number) = (file.to_owned(), number + 1);
        match value.with_context(|| format!("{file}, document {number} cannot be parsed"))? {
            Value::Null => {}
            list if is_list(&list) => {
                let items = list["items"].as_array().cloned().unwrap_or_default();
                documents.extend(items.into_iter().map(|object| Document { file: file.clone(), number, object }));
            }
            object => documents.push(Document { file, number, object }),
        }
    }
    documents.iter().try_for_each(check)?;
    Ok(documents)
}

/// JSON documents follow each other without a mark; in YAML a line of three dashes stands between them.
fn values(text: &str) -> Box<dyn Iterator<Item = anyhow::Result<Value>> + '_> {
    if text.trim_start().starts_with('{') {
        let values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        return Box::new(values.map(|value| Ok(value?)));
    }
    Box::new(split(text).into_iter().map(|part| Ok(serde_saphyr::from_str(&text[part])?)))
}

/// Parsing all documents at once would not say which one is broken. Three dashes at the start of a line cannot stand inside a document.
pub(crate) fn split(text: &str) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let (mut start, mut position) = (0, 0);
    for line in text.split_inclusive('\n') {
        let mark =
            line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        if mark {
            parts.push(start..position);
            start = position;
        }
        position += line.len();
    }
    parts.push(start..text.len());
    parts.retain(|part| text[part.clone()].lines().any(has_content));
    parts
}

fn has_content(line: &str) -> bool {
    let line = line.trim_start_matches("---").trim();
    !line.is_empty() && !line.starts_with('#')
}

fn is_list(value: &Value) -> bool {
    value["apiVersion"] == "v1" && value["kind"] == "List"
}

fn check(document: &Document) -> anyhow::Result<()> {
    for (field, pointer) in [("apiVersion", "/apiVersion"), ("kind", "/kind"), ("metadata.name", "/metadata/name")] {
        if document.text(pointer).is_empty() {
            bail!("{document}: {field} is missing, so it is not an object that can be applied");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<(usize, String)> {
        let documents = parse("f.yaml", text).unwrap();
        documents.iter().map(|document| (document.number, document.text("/metadata/name").to_owned())).collect()
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
    fn a_list_is_taken_apart() {
        let list = r#"{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}]}"#;
        assert_eq!(names(list), [(1, "a".into())]);
    }

    #[test]
    fn an_error_names_file_document_and_object() {
        let error = format!("{:#}", parse("f.yaml", &format!("{A}---\n- [")).unwrap_err());
        assert!(error.starts_with("f.yaml, document 2 cannot be parsed: "), "{error}");
        let error = parse("f.yaml", "kind: X\nmetadata: {name: net}\n").unwrap_err().to_string();
        assert!(error.starts_with("f.yaml, document 1 (X net): apiVersion is missing"), "{error}");
    }

    #[test]
    fn dashes_inside_a_text_do_not_split() {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  k: |\n    ---\n    x\n";
        assert_eq!(names(text).len(), 1);
    }
}
