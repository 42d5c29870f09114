use super::*;
use crate::journal::Changed;

fn add(first: u32, blocks: u32, at: u64) -> Change {
    Change::AddRange { ino: 12, first, blocks, at, unwritten: false }
}

fn changes(operations: &[Change], complete: bool, barred: bool) -> Changes {
    let places = [(12, (5, 0))].into();
    let fast = FastChanges { operations: operations.to_vec(), places, complete, barred };
    let blocks = [(5, Arc::from([0; 4]))].into();
    Changes {
        fast,
        blocks,
        inodes: [(12, Changed { data: true, links: 1 })].into(),
        ..Changes::default()
    }
}

#[test]
fn one_that_cannot_be_recorded_bars_all() {
    for (complete, barred) in [(false, false), (true, true)] {
        let mut unrecorded = Unrecorded::default();
        assert!(unrecorded.is_empty());
        unrecorded.merge(&changes(&[add(0, 1, 100)], true, false));
        assert!(
            unrecorded.is_recordable() && !unrecorded.is_empty() && unrecorded.reaches_blocks()
        );
        unrecorded.merge(&changes(&[], complete, barred));
        unrecorded.merge(&changes(&[add(1, 1, 101)], true, false));
        assert!(!unrecorded.is_recordable() && !unrecorded.is_empty());
    }
}

#[test]
fn ranges_that_go_on_are_one() {
    let mut unrecorded = Unrecorded::default();
    for operation in [add(0, 1, 100), add(1, 2, 101), add(4, 1, 103), add(5, 1, 105)] {
        unrecorded.merge(&changes(&[operation], true, false));
    }
    assert_eq!(unrecorded.operations, [add(0, 3, 100), add(4, 1, 103), add(5, 1, 105)]);
}

#[test]
fn what_has_no_words_is_seen_in_the_inode() {
    let mut old = vec![0; 256];
    old[0x80] = 32;
    let with = |base: &[u8], at: usize| {
        let mut new = base.to_vec();
        new[at] ^= 1;
        new
    };
    // Size, mode, extents and creation time can be described, attributes cannot.
    for at in [0, 4, 0x28, 0x90] {
        assert!(is_recordable(&old, &with(&old, at)), "{at:#x}");
    }
    for at in [0x68, 0x77, 160, 255] {
        assert!(!is_recordable(&old, &with(&old, at)), "{at:#x}");
    }
    old[1] = 0x40;
    for at in [0x0C, 0x10, 0x7C, 0x83, 0x84, 0x8B] {
        assert!(is_recordable(&old, &with(&old, at)), "{at:#x}");
    }
    for at in [0, 2, 4, 0x08, 0x14, 0x1A, 0x1C, 0x28, 0x64, 0x8C, 0x9C, 160] {
        assert!(!is_recordable(&old, &with(&old, at)), "{at:#x}");
    }
    // This inode has 128 bytes.
    assert!(is_recordable(&old[..128], &with(&old[..128], 0x10)));
    assert!(!is_recordable(&old[..128], &with(&old[..128], 4)));
}

#[test]
fn leftovers_of_an_old_inode_are_seen() {
    let mut new = vec![0; 256];
    new[0x80] = 32;
    new[BLOCK_AREA_AT..BLOCK_AREA_AT + 8].copy_from_slice(&EMPTY_ROOT);
    assert!(comes_out_of(&new, &[0; 256]));
    assert!(comes_out_of(&new, &new));
    let with = |at: usize, byte: u8| {
        let mut old = new.clone();
        old[at] = byte;
        old
    };
    // There are attributes after the fields, or an extent. With another magic number it is no
    // root.
    assert!(!comes_out_of(&new, &with(160, 1)));
    assert!(!comes_out_of(&new, &with(BLOCK_AREA_AT + 2, 1)));
    assert!(comes_out_of(&new, &with(BLOCK_AREA_AT, 1)));
    assert!(comes_out_of(&new, &with(159, 1)));
    assert!(!comes_out_of(&with(BLOCK_AREA_AT + 2, 1), &new));
}
