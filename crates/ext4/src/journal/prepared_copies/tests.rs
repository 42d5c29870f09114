use super::*;

#[test]
fn a_copy_is_of_what_the_block_is_now() {
    let block = |byte| Arc::<[u8]>::from([byte; 4]);
    let (old, new) = (block(1), block(1));
    let mut prepared = PreparedCopies::default();
    prepared.changed(BTreeMap::from([(7, Arc::clone(&old))]));
    prepared.put(Copies::of(prepared.wanted(), Vec::new()));
    assert!(prepared.wanted().is_empty());
    let mut copies = prepared.take();
    // This block has the same bytes, but belongs to another change.
    assert!(Arc::ptr_eq(&copies.instead_of(Arc::clone(&new)), &new));
    let mut copy = copies.instead_of(Arc::clone(&old));
    assert!(!Arc::ptr_eq(&copy, &old));
    Arc::get_mut(&mut copy).expect("nobody else has it")[0] = 2;
    assert_eq!((old[0], copy[0]), (1, 2));
    // A copy is returned only once.
    assert!(Arc::ptr_eq(&copies.instead_of(Arc::clone(&old)), &old));
}

#[test]
fn the_memory_of_what_nobody_has_is_used_again() {
    let block = |byte| Arc::<[u8]>::from([byte; 4]);
    let mut prepared = PreparedCopies::default();
    let (read, replaced) = (block(1), block(2));
    let place = replaced.as_ptr();
    prepared.recycle(Copies::default(), vec![Arc::clone(&read), replaced]);
    let mut copies = prepared.take();
    let (first, second) = (copies.instead_of(Arc::clone(&read)), copies.zeroes(4));
    assert_eq!((first.as_ptr(), &first[..], &second[..]), (place, &[1; 4][..], &[0; 4][..]));
    assert!(Arc::ptr_eq(&copies.instead_of(Arc::clone(&read)), &read));
}

#[test]
fn copies_are_in_the_memory_of_what_is_old() {
    let block = |byte| Arc::<[u8]>::from([byte; 4]);
    let (read, old) = (block(1), block(2));
    let place = old.as_ptr();
    let copies = Copies::of(vec![block(3), block(4)], vec![Arc::clone(&read), old]);
    let [first, second] = &copies.pairs[..] else { panic!("{copies:?}") };
    assert_eq!((first.copy.as_ptr(), &first.copy[..]), (place, &[3; 4][..]));
    assert_eq!((&second.copy[..], &read[..]), (&[4; 4][..], &[1; 4][..]));
}

#[test]
fn nothing_is_copied_of_what_changes_much() {
    let mut prepared = PreparedCopies::default();
    let blocks = (0..=PREPARED_MOST as u64).map(|number| (number, Arc::from([0; 4])));
    prepared.changed(blocks.collect());
    assert!(prepared.wanted().is_empty());
}
