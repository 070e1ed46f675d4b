//! Files of objects, as text. What cannot be one is said before anybody tries to understand it.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::Document;
use super::parse::parse;

pub(crate) fn read_all(files: &[PathBuf]) -> anyhow::Result<Vec<Document>> {
    if files.iter().filter(|file| is_stdin(file)).count() > 1 {
        bail!("stdin can be read once: give `-f -` one time only");
    }
    let mut documents = Vec::new();
    for file in files {
        let name = name(file);
        let found = parse(&name, &text(&name, read(&name, file)?)?)?;
        if found.is_empty() {
            bail!("{name} holds no object: it is empty, or nothing but comments");
        }
        documents.extend(found);
    }
    Ok(documents)
}

fn name(file: &Path) -> String {
    if is_stdin(file) { "stdin".to_owned() } else { file.display().to_string() }
}

fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

fn read(name: &str, file: &Path) -> anyhow::Result<Vec<u8>> {
    let cannot = || format!("cannot read {name}");
    if is_stdin(file) {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).with_context(cannot)?;
        return Ok(bytes);
    }
    if file.is_dir() {
        bail!("{name} is a folder: name the files in it, each with -f");
    }
    std::fs::read(file).with_context(cannot)
}

/// Without the mark that some editors put in front of UTF-8.
fn text(name: &str, bytes: Vec<u8>) -> anyhow::Result<String> {
    let Ok(mut text) = String::from_utf8(bytes) else {
        bail!("{name} is not text in UTF-8: see that it is the right file, and save it as UTF-8");
    };
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";

    fn read_bytes(bytes: &[u8]) -> anyhow::Result<Vec<Document>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        read_all(&[file.path().to_owned()])
    }

    #[track_caller]
    fn refused(result: anyhow::Result<Vec<Document>>, words: &str) {
        let error = format!("{:#}", result.unwrap_err());
        assert!(error.contains(words) && error.lines().count() == 1, "{words} is not said in: {error}");
    }

    #[test]
    fn marks_and_line_ends_of_other_systems_do_not_matter() {
        let windows = format!("\u{feff}{OBJECT}---\n{OBJECT}").replace('\n', "\r\n");
        assert_eq!(read_bytes(windows.as_bytes()).unwrap().len(), 2);
        let json = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#;
        assert_eq!(read_bytes(format!("\u{feff}{json}{json}").as_bytes()).unwrap().len(), 2);
    }

    #[test]
    fn what_holds_no_object_is_refused() {
        for text in ["", "\n\n", "# only words\n---\n# more\n", "null", "---\n---\n"] {
            refused(read_bytes(text.as_bytes()), "holds no object");
        }
        refused(read_bytes(br#"{"apiVersion":"v1","kind":"List","items":[]}"#), "holds no object");
    }

    #[test]
    fn what_is_no_text_is_refused() {
        refused(read_bytes(b"\x7fELF\x02\xff\xfe"), "is not text in UTF-8");
        refused(read_bytes(b"\xff\xfea\0p\0"), "is not text in UTF-8");
        refused(read_all(&[std::env::temp_dir()]), "is a folder: name the files in it");
        refused(read_all(&["/nowhere.yaml".into()]), "cannot read /nowhere.yaml: No such file");
        refused(read_all(&["-".into(), "-".into()]), "stdin can be read once");
    }
}
