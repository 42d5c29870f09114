use std::sync::atomic::AtomicUsize;

use super::*;

fn content(byte: u8) -> Arc<[u8]> {
    [byte; 4].into()
}

#[test]
fn readers_see_all_of_a_change_or_nothing() {
    let newer_blocks = NewerBlocks::default();
    newer_blocks.activate();
    let publish = |byte| {
        let blocks = [(1, content(byte)), (2, content(byte))];
        newer_blocks.publish(
            blocks.iter().map(|(block, content)| (block, content)),
            &BTreeSet::new(),
            || (),
        );
    };
    publish(0);
    let (halves, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..=255).cycle().take(20_000).for_each(publish);
            ended.store(true, Ordering::Relaxed);
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    let half = |block| newer_blocks.read().get(block).map(|content| content[0]);
                    let (first, second) =
                        newer_blocks.consistent(|| (half(1), newer_blocks.consistent(|| half(2))));
                    if first != second {
                        halves.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(halves.into_inner(), 0);
}

#[test]
fn a_block_changed_again_stays_newer_than_the_device() {
    let newer_blocks = NewerBlocks::default();
    let (old, new) = (content(1), content(2));
    newer_blocks.publish([(&7, &old)], &BTreeSet::new(), || ());
    newer_blocks.publish([(&7, &new)], &BTreeSet::new(), || ());
    assert!(!newer_blocks.write().written_in_place(7, &old));
    assert_eq!(newer_blocks.read().get(7), Some(&new));
    assert!(newer_blocks.write().written_in_place(7, &new));
    let blocks = newer_blocks.read();
    assert_eq!((blocks.get(7), blocks.departures()), (None, 1));
    drop(blocks);
    newer_blocks.publish([(&7, &new)], &BTreeSet::new(), || ());
    newer_blocks.publish([], &BTreeSet::from([7]), || ());
    assert!(newer_blocks.read().newer.is_empty());
}
