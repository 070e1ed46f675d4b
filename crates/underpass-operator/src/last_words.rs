//! What a process has said at its end, for a status.

/// Enough to recognise a complaint.
const LONGEST: usize = 300;

/// The last line of a log that may say why, without colours: what was only for information never does.
pub(crate) fn last_words(log: &str) -> Option<String> {
    let informs = |line: &&str| [" INFO ", " DEBUG ", " TRACE "].iter().any(|level| line.contains(level));
    let line = log.lines().rev().map(str::trim).find(|line| !line.is_empty() && !informs(line))?;
    Some(line.chars().filter(|char| !char.is_control()).take(LONGEST).collect())
}

#[cfg(test)]
mod tests {
    use super::last_words;

    #[test]
    fn are_one_line_that_complains() {
        assert_eq!(last_words(""), None);
        assert_eq!(last_words("one\n\x1b[31mtwo\n\n").as_deref(), Some("[31mtwo"));
        let log = "2026-11-16T10:31:24Z WARN no way out\n2026-11-16T10:31:25Z INFO prepared tunnel=5\n";
        assert_eq!(last_words(log).as_deref(), Some("2026-11-16T10:31:24Z WARN no way out"));
        assert_eq!(last_words("2026-11-16T10:31:25Z INFO prepared tunnel=5"), None);
    }
}
