//! What a build has said: its beginning, which names the step, and its end, which says why. What is between may be of any size.

/// An object says it in its conditions and again of each of its tunnels, of which there may be 256, and an API server takes 1.5 MiB.
const BEGINNING: usize = 1024;
const END: usize = 3 * 1024;

#[derive(Default)]
pub(super) struct Output {
    beginning: String,
    end: String,
    cut: bool,
}

impl Output {
    pub(super) fn push(&mut self, text: &str) {
        let room = text.floor_char_boundary(BEGINNING.saturating_sub(self.beginning.len()));
        // Nothing goes to the beginning any more once something is behind it.
        let (first, rest) = if self.end.is_empty() { text.split_at(room) } else { ("", text) };
        self.beginning.push_str(first);
        self.end.push_str(rest);
        if self.end.len() > END {
            self.end.drain(..self.end.ceil_char_boundary(self.end.len() - END));
            self.cut = true;
        }
    }

    pub(super) fn into_text(self) -> String {
        let Self { beginning, end, cut } = self;
        if cut { format!("{beginning}\n[...]\n{end}") } else { beginning + &end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(parts: impl IntoIterator<Item = impl AsRef<str>>) -> String {
        let mut output = Output::default();
        parts.into_iter().for_each(|part| output.push(part.as_ref()));
        output.into_text()
    }

    #[test]
    fn what_is_short_stays_as_it_is() {
        let words = "step ".repeat(800);
        assert_eq!(text_of([&words]), words);
        assert_eq!(text_of(words.split_inclusive(' ')), words);
    }

    #[test]
    fn of_what_is_long_the_beginning_and_the_end_stay() {
        let lines: Vec<String> = (0..10_000).map(|line| format!("line {line} ü\n")).collect();
        let whole = lines.concat();
        for text in [text_of(&lines), text_of([&whole])] {
            assert!(text.len() < BEGINNING + END + 16, "{}", text.len());
            assert!(
                text.starts_with("line 0 ü\n") && text.contains("[...]") && text.ends_with("line 9999 ü\n"),
                "{text}"
            );
        }
    }
}
