use super::*;

#[test]
fn goes_round() {
    let runs = vec![
        LogRun { first: 0, blocks: 4, place: 100 },
        LogRun { first: 4, blocks: 6, place: 50 },
        LogRun { first: 10, blocks: 10, place: 200 },
    ];
    let mut log = Log::new(runs, 1..16);
    assert_eq!((log.len(), log.free(), log.head()), (15, 14, 1));
    assert_eq!(log.place(1), Some((101, 3)));
    assert_eq!(log.place(4), Some((50, 6)));
    assert_eq!((log.place(12), log.place(20)), (Some((202, 4)), None));
    log.take(13);
    assert_eq!((log.free(), log.head(), log.is_half_full()), (1, 14, true));
    log.release(10);
    log.take(5);
    assert_eq!((log.free(), log.head(), log.is_half_full()), (6, 4, true));
}

#[test]
fn a_transaction_apart_is_after_the_head() {
    let runs = vec![LogRun { first: 0, blocks: 20, place: 100 }];
    let mut log = Log::new(runs, 1..16).never_wraps(true);
    assert!(!log.leave_out_head(15) && log.head() == 1);
    assert!(log.leave_out_head(14) && log.head() == 2);
    log.take(10);
    assert!(!log.leave_out_head(1) && log.head() == 12);
    log.release(10);
    assert!(log.leave_out_head(1) && log.head() == 2);
}

#[test]
fn one_that_never_wraps_ends_at_the_end() {
    let runs = vec![LogRun { first: 0, blocks: 20, place: 100 }];
    let mut log = Log::new(runs, 1..16).never_wraps(true);
    assert_eq!((log.free(), log.is_half_full()), (14, false));
    log.take(6);
    log.take(4);
    log.release(6);
    // The free blocks before the oldest transaction cannot be used yet.
    assert_eq!((log.free(), log.head(), log.is_half_full()), (5, 11, true));
    log.take(5);
    assert_eq!((log.free(), log.is_half_full()), (0, true));
    log.release(4);
    assert_eq!((log.free(), log.start_if_empty()), (0, 1));
    log.release(5);
    assert_eq!((log.free(), log.head(), log.is_half_full()), (14, 1, false));
    // The used blocks are one run at all times, wherever transactions end.
    for blocks in 1..15 {
        let mut used = Vec::new();
        while log.free() >= blocks {
            used.push(log.head());
            log.take(blocks);
        }
        assert!(
            used.is_sorted() && used.last().is_some_and(|last| last + blocks <= 16),
            "{used:?}"
        );
        used.iter().for_each(|_| log.release(blocks));
    }
}

#[test]
fn every_block_is_in_the_plan_once() {
    for (revoke_blocks, copies, buffer_blocks, tags_most) in [
        (0, 0, 4, 9),
        (1, 0, 4, 9),
        (0, 1, 2, 9),
        (3, 7, 2, 9),
        (2, 100, 64, 10),
        (5, 1, 5, 3),
        (4, 3, 5, 3),
    ] {
        let layout = LogLayout { revoke_blocks, copies, buffer_blocks, tags_most };
        let all: Vec<_> = layout.clone().collect();
        assert_eq!(all.iter().map(|(revokes, _)| revokes).sum::<usize>(), revoke_blocks);
        assert_eq!(all.iter().map(|(_, copies)| copies).sum::<usize>(), copies);
        let size = |(revokes, copies): &(usize, usize)| revokes + copies + usize::from(*copies > 0);
        assert!(all.iter().all(|part| size(part) <= buffer_blocks && part.1 <= tags_most));
        assert_eq!(layout.log_blocks(), all.iter().map(size).sum::<usize>() + 1);
    }
}
