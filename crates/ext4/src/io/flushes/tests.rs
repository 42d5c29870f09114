use super::*;

#[test]
fn only_what_began_afterwards_counts() {
    let flushes = Flushes::default();
    assert_eq!((flushes.needed_by_all(), flushes.durability(0)), (0, Durability::Durable));
    let early = flushes.note_write();
    let first = flushes.begin();
    // This write completed while a FLUSH was in flight.
    let late = flushes.note_write();
    assert_eq!(flushes.durability(early), Durability::Open);
    flushes.end(first, true);
    assert_eq!(
        (flushes.durability(early), flushes.durability(late)),
        (Durability::Durable, Durability::Open)
    );
    let second = flushes.begin();
    flushes.end(second, true);
    assert_eq!((flushes.durability(late), flushes.needed_by_all()), (Durability::Durable, late));
}

#[test]
fn none_succeeds_after_a_failure_or_a_loss() {
    let flushes = Flushes::default();
    // Losses before the mount do not count.
    assert!(flushes.may_succeed(3) && flushes.may_succeed(3));
    assert!(!flushes.may_succeed(4));
    flushes.end(flushes.begin(), false);
    assert!(!flushes.may_succeed(3));
}

#[test]
fn what_a_failed_one_was_for_is_not_known_any_more() {
    let flushes = Flushes::default();
    let lost = flushes.note_write();
    let (failing, other) = (flushes.begin(), flushes.begin());
    flushes.end(other, true);
    flushes.end(failing, false);
    assert_eq!(flushes.durability(lost), Durability::Unknown);
    let next = flushes.note_write();
    flushes.end(flushes.begin(), true);
    assert_eq!(
        (flushes.durability(lost), flushes.durability(next)),
        (Durability::Unknown, Durability::Durable)
    );
}
