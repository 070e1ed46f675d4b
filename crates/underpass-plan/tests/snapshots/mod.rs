//! Cases in files: what goes in, a mark, and what has to come out, as a person reads it.

use std::path::Path;

/// Compares every file of a folder with what `render` makes of its upper part. `UPDATE=1` rewrites the lower parts instead.
pub(crate) fn check(folder: &str, mark: &str, render: impl Fn(&str, &str) -> String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "the cases are gone");
    let mut wrong = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let (input, expected) = text.split_once(mark).unwrap_or((text.trim_end(), ""));
        let actual = render(path.file_name().unwrap().to_str().unwrap(), input);
        if actual == expected {
            continue;
        }
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, format!("{input}{mark}{actual}")).unwrap();
        } else {
            wrong.push(format!("{}:\n--- expected\n{expected}--- actual\n{actual}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
