//! Lengths of time as the hosted-cluster manifests write them: `30s`, `5m`, `1h`, `1h30m`.

use std::time::Duration;

use crate::text::text;

text! {
    /// A length of time above zero, in hours, minutes and seconds.
    DurationText, max 24,
    rule "self.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$') && self.matches('[1-9]')",
    says "is not a length of time above zero; write hours, minutes and seconds, for example 30s, 5m, 1h or 1h30m"
}

impl DurationText {
    pub fn duration(&self) -> Option<Duration> {
        let mut seconds = 0_u64;
        let mut digits = String::new();
        for letter in self.chars() {
            let unit = match letter {
                '0'..='9' => {
                    digits.push(letter);
                    continue;
                }
                'h' => 3600,
                'm' => 60,
                's' => 1,
                _ => return None,
            };
            seconds = seconds.checked_add(digits.parse::<u64>().ok()?.checked_mul(unit)?)?;
            digits.clear();
        }
        (digits.is_empty() && seconds > 0).then(|| Duration::from_secs(seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_written() {
        for (text, seconds) in [
            ("30s", Some(30)),
            ("1h30m", Some(5400)),
            ("24h", Some(86400)),
            ("", None),
            ("5", None),
            ("0s", None),
            ("1d", None),
        ] {
            assert_eq!(DurationText::from(text).duration(), seconds.map(Duration::from_secs), "{text}");
        }
    }
}
