//! The table of descriptors.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::table::{Entry, Flags, Known, Table};

fn known(number: u64) -> Entry {
    Entry::Known(Known {
        handle: number,
        closings: number.wrapping_mul(3),
        word: number as u32,
        connection: (number as u32).wrapping_mul(5),
        flags: Flags(Flags::READ | Flags::APPEND),
    })
}

#[test]
fn an_entry_is_what_was_stored_until_it_is_marked() {
    let table = Table::<8>::new();
    assert_eq!((table.load(8), table.load(-1)), (None, None));
    let (entry, ticket) = table.load(3).unwrap();
    assert_eq!(entry, Entry::Unknown);
    assert!(table.store(3, ticket, known(7)));
    assert!(!table.store(3, ticket, known(8)), "the entry has changed since");
    assert_eq!(table.load(3).unwrap().0, known(7));
    assert_eq!(table.load(2).unwrap().0, Entry::Unknown);
    for entry in [Entry::Foreign, Entry::Long, Entry::Unknown] {
        let ticket = table.load(3).unwrap().1;
        assert!(table.store(3, ticket, entry));
        assert_eq!(table.load(3).unwrap().0, entry);
    }
}

#[test]
fn what_was_found_out_before_a_mark_is_not_stored() {
    let table = Table::<8>::new();
    let mark: [&dyn Fn(); 4] = [
        &|| table.forget(3, false),
        &|| table.forget(3, true),
        &|| table.forget_range(0, u32::MAX),
        &|| table.forget_flags(),
    ];
    table.forget(3, true);
    for mark in mark {
        let ticket = table.load(3).unwrap().1;
        mark();
        for entry in [known(7), Entry::Foreign, Entry::Long] {
            assert!(!table.store(3, ticket, entry));
        }
        assert_eq!(table.load(3).unwrap().0, Entry::Unknown);
        let ticket = table.load(3).unwrap().1;
        assert!(table.store(3, ticket, known(9)));
        mark();
        assert_eq!(table.load(3).unwrap().0, Entry::Unknown);
    }
}

#[test]
fn a_descriptor_is_its_own_until_it_is_shared_or_closed() {
    let table = Table::<8>::new();
    assert!(!table.load(5).unwrap().1.is_own() && !table.is_own(9));
    table.forget(5, true);
    table.forget(6, true);
    let (_, ticket) = table.load(5).unwrap();
    assert!(ticket.is_own());
    assert!(table.store(5, ticket, known(1)));
    table.forget_flags();
    assert!(
        table.load(5).unwrap().1.is_own(),
        "its flags were changed, and it was found out again"
    );
    assert!(table.store(5, table.load(5).unwrap().1, known(1)));
    table.share();
    let (entry, ticket) = table.load(5).unwrap();
    assert_eq!((entry, ticket.is_own(), table.is_own(6)), (known(1), false, false));
    table.forget(5, true);
    table.forget(5, false);
    assert!(!table.is_own(5));
    table.forget(5, true);
    table.clear();
    assert!(!table.is_own(5) && table.load(5).unwrap().0 == Entry::Unknown);
}

/// Threads find out, mark and look; an entry is never older than the last mark before the look, and
/// never a mixture.
#[test]
fn no_thread_sees_what_was_found_out_before_a_mark() {
    static TABLE: Table<4> = Table::new();
    // The file that descriptor 2 refers to. It changes before the mark, as when it is closed and
    // opened: from then on, a look sees only the new one.
    let file = AtomicU64::new(1);
    let marked = AtomicU64::new(1);
    let ends = AtomicBool::new(false);
    let hits = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    let at_least = marked.load(Ordering::SeqCst);
                    let (entry, ticket) = TABLE.load(2).unwrap();
                    match entry {
                        Entry::Known(found) => {
                            assert_eq!(Entry::Known(found), known(found.handle), "a mixture");
                            assert!(found.handle >= at_least, "{} < {at_least}", found.handle);
                            hits.fetch_add(1, Ordering::Relaxed);
                        }
                        Entry::Unknown => {
                            let found = file.load(Ordering::SeqCst);
                            TABLE.store(2, ticket, known(found));
                        }
                        Entry::Busy => {}
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
        for number in 2..200_000 {
            file.store(number, Ordering::SeqCst);
            match number % 3 {
                0 => TABLE.forget(2, true),
                1 => TABLE.forget_flags(),
                _ => TABLE.forget(2, false),
            }
            marked.store(number, Ordering::SeqCst);
            TABLE.share();
        }
        ends.store(true, Ordering::Relaxed);
    });
    assert!(hits.load(Ordering::Relaxed) > 0);
}
