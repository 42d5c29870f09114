use super::*;

const MS: u64 = 1_000_000;

/// A thread that is looked at every 4 ms, and its figures.
#[derive(Default)]
struct Thread {
    share: Share,
    now_ns: u64,
    ran_ns: u64,
    waited_ns: u64,
    newly: u32,
}

impl Thread {
    fn new() -> Self {
        Self { now_ns: 5_000 * MS, ..Self::default() }
    }

    /// The thread runs, waits for the CPU, and sleeps for so long, and then looks.
    fn pass(&mut self, ran_ns: u64, waited_ns: u64, slept_ns: u64) {
        self.now_ns += ran_ns + waited_ns + slept_ns;
        self.ran_ns += ran_ns;
        self.waited_ns += waited_ns;
        let waited_ns = || Some(self.waited_ns);
        let change = self.share.sample(self.now_ns, self.ran_ns, 100, waited_ns);
        self.newly += u32::from(matches!(change, Change::Short | Change::StillShort));
    }

    fn is_short(&self) -> bool {
        self.share.is_short(self.now_ns)
    }
}

#[test]
fn an_occasional_preemption_is_no_shortage() {
    let mut thread = Thread::new();
    for turn in 0..100 {
        thread.pass(4 * MS, if turn % 50 == 0 { 3 * MS } else { 0 }, 0);
    }
    assert!(!thread.is_short() && thread.share.share() == 1.0);
}

#[test]
fn another_thread_is_noticed_within_30_ms_and_its_part_measured() {
    let mut thread = Thread::new();
    (0..1_000).for_each(|_| thread.pass(4 * MS, 0, 0));
    let since_ns = thread.now_ns;
    while !thread.is_short() {
        thread.pass(3 * MS, 3 * MS, 0);
    }
    assert!(thread.now_ns - since_ns <= 30 * MS);
    (0..500).for_each(|_| thread.pass(3 * MS, 3 * MS, 0));
    assert!((thread.share.share() - 0.5).abs() < 0.02, "{}", thread.share.share());
    assert_eq!(thread.newly, 1);
}

#[test]
fn a_quota_is_noticed_when_it_is_first_used_up() {
    let mut thread = Thread::new();
    (0..5).for_each(|_| thread.pass(4 * MS, 0, 0));
    thread.pass(4 * MS, 80 * MS, 0);
    assert!(thread.is_short());
    assert!((0.1..0.3).contains(&thread.share.share()), "{}", thread.share.share());
    for _ in 0..50 {
        (0..4).for_each(|_| thread.pass(4 * MS, 0, 0));
        thread.pass(4 * MS, 80 * MS, 0);
    }
    assert!((thread.share.share() - 0.2).abs() < 0.03, "{}", thread.share.share());
    assert_eq!(thread.newly, 1);
}

#[test]
fn one_that_sleeps_learns_how_long_it_waits_after_it() {
    let mut thread = Thread::new();
    for _ in 0..1_000 {
        // 100 I/Os of 40 µs, a quarter of it waiting for the CPU.
        thread.pass(MS, MS, 2 * MS);
    }
    assert!(thread.is_short() && thread.share.share() == 1.0);
    assert!((thread.share.wake_wait_ns() - 10_000.0).abs() < 100.0);
    assert!((thread.share.io_cpu_ns().unwrap() - 10_000.0).abs() < 100.0);
}

#[test]
fn a_shortage_is_remembered_for_longer_if_it_comes_back() {
    let mut thread = Thread::new();
    let mut lasted_ns = Vec::new();
    for _ in 0..3 {
        (0..100).for_each(|_| thread.pass(2 * MS, 2 * MS, 0));
        let ended_ns = thread.now_ns;
        while thread.is_short() {
            thread.pass(MS, 0, 3 * MS);
        }
        lasted_ns.push(thread.now_ns - ended_ns);
        assert_eq!(thread.share.share(), 1.0);
    }
    let factor = |at: usize| lasted_ns[at] as f32 / lasted_ns[at - 1] as f32;
    // 20 waits of 2 ms.
    assert!(lasted_ns[0] >= 40 * MS && factor(1) > 1.5 && factor(2) > 1.5, "{lasted_ns:?}");
    assert_eq!(thread.newly, 3);
}

#[test]
fn another_thread_has_other_times() {
    let mut thread = Thread::new();
    (0..10).for_each(|_| thread.pass(4 * MS, 0, 0));
    // Another one: it has waited for hours, and has run less. Then the first one again.
    for _ in 0..10 {
        (thread.ran_ns, thread.waited_ns) = (MS, 10_000_000 * MS);
        thread.pass(4 * MS, 0, 0);
        (thread.ran_ns, thread.waited_ns) = (40 * MS, 0);
        thread.pass(4 * MS, 0, 0);
    }
    (0..1_000).for_each(|_| thread.pass(4 * MS, 0, 0));
    assert!(!thread.is_short(), "not for long");
}
