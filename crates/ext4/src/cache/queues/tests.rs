use std::collections::HashMap;

use super::*;

/// Pages by slot, with visits. A page's key is its slot.
#[derive(Default)]
struct There {
    visits: std::cell::RefCell<HashMap<u32, u32>>,
    stuck: Option<u32>,
}

impl Pages for There {
    fn visits(&self, at: At) -> Option<u32> {
        self.visits.borrow().get(&at.slot).copied()
    }

    fn set_visits(&self, at: At, count: u32) {
        self.visits.borrow_mut().insert(at.slot, count);
    }

    fn hash(&self, at: At) -> u64 {
        super::super::table::hash(1, at.slot.into())
    }

    fn evict(&mut self, at: At) -> bool {
        self.stuck != Some(at.slot) && self.visits.borrow_mut().remove(&at.slot).is_some()
    }
}

fn at(slot: u32) -> At {
    At { slot, generation: 0 }
}

/// Reads `page` with a cache of `most` pages. Returns whether it was a hit.
fn read(queues: &mut Queues, there: &mut There, page: u32, most: usize) -> bool {
    if let Some(visits) = there.visits(at(page)) {
        there.set_visits(at(page), (visits + 1).min(VISITS_MAX));
        return true;
    }
    while there.visits.borrow().len() >= most {
        assert!(queues.evict_one(there));
    }
    there.set_visits(at(page), 0);
    queues.arrive(at(page), there);
    false
}

#[test]
fn a_scan_leaves_what_is_used_alone() {
    let (mut queues, mut there) = (Queues::new(100), There::default());
    for _ in 0..4 {
        (0..50).for_each(|page| _ = read(&mut queues, &mut there, page, 100));
    }
    (1_000..3_000).for_each(|page| _ = read(&mut queues, &mut there, page, 100));
    let kept = (0..50).filter(|page| there.visits(at(*page)).is_some()).count();
    assert_eq!(kept, 50);
    // An LRU queue would have none of them.
}

#[test]
fn who_comes_back_soon_stays() {
    let (mut queues, mut there) = (Queues::new(100), There::default());
    (0..150).for_each(|page| _ = read(&mut queues, &mut there, page, 100));
    let gone = (0..100).find(|page| there.visits(at(*page)).is_none()).expect("some have left");
    assert!(!read(&mut queues, &mut there, gone, 100));
    assert!(queues.main.contains(&at(gone)));
    (500..700).for_each(|page| _ = read(&mut queues, &mut there, page, 100));
    assert!(there.visits(at(gone)).is_some());
}

#[test]
fn what_is_no_longer_there_is_passed_over_and_queues_stay_short() {
    let (mut queues, mut there) = (Queues::new(10), There::default());
    for page in 0..10_000 {
        there.set_visits(at(page), 0);
        queues.arrive(at(page), &there);
        there.visits.borrow_mut().clear();
    }
    assert!(queues.small.len() + queues.main.len() <= 84);
    assert!(!queues.evict_one(&mut there));
}

#[test]
fn what_cannot_go_now_is_no_obstacle() {
    let (mut queues, mut there) = (Queues::new(10), There::default());
    there.stuck = Some(0);
    (0..10).for_each(|page| _ = read(&mut queues, &mut there, page, 10));
    for left in (1..10).rev() {
        assert!(queues.evict_one(&mut there));
        assert_eq!(there.visits.borrow().len(), left);
    }
    assert!(!queues.evict_one(&mut there));
    there.stuck = None;
    assert!(queues.evict_one(&mut there));
}
