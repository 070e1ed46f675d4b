//! What is told of objects on their way out: each that goes, and what holds those that stay.

use underpass_operator::{FinalizerHeld, Held, Left, Progress};

use crate::output::tell;

/// As many objects are named while one waits; there may be hundreds.
const MOST_NAMED: usize = 5;

pub(crate) fn report(progress: Progress) {
    match progress {
        Progress::Deleting { kind, key } => tell(&format!("deleting {kind} {key}")),
        Progress::Deleted { kind, key } => tell(&format!("deleted  {kind} {key}")),
        Progress::Waiting(left) => waiting(&left).iter().for_each(|line| tell(line)),
    }
}

/// The same, for somebody who has pressed Ctrl-C already.
pub(crate) fn report_to_who_interrupted(progress: Progress) {
    let waits = matches!(progress, Progress::Waiting(_));
    report(progress);
    if waits {
        tell("(Ctrl-C again ends at once and leaves the rest)");
    }
}

/// One line per object that is still there.
pub(crate) fn lines(left: &[Left]) -> Vec<String> {
    left.iter().map(|Left { kind, key, held }| format!("{kind} {key}: {}", why(held))).collect()
}

fn waiting(left: &[Left]) -> Vec<String> {
    // Those that are asked to go first: the others wait for them.
    let (later, asked): (Vec<Left>, Vec<Left>) =
        left.iter().cloned().partition(|left| matches!(left.held, Held::Behind(_)));
    let all = lines(&[asked, later].concat());
    let mut text: Vec<String> = all.iter().take(MOST_NAMED).map(|line| format!("waiting for {line}")).collect();
    if all.len() > MOST_NAMED {
        text.push(format!("waiting for {} more", all.len() - MOST_NAMED));
    }
    text
}

fn why(held: &Held) -> String {
    match held {
        Held::Behind(kinds) if kinds.is_empty() => "not yet asked to go".to_owned(),
        Held::Behind(kinds) => format!("not yet asked to go, because it goes after {}", kinds.join(" and ")),
        Held::By(finalizers) => finalizers.iter().map(finalizer).collect::<Vec<_>>().join("; "),
        Held::ByNothing => "asked to go, and nothing holds it".to_owned(),
    }
}

fn finalizer(held: &FinalizerHeld) -> String {
    let FinalizerHeld { name, set_by, ours } = held;
    match (ours, set_by) {
        (Some(says), _) if says.is_empty() => format!("underpass has not finished with it (finalizer {name})"),
        (Some(says), _) => format!("underpass has not finished with it (finalizer {name}): {says}"),
        (None, Some(writer)) => format!("held by the finalizer {name} of {writer}, who has to remove it"),
        (None, None) => format!("held by the finalizer {name}, which is not underpass's to remove"),
    }
}

#[cfg(test)]
mod tests {
    use underpass_operator::Key;

    use super::*;

    fn left(kind: &'static str, name: &str, held: Held) -> Left {
        Left { kind, key: Key::namespaced("default", name), held }
    }

    fn foreign() -> Held {
        Held::By(vec![FinalizerHeld { name: "a.b/c".into(), set_by: Some("kubectl".into()), ours: None }])
    }

    #[test]
    fn what_is_in_the_way_comes_before_what_waits_for_it() {
        let all = [left("ProxyServer", "p", Held::Behind(vec!["Infra"])), left("Infra", "i", foreign())];
        assert_eq!(
            waiting(&all),
            [
                "waiting for Infra default/i: held by the finalizer a.b/c of kubectl, who has to remove it",
                "waiting for ProxyServer default/p: not yet asked to go, because it goes after Infra"
            ]
        );
    }

    #[test]
    fn hundreds_are_a_few_and_a_number() {
        let all: Vec<Left> = (0..300).map(|number| left("Infra", &number.to_string(), foreign())).collect();
        let text = waiting(&all);
        assert_eq!(text.len(), MOST_NAMED + 1);
        assert_eq!(text[MOST_NAMED], "waiting for 295 more");
    }

    #[test]
    fn our_own_finalizer_is_told_with_what_the_controllers_say() {
        let ours = |says: &str| FinalizerHeld { name: "u/n".into(), set_by: None, ours: Some(says.into()) };
        assert_eq!(
            finalizer(&ours("a container is still connected")),
            "underpass has not finished with it (finalizer u/n): a container is still connected"
        );
        assert_eq!(finalizer(&ours("")), "underpass has not finished with it (finalizer u/n)");
    }
}
