use super::*;

fn transaction(sequence: u64, blocks: &[u64], revoked: &[u64]) -> Transaction {
    let mut transaction = Transaction::new(Sequence(sequence));
    transaction.blocks =
        blocks.iter().map(|block| (*block, Arc::from([sequence as u8; 4]))).collect();
    transaction.revoked = revoked.iter().copied().collect();
    transaction
}

#[test]
fn only_the_newest_committed_content_ends_as_written() {
    let mut pending = Pending::default();
    assert_eq!(pending.committed(transaction(1, &[10, 11, 12], &[])), Some(Sequence(1)));
    let batch = pending.send(0, Sequence(1), 2);
    assert_eq!(batch.iter().map(|(block, _)| *block).collect::<Vec<_>>(), [10, 11]);
    // The block is changed while it is being written in place.
    assert_eq!(pending.committed(transaction(2, &[11], &[])), Some(Sequence(2)));
    assert_eq!((pending.oldest(), pending.len()), (Some(Sequence(1)), 3));
    pending.end_writes(&batch, true);
    assert_eq!((pending.oldest(), pending.len()), (Some(Sequence(1)), 2));
    let batch = pending.send(0, Sequence(1), 9);
    assert_eq!(batch.iter().map(|(block, _)| *block).collect::<Vec<_>>(), [12]);
    pending.end_writes(&batch, false);
    assert_eq!(pending.oldest(), Some(Sequence(1)));
    let batch = pending.send(0, Sequence(2), 9);
    pending.end_writes(&batch, true);
    assert_eq!((pending.oldest(), pending.len()), (None, 0));
}

#[test]
fn what_was_replaced_is_to_be_had_once() {
    let mut pending = Pending::default();
    pending.committed(transaction(1, &[10, 11], &[]));
    pending.committed(transaction(2, &[11, 12], &[]));
    let replaced = pending.take_replaced();
    assert_eq!(replaced, [Arc::from([1; 4])]);
    assert!(pending.take_replaced().is_empty());
    // Their number is bounded.
    for sequence in 3..200 {
        pending.committed(transaction(sequence, &[10, 11], &[]));
    }
    assert_eq!(pending.take_replaced().len(), REPLACED_MOST);
}

#[test]
fn nothing_is_released_while_a_write_home_of_it_is_under_way() {
    let mut pending = Pending::default();
    pending.committed(transaction(1, &[10, 11], &[]));
    let batch = pending.send(0, Sequence(1), 9);
    assert_eq!(pending.committed(transaction(2, &[], &[10])), None);
    assert_eq!(pending.committed(transaction(3, &[], &[77])), None);
    assert_eq!(pending.end_writes(&batch, true), Some(Sequence(3)));
    assert_eq!(pending.committed(transaction(4, &[], &[11])), Some(Sequence(4)));
    assert_eq!(pending.len(), 0);
}

#[test]
fn what_the_device_may_still_lose_is_not_in_place() {
    let mut pending = Pending::default();
    pending.committed(transaction(1, &[10, 11], &[]));
    let batch = pending.send(0, Sequence(1), 9);
    assert!(pending.has(10) && pending.has_any(11..=20));
    pending.end_writes(&batch, true);
    assert_eq!(pending.len(), 0);
    assert!(pending.has(10) && pending.has_any(11..=20), "nothing was flushed");
    pending.flushed();
    assert!(!pending.has(10) && !pending.has_any(0..=u64::MAX));
}
