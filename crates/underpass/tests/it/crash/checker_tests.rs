//! Broken histories, each of which the checker must refuse for the right reason.

use super::super::history::Kind;
use super::*;

fn state(name: &str, uid: &str, revision: Revision, payload: &str) -> State {
    let key = Key { kind: Kind::ConfigMap, name: name.to_owned() };
    State { key, uid: uid.to_owned(), revision, payload: payload.to_owned() }
}

fn seen(change: Change, state: State) -> Seen {
    Seen { change, state }
}

fn operation(time: u64, name: &str, verb: Verb, payload: &str, outcome: Outcome) -> Operation {
    let key = Key { kind: Kind::ConfigMap, name: name.to_owned() };
    Operation { key, verb, payload: payload.to_owned(), begun: time * 10, ended: time * 10 + 5, outcome }
}

fn done(revision: Revision) -> Outcome {
    Outcome::Done { revision: Some(revision) }
}

/// An object that is made, changed twice and deleted, and one that stays; two watches saw it all.
fn sound() -> History {
    let events = vec![
        seen(Change::Added, state("a", "u1", 10, "p0")),
        seen(Change::Modified, state("a", "u1", 11, "p1")),
        seen(Change::Modified, state("a", "u1", 12, "p2")),
        seen(Change::Deleted, state("a", "u1", 13, "p2")),
        seen(Change::Added, state("b", "u2", 14, "p3")),
    ];
    let watched = |name: &str| Watched { name: name.to_owned(), kind: Kind::ConfigMap, events: events.clone() };
    History {
        operations: vec![
            operation(1, "a", Verb::Create, "p0", done(10)),
            operation(2, "a", Verb::Update { at: 10 }, "p1", done(11)),
            operation(3, "a", Verb::Update { at: 10 }, "p9", Outcome::Refused { code: 409 }),
            operation(4, "a", Verb::Patch, "p2", Outcome::Unknown),
            operation(5, "a", Verb::Delete { at: 12, uid: "u1".to_owned() }, "", Outcome::Done { revision: None }),
            operation(6, "b", Verb::Create, "p3", done(14)),
            operation(7, "b", Verb::Patch, "p4", Outcome::Unknown),
        ],
        reads: vec![state("a", "u1", 11, "p1")],
        watched: vec![watched("one"), watched("two")],
        listed: vec![state("b", "u2", 14, "p3")],
    }
}

#[track_caller]
fn refused(law: Law, spoil: impl FnOnce(&mut History)) {
    let mut history = sound();
    spoil(&mut history);
    let flaws = check(&history);
    assert!(flaws.iter().any(|flaw| flaw.law == law), "{law:?} is broken, and found was {flaws:#?}");
}

fn in_both(history: &mut History, mut change: impl FnMut(&mut Vec<Seen>)) {
    history.watched.iter_mut().for_each(|watched| change(&mut watched.events));
}

#[test]
fn a_sound_history_is_accepted() {
    assert_eq!(check(&sound()), []);
}

#[test]
fn a_lost_write() {
    refused(Law::Kept, |history| {
        in_both(history, |events| drop(events.pop()));
        history.listed.clear();
    });
}

#[test]
fn a_lost_deletion() {
    refused(Law::Kept, |history| {
        in_both(history, |events| drop(events.remove(3)));
        history.listed.push(state("a", "u1", 12, "p2"));
    });
}

#[test]
fn a_write_at_another_revision_than_acknowledged() {
    refused(Law::Kept, |history| history.operations[5].outcome = done(15));
}

#[test]
fn a_read_of_what_is_gone() {
    refused(Law::Kept, |history| history.reads.push(state("b", "u2", 15, "p4")));
}

#[test]
fn a_phantom() {
    refused(Law::Sent, |history| {
        in_both(history, |events| events.push(seen(Change::Modified, state("b", "u2", 15, "from nowhere"))));
        history.listed = vec![state("b", "u2", 15, "from nowhere")];
    });
}

#[test]
fn a_payload_on_another_object() {
    refused(Law::Sent, |history| history.operations[5].key.name = "c".to_owned());
}

#[test]
fn a_deletion_that_nobody_asked_for() {
    refused(Law::Sent, |history| drop(history.operations.remove(4)));
}

#[test]
fn a_refused_write_that_happened() {
    refused(Law::Sent, |history| history.operations[5].outcome = Outcome::Refused { code: 409 });
}

#[test]
fn an_operation_done_twice() {
    refused(Law::Once, |history| {
        in_both(history, |events| events.push(seen(Change::Modified, state("b", "u2", 15, "p3"))));
        history.listed = vec![state("b", "u2", 15, "p3")];
    });
}

#[test]
fn one_object_deleted_by_two() {
    refused(Law::Once, |history| history.operations.push(history.operations[4].clone()));
}

#[test]
fn a_revision_used_again_after_a_restart() {
    refused(Law::OwnRevision, |history| {
        in_both(history, |events| events.push(seen(Change::Modified, state("b", "u2", 14, "p4"))));
    });
}

#[test]
fn a_revision_that_is_another_event_for_another_watch() {
    refused(Law::OwnRevision, |history| history.watched[1].events[2].state.payload = "p4".to_owned());
}

#[test]
fn a_gap() {
    refused(Law::NoGap, |history| drop(history.watched[1].events.remove(1)));
}

#[test]
fn a_repeat() {
    refused(Law::NoRepeat, |history| {
        let again = history.watched[0].events[4].clone();
        history.watched[0].events.push(again);
    });
}

#[test]
fn events_out_of_order() {
    refused(Law::NoRepeat, |history| history.watched[1].events.swap(1, 2));
}

#[test]
fn an_update_of_another_state_than_asked() {
    refused(Law::Order, |history| history.operations[1].verb = Verb::Update { at: 9 });
}

#[test]
fn a_change_of_what_is_not_there() {
    refused(Law::Order, |history| in_both(history, |events| drop(events.remove(0))));
}

#[test]
fn a_uid_used_again() {
    refused(Law::Order, |history| in_both(history, |events| events[4].state.uid = "u1".to_owned()));
}

#[test]
fn a_later_write_at_an_earlier_revision() {
    refused(Law::RealTime, |history| history.operations[0].begun = 1000);
}

#[test]
fn a_list_that_lacks_an_object() {
    refused(Law::Replay, |history| history.listed.clear());
}

#[test]
fn a_list_that_shows_an_older_state() {
    refused(Law::Replay, |history| history.listed = vec![state("b", "u2", 14, "p4")]);
}
